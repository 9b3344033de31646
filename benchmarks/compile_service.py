"""What the compile service costs beside the compiler itself: ratios of paired runs on this machine.

    python benchmarks/compile_service.py            # prints the table, about five minutes on two cores
    python benchmarks/compile_service.py --write    # and keeps it in benchmarks/results/compile_service.json
    python benchmarks/compile_service.py --only warm --only memory

- cold: `analyze` of 24 configs with an empty cache against the sum of bare `warmup` calls of the same launches, divided
  by the cores that the run uses. The 24 configs and the kernel that follows them are 17 distinct launches, on both
  sides. Ours counts everything from the start of the command to its table; the bare side counts the calls alone, made
  one after another in one process: no start of Python, no import of Triton or of the kernel.
- cap check: compiles that end at shared memory against whole compiles of the same launches, in one worker, one after
  the other for each launch; apart for configs that fit and those over the cap. `passes_share` is what Triton's own
  passes up to the allocation take of an early compile: shared memory is not known before them. `most` is the ratio of
  a check that takes nothing beside them, which none that asks Triton can pass.
- repeated: whole compiles of configs that differ in `num_stages` alone where no loop is pipelined, against the same
  with each TTGIR compiled once.
- warm: a run that finds everything in the cache against importing the libraries that it needs. Byte code is kept in a
  folder of its own, as after an installation. `least` is a command with the options of `analyze` that draws a table of
  one cell: typer builds a validator for each option with pydantic, whose import alone loads next to nothing, and rich
  loads its tables. `beyond_least` are a command's seconds beyond that.
- memory: the largest resident set of a worker.
- growth: 1, 10, 100 (and with --all 1,000) configs of a small kernel.

A machine that is shared makes wall time noisy: a ratio compares two things that took turns, and the medians count.
`cpu_ratio` is the same ratio of processor time (user and system, children included), which is steadier there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from occupancy_cli.compile.request import CompileRequest
from occupancy_cli.compile.typed_json import to_plain
from occupancy_cli.compile.worker_messages import Compile, Compiled, answer_of, message_text

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "compile_service.json"
CONFIGS = ["--set", "BLOCK_H=16,32", "--set", "num_warps=4,8", "--set", "nsplit=2,3"]
CORES = len(os.sched_getaffinity(0))
CAP_GPU = "rtx-pro-6000"
CAP_SETS = ["BLOCK_H=16,32,64"]
IMPORTS = "import typer, rich, pydantic, yaml"
WARM = {
    "analyze": ["analyze"],
    "analyze_json": ["analyze", "--format", "json"],
    "check": ["check"],
    "recommend": ["recommend", "--batch", "80"],
}

# Typer, pydantic and rich do this for any command with these options.
LEAST = textwrap.dedent(
    """
    import functools, sys, typer
    from occupancy_cli.cli.analyze_command import analyze

    @functools.wraps(analyze)
    def least(**options):
        from rich.console import Console
        from rich.table import Table
        table = Table()
        table.add_column("a cell")
        Console().print(table)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(least)
    app()
    """
)

SMALL = """
import triton
import triton.language as tl

