"""A run that Triton takes for a real one: a driver that compiles, times by a rule and launches nothing.

What `--live` hooks into can so be tried without a GPU: real compiles, the real autotuner.
"""

import triton
import triton.language as tl
from triton.runtime import driver

from occupancy_cli.compile.target_driver import TargetDriver
from occupancy_cli.loading.target_gpu import TargetGpu


class Array:
    dtype = "fp32"

    def data_ptr(self):
        return 4096

    def ptr_range(self):
        return 0


launched = []


class Driver(TargetDriver):
    def launcher_cls(self, src, _metadata):
        return lambda x, y, z, *rest: launched.append((src.fn.fn.__name__, (x, y, z)))

    def get_benchmarker(self):
        def timed(call, quantiles):
            call()
            call()
            return [10.0 - len(launched)] * len(quantiles)  # the later, the faster

        return timed


def smaller(configs, named, **_):
    return [c for c in configs if c.kwargs["BLOCK"] <= named["n"]]


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=1) for b in (32, 64, 4096)],
    key=["n"],
    prune_configs_by={"early_config_prune": smaller},
)
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 1.0, mask=at < n)


active = Driver(TargetGpu(120, 101376, 188, 65536))
driver.set_active(active)
calls = []


def grid(meta):
    calls.append(meta["BLOCK"])
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


for n in (100, 100, 100):
    fill[grid](Array(), n)
assert fill.best_config.kwargs == {"BLOCK": 64}, fill.best_config
# Two configs timed by two calls each, then three launches with the faster one.
assert launched == [("fill", (4, 1, 1))] * 2 + [("fill", (2, 1, 1))] * 5, launched
