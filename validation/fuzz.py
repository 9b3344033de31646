"""Fuzzing whole commands: mutated specs, references, kernel files, notebooks, times files, profiles, baselines, project
files, files of rows and cache files.

    python validation/fuzz.py                                # 10,000 inputs, seed 1
    python validation/fuzz.py --inputs 2000 --seed 7 --only times
    python validation/fuzz.py --inputs 1000000 --seconds 450 --jobs 16

Each input is a command line and the files that it names, in a folder of its own: `check spec.yaml`, `compare
times.jsonl`, `gpus --hw-profiles ...`. A command must end with exit code 0, 1, 2, 130 or 141, print no traceback, nor
that an error is the tool's own (which its last net says of what nobody thought of), and end within `LIMIT_S` seconds
of processor time; the slowest is reported. What breaks a rule is run once more with OCCUPANCY_DEBUG=1, printed, and
kept in --keep; exit code 1 then.

A process that has imported the tool and compiled one small kernel forks for each input, so that an input costs
milliseconds; with --jobs several such processes share the inputs, which stay the same. Answers of the compiler are
those of that kernel: what is tried is what strangers write, not Triton.
`fuzz_spec.py` fuzzes what reads specs, in process and guided by coverage. Results: fuzz.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from occupancy_cli.answers.measure import measure  # noqa: E402
from occupancy_cli.cli import app  # noqa: E402
from occupancy_cli.compile import compile_service  # noqa: E402
from occupancy_cli.compile.compile_service import CompileService, Performed  # noqa: E402
from occupancy_cli.compile.worker_messages import (  # noqa: E402
    Compile,
    Compiled,
    Describe,
    Described,
    Failed,
    Request,
    Warm,
    Warmed,
)
from occupancy_cli.gpu.profiles import load_gpu  # noqa: E402
from occupancy_cli.plan.kernel_input import read_kernel_input  # noqa: E402
from testing.split_sum import FormulaTimer, machine, write_kernel  # noqa: E402

LIMIT_S = 10.0
"""Processor seconds that a command may take: the machine may be busy, so not those of the clock."""
ALLOWED = (0, 1, 2, 130, 141)
PROJECT = """
[tool.occupancy]
include = ["split_sum.yaml"]
gpus = ["rtx-pro-6000", "h200"]
baseline = "occupancy.lock.json"
allow_unknown = ["not-read"]

[tool.occupancy.budgets]
max_registers_per_thread = 255
max_spill_bytes = 0

[tool.occupancy.kernels."split_sum.py:split_sum"]
use = [{ BLOCK = 256 }]

