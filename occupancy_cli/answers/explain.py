"""`explain`: where each config's shared memory, registers and time go and what its accesses take, by source line.

The figures are the compiler's own: the map is that of its allocation pass, lives of registers are those that nvdisasm
finds in the machine code. What other launch options would do to registers is compiled, never estimated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from occupancy_cli.answers.access_parts import AccessParts, access_parts
from occupancy_cli.answers.analyze import (
    AnalyzedPoint,
    compile_points,
    kernel_part,
    notes_of,
    pruned_points,
    stop_above,
    toolchain,
)
from occupancy_cli.answers.explained import register_use_part, shared_map_part
from occupancy_cli.answers.report_parts import gpu_part, scalars
from occupancy_cli.answers.time_parts import line_times_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import Point, points
from occupancy_cli.plan.prepared_kernel import prepare
from occupancy_cli.report import schema
from occupancy_cli.report.explain_parts import OptionTried
from occupancy_cli.spec.settings import Setting, parse_value, split_outside_brackets

MOST_TRIED = 2
"""For so many configs other launch options are tried unasked: each is a compile."""
MOST_FOLLOWED = 8
"""For so many configs accesses and time are followed unasked: each takes a second or two."""
_MOST_WARPS = 32


def explain(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    chosen: Sequence[str] = (),
    *,
    full: bool = False,
    timed: bool = False,
    try_others: bool = True,
    follow: bool = True,
) -> schema.Report:
    """A Report whose configs have their maps; `chosen` are `NAME=VALUE,...` that pick configs, all without one.

    `full` compiles configs over the cap to the end, `timed` predicts times, `try_others` compiles a config with other
    launch options where few are asked for, `follow` tells their accesses and their time by line.

    Raises `InputError` for a name or value that no config has.
    """
    kernel = prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)
    everything = points(kernel, gpu, stop_above(gpu, full=full))
    picked = [to_explain(point) for point in chosen_points(everything, chosen)]
    analyzed = compile_points(kernel, gpu, service, picked, timed=timed)
    part = kernel_part(kernel, gpu, analyzed, pruned_points(kernel, service, picked))
    few = try_others and len(picked) <= MOST_TRIED
    followed = follow and len(picked) <= MOST_FOLLOWED
    tried = [_options_tried(gpu, service, each) if few else [] for each in analyzed]
    configs = [
        explained_config(config, gpu, each, options, follow=followed)
        for config, each, options in zip(part.configs, analyzed, tried, strict=True)
    ]
    notes = notes_of(service, analyzed)
    left_out = [
        *(["accesses and time by line are followed"] if follow and not followed else []),
        *(["what num_warps and maxnreg would do to registers is compiled"] if try_others and not few else []),
    ]
    if left_out:
        notes.append(f"{' and '.join(left_out)} for few configs: name one by --config")
    return schema.Report(
        command="explain",
        toolchain=toolchain(service, analyzed),
        gpu=gpu_part(gpu),
        kernels=[replace(part, configs=configs)],
        notes=notes,
        interrupted=service.interrupted,
    )


def to_explain(point: Point) -> Point:
    """The point, its main kernel to be compiled with an explanation."""
    return replace(point, main=replace(point.main, request=replace(point.main.request, explain=True)))


def explained_config(
    config: schema.Config, gpu: GpuProfile, analyzed: AnalyzedPoint, options: list[OptionTried], *, follow: bool
) -> schema.Config:
    """A config's part with its map and its registers, where its compile has them; with `follow` its accesses and its
    time by line too."""
    outcome = analyzed.outcomes[0]
    if outcome.explanation is None or outcome.resources is None:
        return config
    read = outcome.explanation.read()
    accesses, times = AccessParts([], []), None
    if follow:
        accesses = access_parts(read, outcome.resources, analyzed.point.main)
        times = line_times_of(read, outcome.resources, analyzed.point.main, gpu)
    return replace(
        config,
        shared_map=shared_map_part(read.shared_map, read.texts),
        register_use=register_use_part(read, outcome.resources),
        options_tried=options,
        accesses=accesses.found,
        line_times=times,
        notes=[*config.notes, *([read.note] if read.note else []), *accesses.notes],
    )


def values_of(point: Point) -> dict[str, Any]:
    """Every name that may tell a point from the others, with its value."""
    return {**point.shapes, **point.knobs, **point.config}


def chosen_points(everything: list[Point], chosen: Sequence[str]) -> list[Point]:
    """The points that one of `chosen` picks, each `NAME=VALUE,...`; all of them where nothing is chosen."""
    if not chosen:
        return everything
    known: dict[str, list[Any]] = {}
    for point in everything:
        for name, value in values_of(point).items():
            if value not in known.setdefault(name, []):
                known[name].append(value)
    picked: list[Point] = []
    for text in chosen:
        wanted = _pairs(text, known)
        found = [p for p in everything if all(values_of(p).get(n) == v for n, v in wanted.items())]
        if not found:
            raise InputError(
                "no config has these values together",
                where=f"--config {text}",
                hint="`occupancy analyze` lists the configs.",
            )
        picked += [p for p in found if p not in picked]
    return picked


def _pairs(text: str, known: Mapping[str, list[Any]]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for part in split_outside_brackets(text):
        name, equals, value = part.strip().partition("=")
        if not equals or not value:
            raise InputError(
                f"{part.strip()!r} is no NAME=VALUE",
                where=f"--config {text}",
                hint="Write --config BLOCK_T=16,num_warps=4.",
            )
        if name not in known:
            raise unknown_name("name of a config", name, known, where=f"--config {text}")
        wanted[name] = parse_value(value)
        if wanted[name] not in known[name]:
            raise InputError(
                f"no config has {name} {value}",
                where=f"--config {text}",
                hint=f"{name} is {', '.join(map(str, known[name][:20]))}. Others are set by --set {name}={value}.",
            )
    return wanted


def _options_tried(gpu: GpuProfile, service: CompileService, analyzed: AnalyzedPoint) -> list[OptionTried]:
    """The config compiled with twice and half the warps, and with as many registers as one CTA more leaves a thread."""
    resources = analyzed.outcomes[0].resources
    if resources is None or resources.registers_per_thread is None:
        return []
    warps = analyzed.point.config.get("num_warps")
    changes: list[dict[str, Any]] = []
    if isinstance(warps, int):
        changes += [{"num_warps": n} for n in (warps * 2, warps // 2) if 1 <= n <= _MOST_WARPS]
    at_most = occupancy_of(gpu, resources).next_cta.registers_per_thread
    if at_most is not None and 24 <= at_most < resources.registers_per_thread:
        changes.append({"maxnreg": at_most // 8 * 8})
    requests = [
        replace(
            analyzed.point.main.request,
            options=tuple({**dict(analyzed.point.main.request.options), **change}.items()),
            explain=False,
        )
        for change in changes
    ]
    found = []
    for change, outcome in zip(changes, service.compile_all(requests), strict=True):
        if outcome.resources is None:
            found.append(OptionTried(change=scalars(change), reason=outcome.message))
            continue
        occupancy = occupancy_of(gpu, outcome.resources)
        found.append(
            OptionTried(
                change=scalars(change),
                registers_per_thread=outcome.resources.registers_per_thread,
                spill_bytes=outcome.resources.spill_bytes,
                shared_bytes=outcome.resources.shared_bytes,
                ctas_per_sm=occupancy.ctas_per_sm,
                warps_per_sm=occupancy.warps_per_sm,
                reason=occupancy.reason,
            )
        )
    return found
