"""What a compiled kernel's own text says of its time on one GPU, as it is kept and as a prediction reads it.

Apart from `kernel_record`, since the work of a CTA takes numpy.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from occupancy_cli.model.cta_work import CtaWork, Stream


@dataclass(frozen=True)
class Iterations:
    """Iterations of a CTA's main loop as an expression that a launch can be asked with, or the reason for none.

    `expression` reads arguments by name, pid0 to pid2 and programs0 to programs2; 0 for a kernel without a loop.
    `at_most` says that lengths which the kernel loads are taken to be as long as they can be.
    """

    expression: str | None
    at_most: bool = False
    reason: str = ""


@dataclass(frozen=True)
class KernelTimes:
    """The work of a CTA and its cycles on one GPU. `unread` names what the TTGIR has that was not understood, `note`
    says why the SASS was not read where it was not. `ir` is the TTGIR (`packed`), since what a CTA loads depends on the
    arguments of its launch; empty where there is none."""

    iterations: Iterations
    work: CtaWork
    unread: tuple[str, ...] = ()
    note: str = ""
    ir: str = ""


def at_launch(work: CtaWork, loads: CtaWork) -> CtaWork:
    """`work`, which was read for one launch of a kernel, with what the CTAs of another one load."""
    return dataclasses.replace(
        work,
        prologue_bytes=loads.prologue_bytes,
        bytes_per_iteration=loads.bytes_per_iteration,
        epilogue_bytes=loads.epilogue_bytes,
        dram_share=loads.dram_share,
        streams=loads.streams,
    )


def merged(given: CtaWork, read: CtaWork | None) -> CtaWork:
    """What the spec gives, and for the rest what was read from the kernel's own text.

    Bytes that someone gives stand for all that was read of that part of a CTA.
    """
    read = CtaWork() if read is None else read
    said = {f.name: v for f in dataclasses.fields(given) if (v := getattr(given, f.name)) != f.default}
    work = dataclasses.replace(read, **said)
    main = read.main or int(bool(said.keys() & _OF_ITERATIONS))
    parts = set()
    if not read.streams or said.keys() & {"prologue_bytes", "epilogue_bytes"}:
        parts.add(0)
    if main and (not read.streams or said.keys() & {"bytes_per_iteration", "unique_bytes_per_iteration"}):
        parts.add(main)
    kept = tuple(s for s in read.streams if s.part not in parts)
    told = tuple(s for s in _streams_of(work, main) if s.part in parts)
    return dataclasses.replace(work, main=main, streams=kept + told)


_OF_ITERATIONS = {
    "bytes_per_iteration", "tensor_flops_per_iteration", "fp32_flops_per_iteration", "pipeline_depth",
    "dependent_loads", "unique_bytes_per_iteration",
}  # fmt: skip


def _streams_of(work: CtaWork, main: int) -> tuple[Stream, ...]:
    """The bytes of the parts of a CTA as loads and a store, with as many sharers as they say."""
    found = []
    if work.prologue_bytes:
        found.append(Stream(0, -1, work.prologue_bytes, work.prologue_bytes, sharers=1.0))
    if main and work.bytes_per_iteration:
        amount, unique = work.bytes_per_iteration, work.unique_bytes_per_iteration
        found.append(Stream(main, -1, amount, amount, sharers=max(amount / unique, 1.0) if unique else 1.0))
    if work.epilogue_bytes:
        found.append(Stream(0, -1, work.epilogue_bytes, work.epilogue_bytes, writes=True, sharers=1.0))
    return tuple(found)
