"""What the parts of a Report are made of: values that any cell may hold, exit codes, and fields of several lines."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

Scalar = int | float | bool | str | None

EXIT_OK, EXIT_VIOLATION, EXIT_UNDECIDED, EXIT_INTERRUPTED = 0, 1, 2, 130


def prose(default: Any = dataclasses.MISSING) -> Any:
    """A field whose text may have several lines, such as what a compiler said."""
    return field(default=default, metadata={"prose": True})
