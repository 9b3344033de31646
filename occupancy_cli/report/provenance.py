"""What something written by this tool was made by: the command as it can be typed again, and the date."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provenance:
    """The command, and the date (ISO)."""

    command: str
    date: str
