"""Texts as the cache keeps them: compressed, as letters."""

from __future__ import annotations

import base64
import zlib


def packed(text: str) -> str:
    """A text as letters that take less room; `unpacked` gives it back."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpacked(text: str) -> str:
    """The text that was packed."""
    return zlib.decompress(base64.b85decode(text)).decode()
