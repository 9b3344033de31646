"""Version numbers as `packaging.version` compares them, where that is not installed."""

from __future__ import annotations

import functools
import re
from typing import Any


@functools.total_ordering
class Version:
    """A version number, as far as numbers go."""

    def __init__(self, text: Any) -> None:
        self.text = str(text)
        match = re.match(r"v?(\d+(?:\.\d+)*)", self.text)
        if match is None:
            raise ValueError(f"Invalid version: {self.text!r}")
        self.release = tuple(int(part) for part in match[1].split("."))
        self.base_version = match[1]
        self.public = self.text.partition("+")[0]
        self.local = self.text.partition("+")[2] or None
        self.is_prerelease = bool(re.search(r"(a|b|rc|dev)\d*", self.public[len(match[0]) :]))
        self.major, self.minor, self.micro = (*self.release, 0, 0, 0)[:3]

    def _key(self) -> tuple[tuple[int, ...], bool]:
        release = self.release
        while release and release[-1] == 0:
            release = release[:-1]
        return release, not self.is_prerelease

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text
