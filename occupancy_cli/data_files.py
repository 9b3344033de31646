"""Where the files that ship beside the code lie: `hw_profiles/` and `kernels/`.

In a checkout (and an editable install) they are the repository's top-level folders; in a wheel they are inside the
package under `_shipped/`.
"""

from __future__ import annotations

from pathlib import Path

from occupancy_cli.errors import OccupancyError

DEFAULT_GPU = "rtx-pro-6000"
"""The shipped profile that a question without a GPU is about."""

_PACKAGE = Path(__file__).resolve().parent


def shipped_dir(name: str) -> Path:
    """The folder `name` ("hw_profiles" or "kernels") as installed; an `OccupancyError` when the install lacks it."""
    for candidate in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise OccupancyError(
        f"the shipped folder {name!r} is missing", where=str(_PACKAGE), hint="Reinstall occupancy-cli."
    )