[tool.occupancy.kernels."split_sum.py:split_sum".budgets]
max_shared_bytes = 65536
"""
PIECES = (
    *("0", "-1", "1", "3", "1e308", "1e309", "-0.0", ".nan", ".inf", "NaN", "Infinity", "9223372036854775808"),
    *(
        "9" * 400,
        "null",
        "true",
        "[]",
        "{}",
        '""',
        "''",
        "[[[[[[",
        "{{{{{{",
        "&a [*a]",
        "*a",
        "<<: *a",
        "!!python/name:os",
    ),
    *("!!binary aGk=", "2001-01-01", "0o17", "1:2:3", "0x", "1_0", "|\n  x\n", ">-\n", "---\n", "...\n", "%YAML 9\n"),
    *("\t", "\0", "\x1b[31m", "\u2028", "\ufeff", "é", "\U0001f600", "\\", '"', "'", "#", ":", ": ", "- ", ",", "\n\n"),
    *("__import__('os')", "lambda: 0", "9**9**9", "x.y", "batch // 0", "batch % 0", "ceil_div(1, 0)", "min()", "1 if"),
    *("/", "..", "../../etc/passwd", "/dev/zero", "/dev/full", ".", "~", "$HOME", "-", "--help", "--format=json", "*"),
)
REFERENCES = (
    *("split_sum.py:split_sum", "split_sum.yaml", "split_sum.py", "split_sum", ".", "sparse_mla_decode", "a.b:c", ":k"),
    *(
        "split_sum.py:",
        "split_sum.py:combine",
        "split_sum.py:inputs",
        "split_sum.py:none",
        "",
        "/",
        "x" * 300,
        "\x1b[1m:k",
    ),
    *(
        "split_sum.py::split_sum",
        "split_sum.py:split_sum:8",
        "-dash.py:k",
        "missing.yaml",
        "/dev/null",
        "loop",
        "os:path",
    ),
)
ARGUMENTS = ("--arg", "--set", "--grid", "--gpu", "--batch", "--format", "--mix", "--lengths", "--jobs", "--timeout")


class Answers:
    """What the compiler said of the small kernel, given again for whatever is asked of it."""

    def __init__(self) -> None:
        self.described: dict[str, Described] = {}
        self.compiled: dict[str, list[Compiled]] = {}
        self.real = compile_service.perform

    def record(self, message: Request, *rest: Any) -> Performed:
        """Ask the compiler, and remember."""
        done = self.real(message, *rest)
        if isinstance(done.answer, Described):
            self.described[done.answer.description.name] = done.answer
        if isinstance(done.answer, Compiled) and isinstance(message, Compile):
            self.compiled.setdefault(message.request.source.kernel, []).append(done.answer)
        return done

    def give(self, message: Request, *_rest: Any) -> Performed:
        """One of the remembered answers, as if to this request."""
        answer: Any = Failed("import", f"{type(message).__name__}: no answer is recorded")
        if isinstance(message, Warm):
            answer = Warmed()
        elif isinstance(message, Describe) and message.source.kernel in self.described:
            known = self.described[message.source.kernel]
            answer = dataclasses.replace(known, source=message.source, arch=message.target.arch)
        elif isinstance(message, Compile) and message.request.source.kernel in self.compiled:
            asked, digest = message.request, message.request.time_on.digest if message.request.time_on else None
            known = [a for a in self.compiled[asked.source.kernel] if a.record.times or digest is None]
            chosen = known[int(asked.key()[:8], 16) % len(known)]
            times = {} if digest is None else dict.fromkeys([digest], next(iter(chosen.record.times.values())))
            record = dataclasses.replace(chosen.record, times=times)
            answer = dataclasses.replace(chosen, key=asked.key(), arch=asked.target.arch, record=record)
        return Performed(answer)


def run(arguments: Sequence[str]) -> int:
    """The command in this process; its exit code."""
    sys.argv = ["occupancy", *arguments]
    try:
        app.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def prepared(folder: Path) -> Answers:
    """The small kernel with its spec, times, a calibration, a profile and a filled cache in `folder`."""
    answers = Answers()
    compile_service.perform = answers.record  # type: ignore[assignment]
    os.environ["OCCUPANCY_CACHE_DIR"] = str(folder / "cache")
    spec = write_kernel(folder)
    with CompileService(jobs=2) as service:
        measure(
            read_kernel_input(str(spec)), load_gpu("h200"), service, machine(FormulaTimer()), {},
            folder / "times.jsonl", kernel_text="split_sum.yaml", batches=(8, 64),
        )  # fmt: skip
    shutil.copy(ROOT / "hw_profiles" / "h200-sxm.yaml", folder / "mine.yaml")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "rows.jsonl").write_text(
        '{"threads": 128, "regs": 168, "shared": 61568}\n{"num_warps": 4, "shared": 0}\n'
    )
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": part.splitlines(keepends=True)}
             for part in (folder / "split_sum.py").read_text().split("\n\n\n")]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "split_sum.ipynb").write_text(json.dumps(notebook, indent=1))
    os.chdir(folder)
    commands = (
        ["analyze", "split_sum.yaml", "--time"],
        ["check", "--write-baseline", "occupancy.lock.json"],
        ["check"],
        ["recommend", "split_sum.yaml", "--batch", "8,64", "--gpu", "h200"],
        ["sweep", "split_sum.yaml", "--batch", "8:16"],
        ["calibrate", "times.jsonl", "-o", "calibration.yaml"],
        ["compare", "times.jsonl", "--calibration", "calibration.yaml"],
        ["knobs", "split_sum.py"],
        ["init", "split_sum.py:split_sum", "-o", "-"],
        ["calc", "--threads", "128", "--regs", "168", "--shared", "61568"],
        ["calc", "--input", "rows.jsonl"],
        ["gpus"],
        ["gpus", "show", "h200"],
        ["knobs", "split_sum.ipynb"],
        ["cache"],
    )
    for command in commands:  # in both forms, so that what they import is there for all
        for form in (["--format", "json"], []):
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                code = run([*command, *form])
            assert code in (0, 1), (command, code)
    compile_service.perform = answers.give  # type: ignore[assignment]
    return answers


def mutated(text: str, chance: random.Random) -> str:
    """A text with a few of its lines, words or characters replaced, moved, doubled or dropped."""
    for _ in range(chance.randint(1, 4)):
        lines = text.splitlines(keepends=True) or [""]
        at = chance.randrange(len(lines))
        line, piece = lines[at], chance.choice(PIECES)
        where = chance.randint(0, len(line))
        match chance.randrange(8):
            case 0:
                lines[at] = ""
            case 1:
                lines[at] = line.partition(":")[0] + ": " + piece + "\n"
            case 2:
                lines[at] = line[:where] + piece + line[where:]
            case 3:
                words = line.split(" ")
                words[chance.randrange(len(words))] = piece
                lines[at] = " ".join(words)
            case 4:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 5:
                lines.insert(chance.randrange(len(lines)), line * chance.choice((1, 1, 1, 50)))
            case 6:
                lines[at] = (
                    line[:where]
                    + chr(chance.choice((0, 9, 27, 34, 39, 58, 92, 123, 0x2028, 0xFFFD)))
                    + line[where + 1 :]
                )
            case _:
                lines[at] = "".join(str(chance.choice((0, -1, 7, 65537, 1 << 40))) if c.isdigit() else c for c in line)
        text = "".join(lines)
    return text


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes flipped, cut off, or put in."""
    flipped = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 20))):
        at = chance.randrange(max(1, len(flipped)))
        match chance.randrange(4):
            case 0 | 1:
                if flipped:
                    flipped[min(at, len(flipped) - 1)] ^= 1 << chance.randrange(8)
            case 2:
                del flipped[at : at + chance.choice((1, 100, 1 << 30))]
            case _:
                flipped[at:at] = chance.randbytes(chance.choice((1, 16, 4096)))
    return bytes(flipped)


