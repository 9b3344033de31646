"""Names of `triton.language` that some Triton no longer has, and which versions do.

Read from the released packages 3.4.0, 3.6.0, 3.7.1, 3.8.0 and 3.9.0 (`triton/language/__init__.py` and `core.py`); a
test holds the table against the Triton it runs with. 3.9 keeps `make_block_ptr` as a name that refuses to work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RemovedApi:
    """`last` is the newest version seen with it, `first_without` the oldest seen without, `instead` what to use."""

    last: str
    first_without: str
    instead: str


_BLOCK_POINTERS = RemovedApi("3.8", "3.9", "tl.make_tensor_descriptor")
REMOVED: Mapping[str, RemovedApi] = {
    "make_block_ptr": _BLOCK_POINTERS,
    "advance": _BLOCK_POINTERS,
    "async_task": RemovedApi("3.4", "3.6", "the warp_specialize argument of tl.range"),
    "constexpr_function": RemovedApi("3.4", "3.6", "triton.constexpr_function"),
}

_NO_ATTRIBUTE = re.compile(r"module 'triton\.language(?:\.core)?' has no attribute '(\w+)'")
_REFUSALS = {"Block pointers have been removed": "make_block_ptr"}


def explain(name: str, version: str) -> str:
    """A sentence on `tl.NAME` under Triton `version`, which lacks it."""
    known = REMOVED.get(name)
    if known is None:
        return f"tl.{name} is not in Triton {version}"
    return (
        f"tl.{name} is not in Triton {version}: versions up to {known.last} have it, "
        f"{known.first_without} and later do not; use {known.instead}, or one of those versions"
    )


def explain_failure(message: str, version: str) -> str | None:
    """As `explain`, for the text of a compile error that comes of a missing name; None for any other error."""
    for text, name in _REFUSALS.items():
        if text in message:
            return explain(name, version)
    match = _NO_ATTRIBUTE.search(message)
    return explain(match.group(1), version) if match else None
