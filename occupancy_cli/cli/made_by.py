"""By what command and when something is written: for the head of a file or the foot of a page."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from collections.abc import Sequence

from occupancy_cli.report.provenance import Provenance


def made_by(arguments: Sequence[str] | None = None) -> Provenance:
    """The command with these arguments (left out: those of this run), and today, or SOURCE_DATE_EPOCH's day.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.datetime.now(datetime.timezone.utc)
    if given.isdecimal():
        now = datetime.datetime.fromtimestamp(int(given), datetime.timezone.utc)
    words = sys.argv[1:] if arguments is None else arguments
    return Provenance(shlex.join(["occupancy", *words]), f"{now:%Y-%m-%d}")
