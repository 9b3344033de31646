"""Coverage-guided fuzzing of what reads strangers' text: spec files, expressions, config tables.

    python validation/fuzz_spec.py -runs=30000 -max_len=4096 -seed=1    # needs atheris, pydantic and pyyaml
    python validation/fuzz_spec.py -runs=30000 -seed=1 -seconds=200    # without atheris: drawn at random, unguided

Each case is one text: a whole file, a known spec with pieces replaced, an expression, or a JSON table. It comes to a
spec, a number or a table, or to one `InputError`; any other exception is printed with its traceback and ends the run
with exit code 1. The slowest case is reported, since a text must not hang the tool either (`LONGEST_S` is a bound on
harm: a case over it counts as a failure). Results: fuzz_spec.md.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["occupancy_cli"]) if atheris else contextlib.nullcontext():
    from occupancy_cli.errors import InputError
    from occupancy_cli.plan.kernel_input import parse_argument, parse_ref, split_axes
    from occupancy_cli.spec.config_tables import read_table
    from occupancy_cli.spec.expressions import parse_expression
    from occupancy_cli.spec.kernel_spec import load_spec
    from occupancy_cli.spec.settings import parse_range, parse_settings

LONGEST_S = 5.0
ROOT = Path(__file__).parents[1]
SPECS = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "kernels").glob("*.yaml"))] + [
    (ROOT / "examples" / "config_tables" / "grouped_gemm.yaml").read_text(encoding="utf-8")
]
TABLE = next((ROOT / "examples" / "config_tables" / "tables").glob("*H200.json")).read_text(encoding="utf-8")
NAMES = {"batch": 80, "heads": 16, "BLOCK_H": 32, "x": 0, "y": -3, "z": 2.5, "t": True, "text": "bf16"}
PIECES = (
    *("9**9**9", "ceil_div(", ")", "next_power_of_2(", "min(", "max(", "clamp(", "abs(", "batch", "x", "y", "z", "t"),
    *(
        " if ",
        " else ",
        " and ",
        " or ",
        "not ",
        "//",
        "/",
        "%",
        "*",
        "+",
        "-",
        "==",
        "<",
        "(",
        "(((((((((",
        ",",
        "text",
    ),
    *("0", "1", "2", "1e308", "9223372036854775807", "-", "9" * 400, "nan", "inf", "true", "lambda: 0", "[0]", ".a"),
    *("__import__('os')", "x.y", "f'{x}'", "'a'", "\n", "\\", "\x00", "é", "x:=1", "...", "None", "0x", "1_0", "1j"),
)
YAML_PIECES = (
    *("&a ", "*a", "!!python/object/apply:os.system ", "? ", "<<: *a", ".nan", ".inf", "[" * 50, "{" * 50, "- " * 50),
    *(
        "|\n",
        ">-\n",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\t",
        "\u2028",
        "null",
        "~",
        "2001-01-01",
        "0o17",
        "1:2:3",
        "FILL: x",
    ),
    *("configs: {table: x, key: y}\n", "shapes: {a: 1}\n", "derived: {a: a}\n", "followed_by: [{}]\n", "schema: 1\n"),
)


class Drawn:
    """What stands in for atheris's provider of values where there is none: values drawn at random."""

    def __init__(self, raw: bytes) -> None:
        self._chance = random.Random(raw)

    def ConsumeIntInRange(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        return self._chance.randint(low, high)

    def ConsumeUnicodeNoSurrogates(self, most: int) -> str:
        """At most so many characters, half of them ASCII."""
        return "".join(
            chr(self._chance.choice((self._chance.randrange(128), self._chance.randrange(0xD800))))
            for _ in range(self._chance.randint(0, most))
        )


def expression(data: Any) -> str:
    """A text made of pieces of expressions and free text."""
    parts = []
    for _ in range(data.ConsumeIntInRange(1, 12)):
        if data.ConsumeIntInRange(0, 4):
            parts.append(PIECES[data.ConsumeIntInRange(0, len(PIECES) - 1)])
        else:
            parts.append(data.ConsumeUnicodeNoSurrogates(data.ConsumeIntInRange(0, 12)))
    return "".join(parts)


def spec_text(data: Any) -> str:
    """A known spec with lines dropped, moved, or replaced in part, or free text."""
    if data.ConsumeIntInRange(0, 9) == 0:
        return data.ConsumeUnicodeNoSurrogates(4000)
    lines = SPECS[data.ConsumeIntInRange(0, len(SPECS) - 1)].splitlines(keepends=True)
    for _ in range(data.ConsumeIntInRange(1, 4)):
        at = data.ConsumeIntInRange(0, len(lines) - 1)
        kind = data.ConsumeIntInRange(0, 5)
        if kind == 0:
            lines[at] = ""
        elif kind == 1:
            lines[at] = lines[at].partition(":")[0] + ": " + expression(data) + "\n"
        elif kind == 2:
            lines[at] = lines[at].partition(":")[0] + ': "' + expression(data) + '"\n'
        elif kind == 3:
            lines[at] += YAML_PIECES[data.ConsumeIntInRange(0, len(YAML_PIECES) - 1)]
        elif kind == 4:
            column = data.ConsumeIntInRange(0, len(lines[at]))
            piece = YAML_PIECES[data.ConsumeIntInRange(0, len(YAML_PIECES) - 1)]
            lines[at] = lines[at][:column] + piece + lines[at][column:]
        else:
            other = data.ConsumeIntInRange(0, len(lines) - 1)
            lines[at], lines[other] = lines[other], lines[at]
    return "".join(lines)


def table_text(data: Any) -> str:
    """A config table with a piece cut out and another put in."""
    first = data.ConsumeIntInRange(0, len(TABLE))
    last = min(len(TABLE), first + data.ConsumeIntInRange(0, 40))
    return TABLE[:first] + expression(data) + TABLE[last:]


def run_case(kind: int, data: Any, folder: Path) -> str:
    """Do one case; which outcome it had. Exceptions other than `InputError` go through."""
    if kind == 0:
        path = folder / "k.yaml"
        path.write_text(spec_text(data), encoding="utf-8")
        load_spec(path)
        return "spec"
    if kind == 1:
        text = expression(data)
        parsed = parse_expression(text, "x.yaml:1")
        value = parsed(NAMES, "x.yaml:1")
        if isinstance(value, float) and value != value:
            raise AssertionError(f"{text!r} came to NaN")
        return "number"
    if kind == 2:
        path = folder / "t.json"
        path.write_text(table_text(data), encoding="utf-8")
        read_table(path, {})
        return "table"
    text = expression(data)
    {3: parse_argument, 4: lambda t: parse_settings([t]), 5: split_axes, 6: lambda t: parse_range(t, "--batch")}.get(
        kind, lambda t: parse_ref(t, folder)
    )(text)
    return "flag"


def main() -> None:
    asked = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
    runs, seconds = int(asked.get("runs", 30_000)), float(asked.get("seconds", 3600))
    outcomes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    slowest = [0.0, ""]
    started = time.monotonic()
    warnings.simplefilter("error")  # a warning of Python's own parser would be printed too
    folder = Path(tempfile.mkdtemp(prefix="fuzz-spec-"))

    def one(raw: bytes) -> None:
        data = atheris.FuzzedDataProvider(raw) if atheris else Drawn(raw)
        kind = min(data.ConsumeIntInRange(0, 15), 15)
        kind = 0 if kind < 6 else 1 if kind < 9 else 2 if kind < 11 else kind - 8
        began = time.monotonic()
        name = ("spec file", "expression", "config table")[kind] if kind < 3 else "command-line text"
        kinds[name] += 1
        try:
            outcomes[run_case(kind, data, folder)] += 1
        except InputError as refused:
            assert str(refused)
            outcomes["one InputError"] += 1
        except BaseException:  # noqa: BLE001 - whatever it is, it is reported
            traceback.print_exc()
            print(f"FAILED: {name}, case {sum(kinds.values())}, raw {raw[:200]!r}", flush=True)
            os._exit(1)
        took = time.monotonic() - began
        if took > float(slowest[0]):
            slowest[:] = [took, name]
        if took > LONGEST_S:
            print(f"FAILED: {name} took {took:.1f} s", flush=True)
            os._exit(1)
        if sum(kinds.values()) >= runs or time.monotonic() - started > seconds:
            print(f"cases: {sum(kinds.values()):,} ({', '.join(f'{n}s {c:,}' for n, c in kinds.most_common())})")
            print(f"came to: {', '.join(f'{n} {c:,}' for n, c in outcomes.most_common())}; any other exception: 0")
            spent = time.monotonic() - started
            print(f"slowest case: {float(slowest[0]) * 1000:.0f} ms ({slowest[1]}); {spent:.0f} s in all")
            sys.stdout.flush()
            os._exit(0)

    if atheris is None:
        for number in range(runs):
            one(f"{asked.get('seed', 1)}:{number}".encode())
    # libFuzzer starts from short inputs, which make dull cases: it is given random ones to start from.
    corpus = folder / "corpus"
    corpus.mkdir()
    source = random.Random(1)
    for i in range(300):
        (corpus / f"{i}").write_bytes(source.randbytes(source.randrange(16, 3000)))
    options = [a for a in sys.argv if not a.startswith(("-runs=", "-seconds="))]
    atheris.Setup([*options, "-len_control=0", "-verbosity=0", str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