@triton.jit
def small(x_ptr, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * TIMES, mask=at < n)
"""

BARE = textwrap.dedent(
    """
    import json, os, sys, tempfile, time
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    from occupancy_cli.compile import triton_front
    from occupancy_cli.compile import compiled_kernels, loaded_kernels
    from occupancy_cli.compile.request import CompileRequest
    from occupancy_cli.compile.typed_json import from_plain
    from occupancy_cli.loading import outside_reads
    outside_reads.install()
    def cpu():
        times = os.times()
        return sum(times[:4])

    wall = spent = 0.0
    for message in json.load(sys.stdin):
        request = from_plain(CompileRequest, message)
        triton_front.install_driver(request.target)
        kernel = loaded_kernels.loaded_kernel(request.source)
        values = {a.name: compiled_kernels.stand_in(a) for a in request.arguments if not a.heuristic}
        values = triton_front.with_heuristics(kernel, values | dict(request.constexprs), dict(request.options))
        _, jit = triton_front.layers(kernel)
        start, before = time.perf_counter(), cpu()
        jit.warmup(grid=(1,), **values)
        wall, spent = wall + time.perf_counter() - start, spent + cpu() - before
    print(wall, spent)
    """
)

# What Triton's passes take of the early compiles: everything from the kernel's syntax tree to the allocation.
PASSES = textwrap.dedent(
    """
    import json, os, sys, tempfile, time
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    from occupancy_cli.compile import triton_front
    from occupancy_cli.compile import worker
    from occupancy_cli.compile.request import CompileRequest
    from occupancy_cli.compile.typed_json import from_plain
    from occupancy_cli.compile.worker_messages import Compile
    from occupancy_cli.loading import outside_reads
    outside_reads.install()
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.compiler import ASTSource
    inside = 0.0

    def timed(owner, name):
        original = owner.__dict__[name]
        call = original.__func__ if isinstance(original, staticmethod) else original

        def timing(*arguments, **named):
            global inside
            start = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                inside += time.process_time() - start

        setattr(owner, name, staticmethod(timing) if isinstance(original, staticmethod) else timing)

    for owner, name in ((ASTSource, "make_ir"), *((CUDABackend, n) for n in ("make_ttir", "make_ttgir", "make_llir"))):
        timed(owner, name)
    requests = [from_plain(CompileRequest, {**m, "stop_above": -1}) for m in json.load(sys.stdin)]
    messages = [Compile(request) for request in requests]
    worker._answer(messages[0])
    inside, start = 0.0, time.process_time()
    for message in messages:
        worker._answer(message)
    print(inside / (time.process_time() - start))
    """
)


# A kernel without a pipelined loop: its stages change nothing, and of 60 configs 15 differ behind the TTGIR passes.
REPEATED = textwrap.dedent(
    """
    import itertools, json, os, sys, tempfile, time
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    from occupancy_cli.compile import triton_front
    from occupancy_cli.compile.shared_allocation import FinishedCompiles
    from occupancy_cli.gpu.profiles import load_gpu
    from occupancy_cli.loading.target_gpu import target_of
    sys.path.insert(0, sys.argv[1])
    from small import small
    triton_front.install_driver(target_of(load_gpu(sys.argv[2])))

    def cpu():
        return sum(os.times()[:4])

    def whole(finished):
        start = cpu()
        for block, warps, stages in itertools.product((64, 128, 256, 512, 1024), (2, 4, 8), (1, 2, 3, 4)):
            values = {"x_ptr": triton_front.TensorStandIn("fp32", 16), "n": 4096, "BLOCK": block, "TIMES": 3}
            values |= {"num_warps": warps, "num_stages": stages}
            triton_front.compile_launch(small, values, stop_above=None, finished=finished)
        return cpu() - start

    whole(None)
    pairs = [(whole(None), whole(FinishedCompiles())) for _ in range(int(sys.argv[3]))]
    print(json.dumps(pairs))
    """
)


class Spent(NamedTuple):
    """Seconds on the clock, and of the processors."""

    wall_s: float
    cpu_s: float


def run(arguments: list[str], *, cwd: Path = ROOT, stdin: str = "", **variables: str) -> tuple[Spent, str]:
    """Run this Python with these arguments; what it spent and printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu), done.stdout


def occupancy(*arguments: str, cache: str, cwd: Path = ROOT) -> Spent:
    """What one run of the command spent."""
    return run(["-m", "occupancy_cli", *arguments], cwd=cwd, OCCUPANCY_CACHE_DIR=cache)[0]


def median_ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(a / b for a, b in pairs)