def written(path: Path, text: str, chance: random.Random) -> None:
    """A text in a file, one time in ten with damaged bytes."""
    content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(damaged(content, chance) if chance.randrange(10) == 0 else content)


def of_spec(folder: Path, chance: random.Random) -> list[str]:
    """A mutated spec."""
    written(folder / "split_sum.yaml", mutated((folder / "split_sum.yaml").read_text(), chance), chance)
    return chance.choice(
        [
            ["analyze", "split_sum.yaml", "--time"],
            ["analyze", "split_sum.yaml", "--format", "json"],
            [
                "check",
                "split_sum.yaml",
                "--format",
                chance.choice(("table", "json", "markdown", "github", "junit", "sarif")),
            ],
            ["recommend", "split_sum.yaml", "--batch", "8,64"],
            ["sweep", "split_sum.yaml", "--batch", "8:64", "--format", "csv"],
        ]
    )


def of_reference(folder: Path, chance: random.Random) -> list[str]:
    """A mutated name of a kernel, with options whose values are mutated."""
    (folder / "loop").symlink_to("loop")
    name = chance.choice(REFERENCES)
    name = mutated(name, chance).replace("\0", "") if chance.randrange(2) else name
    command = chance.choice(("analyze", "check", "knobs", "init", "recommend", "sweep", "calc", "gpus", "audit"))
    if len(Path(os.path.realpath(folder / name)).parts) <= 3:
        name = f"x{name}"  # to look through the whole machine takes its time
    rest = []
    for _ in range(chance.randrange(3)):
        value = mutated(
            chance.choice(("x_ptr=*fp32", "n=i32=4096", "BLOCK=64,128", "8:64", "80=0.5", "h200", "4")), chance
        )
        rest += [chance.choice(ARGUMENTS), value.replace("\0", "")]
    return [command, name, *rest]


def of_kernel_file(folder: Path, chance: random.Random) -> list[str]:
    """A mutated kernel file or notebook, read and not run."""
    name = chance.choice(("split_sum.py", "split_sum.py", "split_sum.ipynb"))
    written(folder / name, mutated((folder / name).read_text(), chance), chance)
    return chance.choice(
        [["knobs", name], ["init", f"{name}:split_sum", "-o", "-"], ["knobs", ".", "--format", "json"]]
    )


