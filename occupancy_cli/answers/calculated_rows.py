"""`occupancy calc --input`: many kernels as JSON Lines, one answer a line, in the order of the input.

A line is a `CalculatedRow` of the Report's schema, its occupancy spelt as in every Report, without `slack`.

Input keys, all whole numbers: `threads` (or `num_warps`), `regs` (null or absent: not known), `shared`, and optionally
`static_shared`, `carveout`, `num_ctas`, `tmem`; the names of the Python API (`threads_per_cta`, `registers_per_thread`,
`shared_bytes`, ...) are taken too. `gpu` names another GPU for one row; `id` is any JSON value but null, and comes back
as it is. A key that a row does not have takes the value of the command's option of that name.

A row that cannot be answered gives `{"row": N, "error": "..."}` in its place, so that no row is lost: output line k
answers the k-th input line that is not blank, and `row` is its line number. Rows are read and answered in blocks, so a
pipe of any length is fine; the arithmetic is `occupancy_cli.model.occupancy_columns`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from occupancy_cli.errors import InputError, OccupancyError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.json_reader import MAX_LINE_BYTES

ROWS_PER_BLOCK = 16_384

# Every name that a row's key may have -> the argument of `occupancy`.
_KEYS: Mapping[str, str] = {
    "threads": "threads_per_cta",
    "threads_per_cta": "threads_per_cta",
    "regs": "registers_per_thread",
    "registers_per_thread": "registers_per_thread",
    "shared": "shared_bytes",
    "shared_bytes": "shared_bytes",
    "static_shared": "static_shared_bytes",
    "static_shared_bytes": "static_shared_bytes",
    "carveout": "carveout_bytes",
    "carveout_bytes": "carveout_bytes",
    "num_ctas": "num_ctas",
    "tmem": "tmem_columns",
    "tmem_columns": "tmem_columns",
}
_OTHER_KEYS = ("num_warps", "gpu", "id")
_ALL_KEYS = frozenset((*_KEYS, *_OTHER_KEYS))
_MAY_BE_NULL = ("registers_per_thread", "carveout_bytes")
# The order of a row's columns from here on, and the value of those that neither row nor option gives.
_COLUMNS = (
    "threads_per_cta",
    "registers_per_thread",
    "shared_bytes",
    "static_shared_bytes",
    "carveout_bytes",
    "tmem_columns",
    "num_ctas",
)
_INT = frozenset((int,))
_REST: Mapping[str, int] = {
    "registers_per_thread": -1,
    "static_shared_bytes": 0,
    "carveout_bytes": -1,
    "tmem_columns": 0,
    "num_ctas": 1,
}


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


# Python would take NaN and Infinity, and would write them back in an `id`.
_decode = json.JSONDecoder(parse_constant=_no_number).decode


@dataclass
class Count:
    """How many rows were answered, and how many of them with an error."""

    rows: int = 0
    errors: int = 0


def answer_rows(
    lines: Iterable[str], defaults: Mapping[str, Any], gpu: GpuProfile, load: Callable[[str], GpuProfile], count: Count
) -> Iterator[str]:
    """One JSON text, without a line end, for each line of `lines` that is not blank.

    `defaults` has arguments of `occupancy` for rows that leave them out, `gpu` answers rows that name none, `load`
    finds the others. `count` is updated as rows are answered.
    """
    known: dict[str, GpuProfile | OccupancyError] = {}
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line and not line.isspace())
    while block := list(islice(numbered, ROWS_PER_BLOCK)):
        yield from _answer_block(block, defaults, gpu, load, known, count)


def _read_row(row: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `occupancy` that `row` and `defaults` give; an `InputError` that names the key at fault."""
    if not isinstance(row, dict):
        raise InputError(f'an object such as {{"threads": 128, "regs": 168, "shared": 61568}} is expected, not {row!r}')
    arguments: dict[str, Any] = {}
    for key, value in row.items():
        if key in _KEYS:
            name = _KEYS[key]
            if name in arguments:
                raise InputError("is given twice, under two names", where=key)
            if value is None and name not in _MAY_BE_NULL:
                raise InputError("null is not a value here", where=key)
            arguments[name] = value
        elif key not in _OTHER_KEYS:
            raise unknown_name("key", key, _ALL_KEYS)
    if "num_warps" in row:
        warps = row["num_warps"]
        if isinstance(warps, bool) or not isinstance(warps, int) or warps < 1:
            raise InputError(f"a whole number of at least 1 is expected, not {warps!r}", where="num_warps")
        if arguments.setdefault("threads_per_cta", 32 * warps) != 32 * warps:
            raise InputError(f"{warps} warps are not {arguments['threads_per_cta']} threads", where="num_warps")
    merged = {**defaults, **arguments}
    for name, keys in (("threads_per_cta", "'threads' (or 'num_warps')"), ("shared_bytes", "'shared'")):
        if name not in merged:
            raise InputError(f"the key {keys} is missing")
    merged.setdefault("registers_per_thread", None)
    return merged


