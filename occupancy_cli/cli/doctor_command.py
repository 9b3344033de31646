"""`occupancy doctor`: what this installation has, and what each missing part disables."""

from __future__ import annotations

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show


def doctor(output_format: options.FormatOption = options.Format.table) -> None:
    """Versions of Python, Triton and ptxas, Triton's internals, cubin tools, cache, GPU: what is there, what is not.

    Exit code 2 when kernels cannot be compiled here, 0 otherwise.
    """
    from occupancy_cli.answers.installation import installation

    show(installation(), output_format)