def of_baseline(folder: Path, chance: random.Random) -> list[str]:
    """A mutated baseline or project file of `check`."""
    name = chance.choice(("occupancy.lock.json", "occupancy.lock.json", "pyproject.toml"))
    written(folder / name, mutated((folder / name).read_text(), chance), chance)
    form = ["--format", chance.choice(("table", "json", "markdown", "github", "gitlab", "junit", "sarif", "jsonl"))]
    return chance.choice(
        [
            ["check", *form],
            ["check", "split_sum.yaml", "--baseline", "occupancy.lock.json", *form],
            ["check", "--update-baseline"],
            ["check", "--config", "pyproject.toml", "--tolerance", "registers_per_thread=5", *form],
        ]
    )


def of_rows(folder: Path, chance: random.Random) -> list[str]:
    """A mutated file of rows for `calc`."""
    written(folder / "rows.jsonl", mutated((folder / "rows.jsonl").read_text(), chance), chance)
    return ["calc", "--input", "rows.jsonl"]


def of_times(folder: Path, chance: random.Random) -> list[str]:
    """A mutated file of times, or calibration."""
    name = chance.choice(("times.jsonl", "times.jsonl", "calibration.yaml"))
    written(folder / name, mutated((folder / name).read_text(), chance), chance)
    return chance.choice(
        [
            ["calibrate", "times.jsonl", "-o", "new.yaml"],
            ["compare", "times.jsonl", "--calibration", "calibration.yaml"],
            ["recommend", "split_sum.yaml", "--batch", "8", "--gpu", "h200", "--calibration", "calibration.yaml"],
        ]
    )


def of_profile(folder: Path, chance: random.Random) -> list[str]:
    """A mutated GPU profile."""
    profiles = folder / "profiles"
    profiles.mkdir()
    written(profiles / "mine.yaml", mutated((folder / "mine.yaml").read_text(), chance), chance)
    own = ["--hw-profiles", "profiles"]
    return chance.choice(
        [
            ["gpus", *own],
            ["gpus", "mine", "--format", "json", *own],
            ["calc", "--gpu", "mine", "--threads", "128", "--regs", "168", "--shared", "61568", *own],
            ["analyze", "split_sum.yaml", "--gpu", "mine", "--time", *own],
            ["recommend", "split_sum.yaml", "--batch", "8", "--gpu", "mine", *own],
        ]
    )


def of_cache(folder: Path, chance: random.Random) -> list[str]:
    """A damaged cache: bytes of its file, or values in its tables."""
    (file,) = (folder / "cache").glob("results-*.sqlite")
    if chance.randrange(2):
        file.write_bytes(damaged(file.read_bytes(), chance))
    else:
        with contextlib.closing(sqlite3.connect(file)) as base, contextlib.suppress(sqlite3.Error):
            column = chance.choice(("key", "depends", "payload", "digest", "triton", "seconds", "made"))
            rows = base.execute(f"SELECT key, {column} FROM results").fetchall()
            key, value = chance.choice(rows)
            new = chance.choice((None, -1, 1e308, b"\xff\0", "x", mutated(str(value), chance)))
            base.execute(f"UPDATE OR REPLACE results SET {column} = ? WHERE key = ?", (new, key))
            if chance.randrange(3) == 0:
                base.execute(f"PRAGMA user_version = {chance.choice((0, 1, 99, -1))}")
            base.commit()
    return chance.choice(
        [["cache"], ["cache", "stats"], ["cache", "verify"], ["analyze", "split_sum.yaml"], ["check", "split_sum.yaml"]]
    )


KINDS: dict[str, Callable[[Path, random.Random], list[str]]] = {
    "spec": of_spec,
    "reference": of_reference,
    "kernel file": of_kernel_file,
    "times": of_times,
    "profile": of_profile,
    "baseline": of_baseline,
    "rows": of_rows,
    "cache": of_cache,
}