def _answer_block(
    block: list[tuple[int, str]],
    defaults: Mapping[str, Any],
    default_gpu: GpuProfile,
    load: Callable[[str], GpuProfile],
    known: dict[str, GpuProfile | OccupancyError],
    count: Count,
) -> list[str]:
    answers = [""] * len(block)
    # (GPU, CTAs per cluster) -> the rows that ask for it: position, line number, id, and the columns.
    groups: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    gpus = {default_gpu.id: default_gpu}
    given = {name: -1 if value is None else value for name, value in defaults.items()}
    fixed = tuple(given.get(name, _REST.get(name)) for name in _COLUMNS)
    layouts: dict[tuple[Any, ...], tuple[str | None, ...] | None] = {}

    def fail(position: int, number: int, row: Any, error: OccupancyError) -> None:
        given_as, identity = error.where, {}
        if isinstance(row, dict):
            given_as = next((key for key in row if _KEYS.get(key) == error.where), error.where)
            identity = {"id": row["id"]} if row.get("id") is not None else {}
        text = ". ".join(t for t in (f"{given_as}: {error.problem}" if given_as else error.problem, error.hint) if t)
        answers[position] = json.dumps({"row": number, **identity, "error": text})
        count.errors += 1

    def refuse(position: int, error: OccupancyError) -> None:
        number, line = block[position]
        fail(position, number, _decode(line), error)

    def place(position: int, number: int, row: dict[str, Any], columns: list[int]) -> None:
        gpu = _gpu(row["gpu"], load, known) if "gpu" in row else default_gpu
        gpus[gpu.id] = gpu
        group = (gpu.id, columns.pop())
        groups.setdefault(group, []).append((position, number, row.get("id"), *columns))

    for position, (number, line) in enumerate(block):
        if len(line) > MAX_LINE_BYTES:
            fail(position, number, None, InputError(f"a line of more than {MAX_LINE_BYTES:,} characters"))
            continue
        try:
            row = _decode(line)
        except (ValueError, RecursionError) as error:
            fail(position, number, None, InputError(f"is not JSON: {error}"))
            continue
        try:
            if type(row) is dict:
                keys = tuple(row)
                if keys not in layouts:
                    layouts[keys] = _layout(keys)
                layout = layouts[keys]
                if layout is not None:
                    columns: list[Any] = [
                        value if key is None else row[key] for key, value in zip(layout, fixed, strict=True)
                    ]
                    # Whole numbers in every column (a bool is not one), and no -1 that would pass for "not given"; what
                    # is wrong with the others, and with numbers out of range, is said below.
                    if (
                        _INT.issuperset(map(type, columns))
                        and (columns[1] >= 0 or layout[1] is None)
                        and (columns[4] >= 0 or layout[4] is None)
                        and columns[6] >= 1
                    ):
                        place(position, number, row, columns)
                        continue
            arguments = _read_row(row, defaults)
            columns = [arguments.get(name, _REST.get(name)) for name in _COLUMNS]
            _checked(_gpu(row["gpu"], load, known) if "gpu" in row else default_gpu, arguments)
            place(position, number, row, [-1 if v is None else v for v in columns])
        except OccupancyError as error:
            fail(position, number, row, error)
    for (gpu_id, num_ctas), rows in groups.items():
        if rows:
            _answer_group(gpus[gpu_id], num_ctas, rows, answers, refuse)
    count.rows += len(block)
    return answers