def requests(gpu_name: str, sets: list[str]) -> list[CompileRequest]:
    """The distinct launches of the shipped kernel's configs at these settings."""
    from occupancy_cli import load_gpu
    from occupancy_cli.compile.compile_service import CompileService
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.plan.points import points
    from occupancy_cli.plan.prepared_kernel import prepare
    from occupancy_cli.spec.settings import parse_settings

    gpu = load_gpu(gpu_name)
    with CompileService() as service:
        kernel = prepare(read_kernel_input(None), gpu, service.describe, parse_settings(sets), {})
        chosen = {launch.request.key(): launch.request for p in points(kernel, gpu, None) for launch in p.launches}
    return list(chosen.values())


def cold(rounds: int) -> dict[str, float]:
    messages = json.dumps([to_plain(r) for r in requests("h200", CONFIGS[1::2])])
    ours, bare = [], []
    for _ in range(rounds):
        _, said = run(["-c", BARE], stdin=messages)
        wall, cpu = map(float, said.split())
        bare.append(Spent(wall, cpu))
        with tempfile.TemporaryDirectory() as cache:
            ours.append(occupancy("analyze", "--gpu", "h200", *CONFIGS, cache=cache))
    pairs = list(zip(ours, bare, strict=True))
    return {
        "launches": len(json.loads(messages)),
        "cores": CORES,
        "analyze_s": statistics.median(o.wall_s for o in ours),
        "bare_sum_s": statistics.median(b.wall_s for b in bare),
        "ratio": median_ratio([(o.wall_s, b.wall_s / CORES) for o, b in pairs]),
        "cpu_ratio": median_ratio([(o.cpu_s, b.cpu_s) for o, b in pairs]),
    }


def cap(rounds: int) -> dict[str, Any]:
    """Processor and clock time of a worker and its ptxas: early and whole compiles of each launch in turn."""
    from occupancy_cli.compile.worker_client import Limits, WorkerClient

    launches = [m for m in requests(CAP_GPU, CAP_SETS) if m.source.kernel != "combine_kernel"]
    limit = launches[0].target.shared_per_cta_optin_bytes
    spent: dict[tuple[str, str], list[float]] = {}
    # A new worker a round: one that has compiled a launch to its end knows the result of the next one.
    client = WorkerClient(Limits(600, 0))

    def ask(request: CompileRequest, stop_above: int | None) -> int:
        answer = answer_of(client.ask(message_text(Compile(replace(request, stop_above=stop_above)))).text)
        assert isinstance(answer, Compiled)
        return answer.record.resources.shared_bytes

    def compile_once(request: CompileRequest, stop_above: int | None) -> tuple[Spent, int]:
        process = client._process
        assert process is not None
        before, start = cpu_seconds_of(process.pid), time.perf_counter()
        shared = ask(request, stop_above)
        return Spent(time.perf_counter() - start, cpu_seconds_of(process.pid) - before), shared

    try:
        for _ in range(rounds):
            client.close()
            client = WorkerClient(Limits(600, 0))
            ask(launches[0], -1)  # imports count for neither
            for message in launches:
                early, shared = compile_once(message, -1)
                full, same = compile_once(message, None)
                assert shared == same
                for group in ("all", "over_the_cap" if shared > limit else "that_fit"):
                    for name, one in (("early", early), ("full", full)):
                        spent.setdefault((group, f"{name}_s"), []).append(one.wall_s)
                        spent.setdefault((group, f"{name}_cpu_s"), []).append(one.cpu_s)
    finally:
        client.close()
    found: dict[str, Any] = {"gpu": CAP_GPU}
    for group in ("all", "that_fit", "over_the_cap"):
        sums = {name: sum(values) / rounds for (g, name), values in spent.items() if g == group}
        count = len(spent[group, "full_s"]) // rounds
        ratios = {"ratio": sums["full_s"] / sums["early_s"], "cpu_ratio": sums["full_cpu_s"] / sums["early_cpu_s"]}
        found[group] = rounded({"launches": count, **sums, **ratios})
    share = found["passes_share"] = float(run(["-c", PASSES], stdin=json.dumps(launches))[1])
    for group in ("all", "that_fit", "over_the_cap"):
        found[group]["most"] = round(found[group]["ratio"] / share, 3)
    return found


