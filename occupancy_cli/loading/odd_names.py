"""Kernel files whose names no compiler takes: bytes that are no UTF-8, control characters, line ends.

Triton hands a file's name on to LLVM and ptxas, which write it into what they make. What such a file is compiled under
is its name with those characters as escapes; `__file__`, and where it imports from, stay as they are.
"""

from __future__ import annotations

import importlib._bootstrap_external as import_system
import linecache
from typing import Any


def printable(name: str) -> str:
    r"""`name` with what is not printed as escapes: "a\nb" becomes "a\\x0ab"."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def install() -> None:
    """Compile files under printable names from now on, those that imports find too."""
    loader: Any = import_system.SourceLoader
    compiled = loader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        shown = printable(path) if isinstance(path, str) else path
        if shown != path:  # `inspect` finds the lines of a name that is no file there
            text = import_system.decode_source(data)
            linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
        return compiled(self, data, shown, **options)

    loader.source_to_code = source_to_code