def _layout(keys: tuple[Any, ...]) -> tuple[str | None, ...] | None:
    """Where a row with these keys has each column, None for a column it leaves out.

    None instead for keys that take more than picking: unknown ones, warps, one value under two names.
    """
    if "num_warps" in keys:
        return None
    where: dict[str, str] = {}
    for key in keys:
        if key in _KEYS and _KEYS[key] not in where:
            where[_KEYS[key]] = key
        elif key not in ("gpu", "id"):
            return None
    return tuple(where.get(name) for name in _COLUMNS)


def _gpu(name: Any, load: Callable[[str], GpuProfile], known: dict[str, GpuProfile | OccupancyError]) -> GpuProfile:
    """The GPU that a row names, looked up once; the look-up's error for every row that names it."""
    if not isinstance(name, str):
        raise InputError(f"a name is expected, not {name!r}", where="gpu")
    if name not in known:
        try:
            known[name] = load(name)
        except OccupancyError as error:
            known[name] = error
    found = known[name]
    if isinstance(found, OccupancyError):
        raise found
    return found


def _checked(gpu: GpuProfile, arguments: Mapping[str, Any]) -> None:
    from occupancy_cli.model.cta_demands import cta_demands

    cta_demands(gpu.limits, **arguments)  # which refuses what no launch can have


_HUGE = 2**62
# `report.calculation_parts.CalculatedRow` and the `Occupancy` in it, spelt out: a call of the encoder for every row
# would take longer than all the rest. A test reads what is written against the schema of that part.
_ROW = (
    '{"row": %d, %s"gpu": %s, "fits": %s, "over_bytes": %d, "reason": %s, "occupancy": {'
    '"ctas_per_sm": %d, "warps_per_sm": %d, "max_warps_per_sm": %d, "percent": %.2f, '
    '"limits": {"shared": %s, "registers": %s, "warps": %d, "ctas": %d%s}, "limited_by": %s, '
    '"next_cta": {"ctas_per_sm": %d, "reachable": %s, "binding": %s, '
    '"shared_bytes": %s, "shared_bytes_less": %s, "registers_per_thread": %s, "registers_per_thread_less": %s, '
    '"warps_per_cta": %s, "warps_per_cta_less": %s%s}, "unknown": %s}}'
)