def repeated(rounds: int) -> dict[str, Any]:
    """Processor time of 60 configs that come to 15 different TTGIRs, each compiled, and each TTGIR compiled once."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.py").write_text(SMALL)
        pairs = json.loads(run(["-c", REPEATED, folder, CAP_GPU, str(rounds)])[1])
    each, once = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    return {"configs": 60, "each_cpu_s": each, "once_cpu_s": once, "cpu_ratio": each / once}


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process and of the children that it has waited for (proc(5): fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def warm(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as code:
        os.environ["PYTHONPYCACHEPREFIX"] = code
        try:
            spent: dict[str, list[Spent]] = {name: [] for name in ("imports", "least", *WARM)}
            for _ in range(rounds + 1):
                spent["imports"].append(run(["-c", IMPORTS])[0])
                spent["least"].append(run(["-c", LEAST])[0])
                for name, arguments in WARM.items():
                    spent[name].append(occupancy(*arguments, cache=cache))
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
    least = statistics.median(o.wall_s for o in spent["least"][1:])
    for name, each in spent.items():
        pairs = list(zip(each, spent["imports"], strict=True))[1:]  # the first round fills the cache
        found[name] = rounded(
            {
                "wall_s": statistics.median(o.wall_s for o, _ in pairs),
                "cpu_s": statistics.median(o.cpu_s for o, _ in pairs),
                "ratio": median_ratio([(o.wall_s, b.wall_s) for o, b in pairs]),
                "cpu_ratio": median_ratio([(o.cpu_s, b.cpu_s) for o, b in pairs]),
                **({"beyond_least_s": statistics.median(o.wall_s for o, _ in pairs) - least} if name in WARM else {}),
            }
        )
    return found


def memory() -> dict[str, float]:
    from occupancy_cli.compile.worker_client import Limits, WorkerClient

    client = WorkerClient(Limits(120, 0))
    peak = 0
    try:
        for message in requests("h200", CONFIGS[1::2])[:8]:
            client.ask(message_text(Compile(message)))
            assert client._process is not None
            status = Path(f"/proc/{client._process.pid}/status").read_text()
            peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]))
    finally:
        client.close()
    return {"worker_peak_mb": peak / 1024}


def growth(counts: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.py").write_text(SMALL)
        for count in counts:
            times = ",".join(str(i) for i in range(2, 2 + count))
            with tempfile.TemporaryDirectory() as cache:
                spent = occupancy(
                    "analyze", "small.py:small", "--arg", "x_ptr=*fp32", "--arg", "n=i32=4096", "--set", "BLOCK=64",
                    "--set", f"TIMES={times}", cache=cache, cwd=Path(folder),
                )  # fmt: skip
            found[f"{count}_configs"] = rounded(spent._asdict())
    return found


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {n: round(v, 3) if isinstance(v, float) else v for n, v in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="1,000 configs too")
    parser.add_argument("--only", action="append", help="only this part; repeatable")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    from occupancy_cli.compile.compile_service import triton_version

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "cold_24_configs": lambda: cold(options.rounds),
        "cap_check": lambda: cap(options.rounds),
        "repeated": lambda: repeated(options.rounds),
        "warm": lambda: warm(4 * options.rounds),
        "memory": memory,
        "growth": lambda: growth([1, 10, 100, *([1000] if options.all else [])]),
    }
    wanted = options.only or list(parts)
    if unknown := [name for name in wanted if name not in parts]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(parts)}")
    result: dict[str, Any] = json.loads(RESULT.read_text()) if options.only and RESULT.is_file() else {}
    for name in wanted:
        setting = {
            "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "triton": triton_version(),
            "cores": CORES, "load_before": round(os.getloadavg()[0], 2),
        }  # fmt: skip
        result[name] = rounded(parts[name]()) | {"setting": setting}
        print(name, json.dumps(result[name]), flush=True)
    if options.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
