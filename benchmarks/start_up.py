"""How long the command takes to start, against `import typer, rich, pydantic, yaml` in the same interpreter and run.

    python benchmarks/start_up.py            # prints the table
    python benchmarks/start_up.py --write    # and keeps it in benchmarks/results/start_up.json

CPU seconds, of the process and its children: what else the machine does then counts little. The commands take turns and
their medians are compared. With `--cuxray PYTHON`, an interpreter that has cuxray, its `occupancy` takes turns too.
Byte code is written to a folder of its own and warm, as after an installation; results of compiles are warm too. Also
says which heavy packages each command imported: Triton and torch belong to none of these. From 0.27 on typer itself
imports pydantic to check the options of whatever command runs.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "start_up.json"
CALC = ["calc", "--gpu", "5090", "--threads", "128", "--regs", "168", "--shared", "61568"]
CUXRAY = "cuxray occupancy"
CUXRAY_CALC = ["--arch", "sm_120", "--threads", "128", "--regs", "168", "--smem", "61568"]
BASELINE = "import typer, rich, pydantic, yaml"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    BASELINE: ["-c", BASELINE],
    "import occupancy_cli": ["-c", "import occupancy_cli"],
    "load_gpu and occupancy": [
        "-c",
        "from occupancy_cli import load_gpu, occupancy;"
        "occupancy(load_gpu('5090'), threads_per_cta=128, registers_per_thread=168, shared_bytes=61568)",
    ],
    "occupancy --help": ["-m", "occupancy_cli", "--help"],
    "occupancy calc": ["-m", "occupancy_cli", *CALC],
    "occupancy gpus h200": ["-m", "occupancy_cli", "gpus", "h200"],
    "occupancy analyze, warm": ["-m", "occupancy_cli", "analyze"],
    "occupancy check, warm": ["-m", "occupancy_cli", "check"],
    "occupancy recommend, warm": ["-m", "occupancy_cli", "recommend", "--batch", "80"],
}
HEAVY = ("triton", "torch", "numpy", "pydantic")


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """CPU time of a command: the process with the children that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy_imports(arguments: list[str], environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    return [name for name in HEAVY if name in modules]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cuxray", metavar="PYTHON", help="an interpreter that has cuxray")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    commands = {name: [sys.executable, *arguments] for name, arguments in COMMANDS.items()}
    if options.cuxray:
        commands[CUXRAY] = [str(Path(options.cuxray).with_name("cuxray")), "occupancy", *CUXRAY_CALC]
    with tempfile.TemporaryDirectory() as cache:
        folders = {"PYTHONPYCACHEPREFIX": cache, "OCCUPANCY_CACHE_DIR": str(Path(cache) / "results")}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **folders}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cpu_seconds(commands["occupancy analyze, warm"], environment)
        heavy = {name: heavy_imports(arguments, environment) for name, arguments in COMMANDS.items()}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(cpu_seconds(command, environment))
    imports_s = statistics.median(times[BASELINE])
    rows = {
        name: {
            "median_ms": round(1e3 * statistics.median(taken), 1),
            "least_ms": round(1e3 * min(taken), 1),
            "ratio_to_imports": round(statistics.median(taken) / imports_s, 2),
            "heavy_imports": heavy.get(name, []),
        }
        for name, taken in times.items()
    }
    print(f"{'command':34} {'CPU':>10} {'least':>10} {'x imports':>10}  heavy imports")
    for name, row in rows.items():
        imports = " ".join(row["heavy_imports"]) or "none"
        print(f"{name:34} {row['median_ms']:>7} ms {row['least_ms']:>7} ms {row['ratio_to_imports']:>10}  {imports}")
    if options.cuxray:
        ratio = rows["occupancy calc"]["median_ms"] / rows[CUXRAY]["median_ms"]
        print(f"occupancy calc: {ratio:.2f} x {CUXRAY}")
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        setting = {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "seconds": "CPU",
            "rounds": options.rounds,
            "typer": _version("typer"),
        }
        RESULT.write_text(json.dumps({"setting": setting, "commands": rows}, indent=2) + "\n")


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


if __name__ == "__main__":
    main()