def _answer_group(
    gpu: GpuProfile,
    num_ctas: int,
    rows: list[tuple[Any, ...]],
    answers: list[str],
    fail: Callable[[int, OccupancyError], None],
) -> None:
    """Fill `answers` for the rows of one GPU and one cluster size."""
    from occupancy_cli.model import occupancy_columns as batch
    from occupancy_cli.model.cluster_rules import cluster_refusal, cluster_unknown
    from occupancy_cli.model.occupancy import UNKNOWN_REGISTERS_REASON, refusal

    positions, numbers, ids, *columns = map(list, zip(*rows, strict=True))
    # Numbers beyond the arrays' 64 bits are beyond any launch: marked as such here, refused below by their own value.
    if max(map(max, columns)) >= _HUGE or min(map(min, columns)) <= -_HUGE:
        columns = [[v if -_HUGE < v < _HUGE else -_HUGE for v in column] for column in columns]
    threads, registers, shared, static, carveout, tmem = columns
    found = batch.batch_occupancy(
        gpu,
        threads_per_cta=threads,
        registers_per_thread=registers,
        shared_bytes=shared,
        static_shared_bytes=static,
        carveout_bytes=carveout,
        num_ctas=num_ctas,
        tmem_columns=tmem,
    )
    gpu_name = json.dumps(gpu.id)
    names = [
        json.dumps([n for i, n in enumerate(batch.LIMIT_NAMES) if bits >> i & 1])
        for bits in range(1 << len(batch.LIMIT_NAMES))
    ]
    unknown: dict[str, str] = {}
    if num_ctas > 1 and not cluster_refusal(gpu.limits, num_ctas):
        unknown["cluster"] = cluster_unknown(gpu.limits, num_ctas)
    with_registers = json.dumps(unknown)
    without_registers = json.dumps({"registers": UNKNOWN_REGISTERS_REASON, **unknown})
    cluster = "" if num_ctas <= 1 else ', "cluster": null' if unknown else ', "cluster": 0'
    refused = cluster == ', "cluster": 0'
    max_ctas, max_warps = gpu.limits.max_ctas_per_sm, gpu.limits.max_warps_per_sm
    warps_per_cta = found.warps_per_cta.tolist()
    limits = {name: values.tolist() for name, values in found.limits.items()}
    next_tmem_columns = found.next_tmem_columns.tolist()
    no_limit, none = batch.NO_LIMIT, batch.NONE
    for i, (ctas, possible, next_shared, next_registers, next_warps, warps_per_sm, percent, bits, over) in enumerate(
        zip(
            found.ctas_per_sm.tolist(),
            found.possible.tolist(),
            found.next_shared_bytes.tolist(),
            found.next_registers.tolist(),
            found.next_warps.tolist(),
            found.warps_per_sm.tolist(),
            found.percent.tolist(),
            found.limited_by.tolist(),
            found.over_bytes.tolist(),
            strict=True,
        )
    ):
        number, identity = numbers[i], ids[i]
        reason = '""'
        if not possible or not ctas:
            asked = {
                "threads_per_cta": rows[i][3],
                "registers_per_thread": None if rows[i][4] == -1 else rows[i][4],
                "shared_bytes": rows[i][5],
                "static_shared_bytes": rows[i][6],
                "carveout_bytes": None if rows[i][7] == -1 else rows[i][7],
                "num_ctas": num_ctas,
                "tmem_columns": rows[i][8],
            }
            try:
                reason = json.dumps(refusal(gpu, **asked))
            except OccupancyError as error:
                fail(positions[i], error)
                continue
        by_shared, by_registers = limits["shared"][i], limits["registers"][i]
        more, next_tmem, reachable = "", "", ctas < max_ctas and not refused and next_shared != none
        if tmem[i]:
            more, columns_left = f', "tmem": {limits["tmem"][i]}', next_tmem_columns[i]
            at_most, less = _next(columns_left, tmem[i])
            next_tmem = f', "tmem_columns": {at_most}, "tmem_columns_less": {less}'
            reachable = reachable and columns_left != none
        answers[positions[i]] = _ROW % (
            number,
            "" if identity is None else f'"id": {json.dumps(identity)}, ',
            gpu_name,
            "true" if ctas else "false",
            over,
            reason,
            ctas,
            warps_per_sm,
            max_warps,
            percent,
            "null" if by_shared == no_limit else by_shared,
            "null" if by_registers == no_limit else by_registers,
            limits["warps"][i],
            limits["ctas"][i],
            more + cluster,
            names[bits],
            ctas + 1,
            "true" if reachable else "false",
            names[bits],
            *_next(next_shared, shared[i]),
            *_next(next_registers, registers[i]),
            *_next(next_warps, warps_per_cta[i]),
            next_tmem,
            without_registers if registers[i] == -1 else with_registers,
        )


def _next(at_most: int, now: int) -> tuple[int | str, int | str]:
    """What the next CTA asks of a resource at most, and how much less than now that is; -1: no value brings it."""
    if at_most < 0:
        return "null", "null"
    return at_most, now - at_most if now > at_most else 0
