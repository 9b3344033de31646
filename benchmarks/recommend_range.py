"""How long a recommendation over batches 1 to 512 takes from warm results: every split, every config.

    python benchmarks/recommend_range.py            # prints; compiles first what is not in the result cache
    python benchmarks/recommend_range.py --write    # and keeps it in benchmarks/results/recommend_range.json

Apart are given: planning every candidate, bounding the time of each, choosing among them by exact times, and the whole
command with its start and its output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "recommend_range.json"
BATCHES = "1:512"


def command() -> float:
    started = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "occupancy_cli",
            "recommend",
            "sparse_mla_decode",
            "--batch",
            BATCHES,
            "--format",
            "json",
        ],
        stdout=subprocess.DEVNULL,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return time.perf_counter() - started


def parts() -> dict[str, float]:
    sys.path.insert(0, str(ROOT))
    from occupancy_cli.answers.analyze import stop_above
    from occupancy_cli.answers.candidate_choice import choose
    from occupancy_cli.answers.candidate_times import CandidateTimes, compile_tables
    from occupancy_cli.answers.recommend import prepare_timed
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.cli.options import batch_values
    from occupancy_cli.compile.compile_service import CompileService
    from occupancy_cli.compile.result_cache import ResultCache
    from occupancy_cli.gpu.profiles import DEFAULT_GPU, load_gpu
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.plan.point_table import candidate_tables

    gpu, batches = load_gpu(DEFAULT_GPU), batch_values(BATCHES)
    workload = Workload(batches)
    with CompileService(cache=ResultCache()) as service:
        kernel = prepare_timed(read_kernel_input("sparse_mla_decode"), gpu, service, {}, workload)
        at = [time.perf_counter()]
        tables = candidate_tables(kernel, gpu, batches, {}, stop_above(gpu, full=False))
        at.append(time.perf_counter())
        compiled, _ = compile_tables(gpu, service, tables)
        at.append(time.perf_counter())
        times = CandidateTimes(kernel, gpu, compiled, batches, workload.lengths_at, None, False)
        at.append(time.perf_counter())
        family = {which: times.main_kind(which)[0] for which in range(len(times.row))}
        for position in range(len(batches)):
            choose(times, times.of_batch(position), family, 2)
        at.append(time.perf_counter())
    names = ("plan_s", "results_s", "bounds_s", "choice_s")
    found = {name: round(b - a, 3) for name, a, b in zip(names, at, at[1:], strict=False)}
    return {"candidates": len(times.row), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    command()  # what is not known yet is compiled
    found = {"batches": BATCHES, **parts(), "command_s": round(min(command() for _ in range(3)), 2)}
    found |= {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "cores": os.cpu_count()}
    print(json.dumps(found, indent=2))
    if parser.parse_args().write:
        RESULT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
