"""What the compile service costs beside Triton alone, each measured against its counterpart in one run.

    python benchmarks/compile_service.py            # prints the table, about five minutes on two cores
    python benchmarks/compile_service.py --write    # and keeps it in benchmarks/results/compile_service.json

- cold: analysis of 24 configs against the sum of bare compiles of the same launches (Triton's own `warmup`, timed in
  one process with a cold cache, without that process's start and imports) divided by the cores used
- cap: `check` of caps alone against full compiles of the same configs
- warm: a run that finds everything in the cache against importing typer, rich, pydantic and yaml, and beside it what
  importing the parts of them that any command uses takes (a typer command builds a pydantic TypeAdapter, a table needs
  rich.table): below that no run can come with these libraries
- memory: the largest resident set of a worker
- growth: 1, 10, 100 (and with --all 1,000) configs of a small kernel

A machine that is shared makes all of these noisy: a ratio compares two things that took turns, and the medians count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "compile_service.json"
CONFIGS = ["--set", "BLOCK_H=16,32", "--set", "num_warps=4,8", "--set", "nsplit=2,3"]
CORES = len(os.sched_getaffinity(0))
# Byte code is kept, as it is where the tool is installed.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": tempfile.mkdtemp()}

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
    from occupancy_cli.compile import triton_front, worker
    from occupancy_cli.compile.request import CompileRequest
    total = 0.0
    for message in json.load(sys.stdin):
        request = CompileRequest.from_message(message)
        triton_front.install_driver(**message["target"])
        kernel = worker._kernel(message["source"])
        values = {a.name: worker._stand_in(a) for a in request.arguments if not a.heuristic}
        values = triton_front.with_heuristics(kernel, values | dict(request.constexprs), dict(request.options))
        _, jit = triton_front.layers(kernel)
        start = time.perf_counter()
        jit.warmup(grid=(1,), **values)
        total += time.perf_counter() - start
    print(total)
    """
)


def occupancy(*arguments: str, cache: str, cwd: Path = ROOT) -> float:
    """Seconds of one run of the command."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments], env={**ENVIRONMENT, "OCCUPANCY_CACHE_DIR": cache},
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return time.perf_counter() - start


def requests() -> list[dict[str, object]]:
    """The distinct launches of the 24 configs, as messages."""
    from occupancy_cli import load_gpu
    from occupancy_cli.analysis.plan import points, prepare
    from occupancy_cli.compile.service import CompileService
    from occupancy_cli.intake.kernel_input import read_kernel_input
    from occupancy_cli.intake.settings import parse_settings

    gpu = load_gpu("h200")
    with CompileService() as service:
        kernel = prepare(read_kernel_input(None), gpu, service.describe, parse_settings(CONFIGS[1::2]), {})
        chosen = {launch.request.key(): launch.request for p in points(kernel, gpu, None) for launch in p.launches}
    return [r.to_message() for r in chosen.values()]


def cold(rounds: int) -> dict[str, float]:
    messages = json.dumps(requests())
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as cache:
        occupancy("analyze", "--gpu", "h200", *CONFIGS[:2], cache=cache)  # byte code
    for _ in range(rounds):
        said = subprocess.run(
            [sys.executable, "-c", BARE], input=messages, capture_output=True, text=True, check=True, cwd=ROOT,
            env=ENVIRONMENT,
        )  # fmt: skip
        bare.append(float(said.stdout))
        with tempfile.TemporaryDirectory() as cache:
            ours.append(occupancy("analyze", "--gpu", "h200", *CONFIGS, cache=cache))
    ratio = statistics.median(a / (b / CORES) for a, b in zip(ours, bare, strict=True))
    return {"analyze_s": statistics.median(ours), "bare_sum_s": statistics.median(bare), "cores": CORES, "ratio": ratio}


def cap(rounds: int) -> dict[str, float]:
    """Seconds inside the workers: compiles that end at shared memory, and the whole ones, of the same launches."""
    from dataclasses import replace

    from occupancy_cli.compile.request import CompileRequest
    from occupancy_cli.compile.service import CompileService

    full = [CompileRequest.from_message(m) for m in requests()]
    early = [replace(r, stop_above=-1) for r in full]
    times: dict[str, list[float]] = {"early": [], "full": []}
    for _ in range(rounds):
        for name, asked in (("early", early), ("full", full)):
            with CompileService(jobs=1) as service:
                service.compile_all(asked[:1])  # the worker's imports are the same for both
                start = time.perf_counter()
                service.compile_all(asked)
                times[name].append(time.perf_counter() - start)
    ratio = statistics.median(f / e for e, f in zip(times["early"], times["full"], strict=True))
    return {"early_s": statistics.median(times["early"]), "full_s": statistics.median(times["full"]), "ratio": ratio}


def warm(rounds: int) -> dict[str, float]:
    ours: list[list[float]] = [[] for _ in COMMANDS]
    imports: list[float] = []
    used: list[float] = []
    with tempfile.TemporaryDirectory() as cache:
        for command in COMMANDS:
            occupancy(*command, cache=cache)
        imported("typer, rich, pydantic, yaml")
        for _ in range(rounds):
            imports.append(imported("typer, rich, pydantic, yaml"))
            used.append(imported("typer, rich.console, rich.table, pydantic.type_adapter, yaml, sqlite3"))
            for times, command in zip(ours, COMMANDS, strict=True):
                times.append(occupancy(*command, cache=cache))
    found = {"imports_s": statistics.median(imports), "used_imports_s": statistics.median(used)}
    for times, command in zip(ours, COMMANDS, strict=True):
        found[f"{command[0]}_s"] = statistics.median(times)
        found[f"{command[0]}_ratio"] = statistics.median(a / b for a, b in zip(times, imports, strict=True))
    return found


COMMANDS = (("analyze",), ("check",))


def imported(modules: str) -> float:
    """Seconds of a process that imports modules and ends."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def memory() -> dict[str, float]:
    from occupancy_cli.compile.client import Limits, WorkerClient

    client = WorkerClient(Limits(120, 0))
    peak = 0
    try:
        for message in requests()[:8]:
            client.ask({"action": "compile", "request": message})
            assert client._process is not None
            status = Path(f"/proc/{client._process.pid}/status").read_text()
            peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]))
    finally:
        client.close()
    return {"worker_peak_mb": peak / 1024}


def growth(counts: list[int]) -> dict[str, float]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.py").write_text(SMALL)
        for count in counts:
            times = ",".join(str(i) for i in range(2, 2 + count))
            with tempfile.TemporaryDirectory() as cache:
                found[f"{count}_configs_s"] = occupancy(
                    "analyze", "small.py:small", "--arg", "x_ptr=*fp32", "--arg", "n=i32=4096", "--set", "BLOCK=64",
                    "--set", f"TIMES={times}", cache=cache, cwd=Path(folder),
                )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="1,000 configs too")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    from occupancy_cli.compile.service import triton_version

    result: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "triton": triton_version(),
        "cores": CORES, "load_before": os.getloadavg()[0],
    }  # fmt: skip
    for name, measure in (
        ("cold_24_configs", lambda: cold(options.rounds)),
        ("cap_check", lambda: cap(options.rounds)),
        ("warm", lambda: warm(4 * options.rounds)),
        ("memory", memory),
        ("growth", lambda: growth([1, 10, 100, *([1000] if options.all else [])])),
    ):
        result[name] = {k: round(v, 3) for k, v in measure().items()}
        print(name, json.dumps(result[name]), flush=True)
    if options.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
