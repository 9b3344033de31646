"""What a compiled kernel's own text says of its time on one GPU, as it is kept and as a prediction reads it.

Apart from `kernel_record`, since the work of a CTA takes numpy.
"""

from __future__ import annotations

import base64
import dataclasses
import zlib
from dataclasses import dataclass

from occupancy_cli.model.cta_work import CtaWork


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


def packed(text: str) -> str:
    """A text as letters that take less room; `unpacked` gives it back."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpacked(text: str) -> str:
    """The text that was packed."""
    return zlib.decompress(base64.b85decode(text)).decode()


def at_launch(work: CtaWork, loads: CtaWork) -> CtaWork:
    """`work`, which was read for one launch of a kernel, with what the CTAs of another one load."""
    return dataclasses.replace(
        work,
        prologue_bytes=loads.prologue_bytes,
        bytes_per_iteration=loads.bytes_per_iteration,
        epilogue_bytes=loads.epilogue_bytes,
        loads_by_axes=loads.loads_by_axes,
        dram_share=loads.dram_share,
    )


def merged(given: CtaWork, read: CtaWork | None) -> CtaWork:
    """What the spec gives, and for the rest what was read from the kernel's own text."""
    if read is None:
        return given
    said = {f.name: v for f in dataclasses.fields(given) if (v := getattr(given, f.name)) != f.default}
    return dataclasses.replace(read, **said)
