"""`occupancy audit`: every compiled kernel of a Triton cache, ranked by what can be gained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options, progress
from occupancy_cli.cli.show import show


def audit(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A Triton cache, or TorchInductor's. Left out: TRITON_CACHE_DIR, else ~/.triton/cache.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="Judge all kernels on this GPU. Left out: each on the target it was built for."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Rows of the table; 0: all.")] = 40,
    hw_profiles: options.ProfilesOption = None,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Find the compiled kernels in a Triton cache that could gain most from one more CTA per SM.

    Rank: (resident warps that one more CTA per SM would add, relative to now) x (the part of the binding resource that
    may stay); kernels that cannot launch come first. Reads files only: no GPU, no Triton, nothing of the cache runs.
    Entries that are corrupt, partial or built for other devices are counted and named.
    """
    from occupancy_cli.answers.audit import audit_cache
    from occupancy_cli.report.view import View

    profile = None if gpu is None else options.resolve_gpu(gpu, hw_profiles)
    with progress.reading_cache() as show_progress:
        report = audit_cache(folder, profile, hw_profiles or [], show_progress)
    show(report, output_format, View(most_rows=top or None))
