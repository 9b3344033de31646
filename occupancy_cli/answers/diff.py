"""`diff`: two explanations beside each other, config by config, buffer by buffer, line by line.

Both sides are Reports of `explain`, made now, in another environment, or saved earlier: what is compared is what they
say. Configs are of one kind where the names that both have, have the same values; two that a person names by their
values are compared whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from occupancy_cli.answers.map_changes import buffer_changes
from occupancy_cli.errors import InputError
from occupancy_cli.report.diff_parts import ConfigDiff, Diff, FigureChange, HolderChange
from occupancy_cli.report.explain_parts import RegisterHolder, RegisterUse
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.part_values import Scalar
from occupancy_cli.report.report import Report

_OF_RESOURCES = ("shared_bytes", "registers_per_thread", "spill_bytes", "num_warps")


def compared(before: Report, after: Report, names: tuple[str, str]) -> Diff:
    """The Diff of two Reports of `explain`; `names` is what to call the sides.

    Raises `InputError` where a side has no kernel, or they have no config in common.
    """
    one, other = _kernel(before, names[0]), _kernel(after, names[1])
    pairs, only_before, only_after = paired(one.configs, other.configs)
    if not pairs:
        raise InputError(
            "the two sides have no config in common",
            where=f"{names[0]}, {names[1]}",
            hint="Name one on each side by its values: `occupancy diff BLOCK=64 BLOCK=128`.",
        )
    notes = [f"{name}: {note}" for name, side in zip(names, (before, after), strict=True) for note in side.notes]
    return Diff(
        kernel=one.name if one.name == other.name else f"{one.name}, {other.name}",
        before=names[0],
        after=names[1],
        configs=[_config_diff(left, right) for left, right in pairs],
        only_before=[values_of(config) for config in only_before],
        only_after=[values_of(config) for config in only_after],
        notes=notes,
    )


def _kernel(report: Report, name: str) -> Kernel:
    if len(report.kernels) != 1:
        raise InputError(
            f"holds {len(report.kernels)} kernels, not one",
            where=name,
            hint="Write one by `occupancy explain KERNEL --format json`.",
        )
    return report.kernels[0]


def values_of(config: Config) -> dict[str, Scalar]:
    """Every name that may tell a config from the others, with its value."""
    values = {**config.shapes, **config.knobs, **config.config}
    return {n: v for n, v in values.items() if v is not None}


def paired(
    before: Sequence[Config], after: Sequence[Config]
) -> tuple[list[tuple[Config, Config]], list[Config], list[Config]]:
    """Configs that are the same on both sides, in the order of the first, and those of one side alone.

    One config on each side is a pair whatever its values.
    """
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], [], []
    left = list(after)
    pairs, alone = [], []
    for config in before:
        mine = values_of(config)
        same = next((o for o in left if all(mine.get(n, v) == v for n, v in values_of(o).items())), None)
        if same is None:
            alone.append(config)
        else:
            left.remove(same)
            pairs.append((config, same))
    return pairs, alone, left


def _config_diff(before: Config, after: Config) -> ConfigDiff:
    buffers = []
    if before.shared_map is not None and after.shared_map is not None:
        buffers = buffer_changes(before.shared_map, after.shared_map)
    registers = list(_holders(before.register_use, after.register_use))
    figures = list(_figures(before, after))
    return ConfigDiff(
        before=values_of(before),
        after=values_of(after),
        figures=figures,
        buffers=buffers,
        registers=registers,
        same=not buffers and not registers and all(f.before == f.after for f in figures),
    )


def _figures(before: Config, after: Config) -> Iterator[FigureChange]:
    yield FigureChange(name="status", before=before.status, after=after.status)
    for name in _OF_RESOURCES:
        yield FigureChange(
            name=name, before=getattr(before.resources, name, None), after=getattr(after.resources, name, None)
        )
    peaks = [None if c.register_use is None else c.register_use.peak_live for c in (before, after)]
    yield FigureChange(name="peak_live_registers", before=peaks[0], after=peaks[1])
    sides = [c.occupancy for c in (before, after)]
    for name in ("ctas_per_sm", "warps_per_sm"):
        yield FigureChange(name=name, before=getattr(sides[0], name, None), after=getattr(sides[1], name, None))
    limited = [None if o is None else ", ".join(o.limited_by) for o in sides]
    yield FigureChange(name="limited_by", before=limited[0], after=limited[1])
    for resource in ("shared", "registers", "warps"):
        limits = [None if o is None else o.limits.get(resource) for o in sides]
        yield FigureChange(name=f"limits.{resource}", before=limits[0], after=limits[1])
    waves = [None if c.launch is None else c.launch.waves for c in (before, after)]
    yield FigureChange(name="waves", before=waves[0], after=waves[1])
    yield FigureChange(name="predicted_time_us", before=before.predicted_time_us, after=after.predicted_time_us)


def _holders(before: RegisterUse | None, after: RegisterUse | None) -> Iterator[HolderChange]:
    """Lines that hold another number of registers at the peak, those that changed most first."""
    if before is None or after is None:
        return
    # By the text of the innermost line: lines move, and not every nvdisasm says from where a function is called.
    sides: list[dict[str, tuple[int, RegisterHolder]]] = []
    for use in (before, after):
        held: dict[str, tuple[int, RegisterHolder]] = {}
        for each in use.holders:
            key = each.source.text if each.source else ""
            held[key] = (held.get(key, (0, each))[0] + each.registers, held.get(key, (0, each))[1])
        sides.append(held)
    found = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        one, other = sides[0].get(key), sides[1].get(key)
        numbers = (one[0] if one else 0, other[0] if other else 0)
        some = other or one
        if numbers[0] != numbers[1] and some is not None:
            value, source = some[1].value, some[1].source
            found.append(HolderChange(value=value, before=numbers[0], after=numbers[1], source=source))
    yield from sorted(found, key=lambda h: (-abs(h.after - h.before), h.value))