def tried(folder: Path, arguments: list[str], debug: str = "") -> tuple[int, float, str]:
    """Exit code (less than 0: a signal), processor seconds and all that was printed, of one command in `folder`."""
    said = folder.with_suffix(".out")
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.environ.update(OCCUPANCY_CACHE_DIR=str(folder / "cache"), OCCUPANCY_DEBUG=debug, COLUMNS="100")
            out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S) + 1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
            code = run(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException as bad:  # noqa: BLE001 - whatever it is, it is reported
            os.write(2, f"Traceback: {bad!r}\n".encode(errors="replace"))
            code = 99
        os._exit(code & 0xFF)
    until = time.monotonic() + 20 * LIMIT_S  # what sleeps takes no processor time
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            _, status, used = os.wait4(pid, 0)
            break
        time.sleep(0.001)
    code = os.waitstatus_to_exitcode(status)
    return code, used.ru_utime + used.ru_stime, said.read_text(errors="replace") if said.exists() else ""


@dataclasses.dataclass
class Tally:
    """What came of some inputs."""

    kinds: Counter[str] = dataclasses.field(default_factory=Counter)
    ends: Counter[int] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "none")

    def add(self, other: Tally) -> None:
        """Take in what came of others."""
        self.kinds += other.kinds
        self.ends += other.ends
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)


def fuzzed(work: tuple[int, argparse.Namespace, Path]) -> Tally:
    """Try every `jobs`-th input, from the `first` on; those that fail are printed and kept."""
    first, asked, base = work
    tally, started = Tally(), time.monotonic()
    for number in range(first, asked.inputs, asked.jobs):
        if time.monotonic() - started > asked.seconds:
            break
        chance = random.Random(f"{asked.seed}:{number}")
        kind = chance.choice(asked.only or tuple(KINDS))
        folder = base.parent / f"{number}"
        shutil.copytree(base, folder)
        os.chdir(folder)  # what an input names is looked for here
        arguments = KINDS[kind](folder, chance)
        code, seconds, said = tried(folder, arguments)
        tally.kinds[kind] += 1
        tally.ends[code] += 1
        tally.slowest = max(tally.slowest, (seconds, f"{kind}, input {number}"))
        why = next((word for word in ("Traceback", "error of occupancy itself") if word in said), "")
        if not why and code not in ALLOWED:
            why = f"ended with {code}"
        if why:
            tally.failures[why] += 1
            shown = tried(folder, arguments, "1")[2] if code in ALLOWED else said
            shutil.copytree(folder, asked.keep / f"{asked.seed}-{number}", symlinks=True, dirs_exist_ok=True)
            print(f"FAILED: input {number}, {kind}: {arguments!r}: {code}\n{shown[-1500:]}", flush=True)
        os.chdir(base)
        shutil.rmtree(folder)
        folder.with_suffix(".out").unlink(missing_ok=True)
        tries = sum(tally.kinds.values())
        if first == 0 and tries % 1000 == 0:
            print(f"{tries:,} inputs of a job, {time.monotonic() - started:.0f} s: {dict(tally.ends)}", flush=True)
    return tally


def main() -> int:
    """Fuzz; what came of it is printed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="At most so long.")
    parser.add_argument("--jobs", type=int, default=1, help="Inputs at once.")
    parser.add_argument("--only", choices=tuple(KINDS), action="append")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="Where inputs that fail are left.")
    asked = parser.parse_args()
    asked.keep = asked.keep.absolute()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="occupancy-fuzz-") as name:
        base = Path(name) / "base"
        base.mkdir()
        prepared(base)
        started = time.monotonic()
        with multiprocessing.get_context("fork").Pool(asked.jobs) as pool:
            for done in pool.imap_unordered(fuzzed, [(first, asked, base) for first in range(asked.jobs)]):
                tally.add(done)
        took = time.monotonic() - started
        os.chdir(ROOT)
    print(f"inputs: {tally.kinds.total():,} ({', '.join(f'{n} {c:,}' for n, c in tally.kinds.most_common())})")
    ends = ", ".join(f"{c}: {n:,}" for c, n in sorted(tally.ends.items()))
    print(f"ended with: {ends}; failures: {dict(tally.failures) or 0}")
    print(f"slowest: {tally.slowest[0]:.1f} s of processor time ({tally.slowest[1]}); seed {asked.seed}")
    print(f"{took:.0f} s, {asked.jobs} at once")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
