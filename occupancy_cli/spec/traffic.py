"""What a server sees: a mix of batches, and the lengths of the requests in one.

`--mix 48:0.2,80:0.5,96:0.3` is the share of steps at each batch. `--lengths` is the tokens of each request: a list
(`512,512,64`), a file (numbers by comma, space or line, or a JSON list), or `uniform:LOW:HIGH`, which spreads evenly
between the two, in an order that mixes long and short.
"""

from __future__ import annotations

import re
from pathlib import Path

from occupancy_cli.errors import InputError
from occupancy_cli.json_reader import parse_json, read_text

MAX_REQUESTS = 100_000
_MAX_FILE_BYTES = 5_000_000
_GOLDEN = 0.6180339887498949  # its multiples, modulo 1, fill an interval evenly whatever their number


def parse_mix(text: str) -> dict[int, float]:
    """Batch -> share of steps, shares brought to a sum of 1."""
    form = "Write BATCH:SHARE,BATCH:SHARE, such as 48:0.2,80:0.5,96:0.3."
    mix: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*:\s*(\d+(?:\.\d+)?|\.\d+)\s*", part)
        if match is None or int(match[1]) < 1:
            raise InputError(f"{part.strip()!r} is no batch with a share", where=f"--mix {text}", hint=form)
        if int(match[1]) in mix:
            raise InputError(f"batch {match[1]} is given twice", where=f"--mix {text}", hint=form)
        mix[int(match[1])] = float(match[2])
    total = sum(mix.values())
    if total <= 0:
        raise InputError("all shares are 0", where=f"--mix {text}", hint=form)
    return {batch: share / total for batch, share in mix.items()}


def parse_lengths(text: str, batch: int | None = None) -> tuple[int, ...]:
    """Tokens of each request. `uniform:LOW:HIGH` needs `batch`, the number of requests."""
    where = f"--lengths {text}"
    match = re.fullmatch(r"uniform:(\d{1,9}):(\d{1,9})", text)
    if match:
        low, high = int(match[1]), int(match[2])
        if low > high or batch is None:
            problem = f"{low} is above {high}" if low > high else "the number of requests is not known"
            raise InputError(problem, where=where, hint="Write --batch 80 --lengths uniform:64:512.")
        return tuple(low + int((high - low + 1) * ((i * _GOLDEN) % 1.0)) for i in range(batch))
    numbers = _numbers(text, where)
    if not numbers or len(numbers) > MAX_REQUESTS or min(numbers) < 0:
        raise InputError(
            f"{len(numbers):,} lengths", where=where, hint=f"1 to {MAX_REQUESTS:,} of them, 0 or more each."
        )
    if batch is not None and batch != len(numbers):
        raise InputError(f"{len(numbers)} lengths for a batch of {batch}", where=where)
    return tuple(numbers)


def _numbers(text: str, where: str) -> list[int]:
    hint = "Give 512,512,64, a file of numbers, or uniform:LOW:HIGH."
    given = text
    if not re.fullmatch(r"[\d\s,]+", text):
        path = Path(text)
        if not path.is_file():
            raise InputError("is neither numbers nor a file", where=where, hint=hint)
        given = read_text(path, _MAX_FILE_BYTES)
        if given.lstrip().startswith("["):
            loaded = parse_json(given, where)
            if not all(isinstance(n, int) and not isinstance(n, bool) and abs(n) < 10**9 for n in loaded):
                raise InputError("the list holds something that is no length", where=where, hint=hint)
            return list(loaded)
    parts = [p for p in re.split(r"[\s,]+", given) if p]
    wrong = next((p for p in parts if not re.fullmatch(r"\d{1,9}", p)), None)
    if wrong is not None:
        raise InputError(f"{wrong[:40]!r} is no length", where=where, hint=hint)
    return [int(p) for p in parts]
