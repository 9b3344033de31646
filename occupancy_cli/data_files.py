"""Where the files that ship beside the code lie: `hw_profiles/`, `kernels/`, and of `docs/` the guide.

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
    """The folder `name` ("hw_profiles", "kernels", "docs") as installed; an `OccupancyError` where it is missing."""
    for candidate in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise OccupancyError(
        f"the shipped folder {name!r} is missing", where=str(_PACKAGE), hint="Reinstall occupancy-cli."
    )


def guide_text() -> str:
    """The page for assistants, docs/assistants.md."""
    return (shipped_dir("docs") / "assistants.md").read_text(encoding="utf-8")
