"""A notebook with kernels in its cells, as a script: analyzed, pruned, asked about from threads and a forked child.

Prints what came of it as JSON. Nothing of it has a file that could be imported again.
"""

import concurrent.futures
import json
import linecache
import os
import sys
import warnings

import occupancy_cli as occ

CELL = """
import triton
import triton.language as tl

HALF = tl.constexpr(0.5)

@triton.jit
def half(x):
    return x * HALF

@occ.prune(gpu="t4")
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=4) for b in (32, 256)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def squares(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None]
    at = row * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=row < n, other=0.0)
    tl.store(y_ptr + at, tl.dot(x, half(x.to(tl.float32)).to(tl.float16)))
"""


def run_cell(text: str, name: str) -> None:
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), globals())


def short(report: occ.Report) -> list:
    return [[c.config["BLOCK"], c.config.get("EVEN"), c.status, c.reason] for c in report.kernels[0].configs]


def main() -> None:
    run_cell(CELL, "<ipython-input-1>")
    kernel = globals()["squares"]
    args = {"x_ptr": "*fp16", "y_ptr": "*fp32", "n": 4096}
    launch = {"x_ptr": _Tensor("torch.float16"), "y_ptr": _Tensor("torch.float32"), "n": 4096}
    prune = kernel.early_config_prune
    with warnings.catch_warnings(record=True) as before:
        warnings.simplefilter("always")
        kept_before = [c.kwargs["BLOCK"] for c in prune(kernel.configs, launch, grid=(1,), warmup=False)]
    report = occ.analyze(kernel, gpu="t4", args=args, grid=(1,))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        again = list(threads.map(lambda _: short(occ.analyze(kernel, gpu="t4", args=args, grid=(1,))), range(4)))
    child = os.fork()
    if not child:
        code = 0 if short(occ.analyze(kernel, gpu="t4", args=args, grid=(1,))) == short(report) else 1
        sys.exit(code)  # an ordinary end, which runs what is registered for it
    print(
        json.dumps(
            {
                "before": [str(w.message) for w in before], "kept_before": kept_before,
                "configs": short(report), "name": report.kernels[0].name, "notes": report.notes,
                "again": all(one == short(report) for one in again),
                "child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
                "kept": [c.kwargs["BLOCK"] for c in prune(kernel.configs, launch, grid=(1,), warmup=False)],
                "dropped": [why for _, why in prune.dropped],
                "html": report._repr_html_().count("<tr>"),
            }
        )
    )  # fmt: skip


class _Tensor:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 1024


if __name__ == "__main__":
    main()
