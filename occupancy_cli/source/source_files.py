"""How a kernel and its file are named, and source text with a memory of what was read: an answer is of one state.

    split_reference("a:b.py:k")     ("a:b.py", "k")
    read_source(path)               the bytes of a file, as `Path.read_bytes`
    texts_read("/repo/k.py")        {"9f86d0..."}: a hash for each text of it that this run has read

What a file says of its launches is read in this process, and its kernel is loaded by another, later. The compile
service holds the two against each other, and ends a run whose file was edited in between.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Set as AbstractSet
from pathlib import Path

_FILE_END = re.compile(r"(?<=\.py):|(?<=\.ipynb):")
_read: dict[str, set[str]] = {}


def split_reference(text: str) -> tuple[str, str]:
    """The file or module and the kernel of `path/file.py:kernel`, either of which may be missing.

    A file's name may have colons and parentheses of its own: where one ends in .py or .ipynb, what follows it is the
    kernel. Else that is what stands behind the last colon before a call.
    """
    ends = [found.start() for found in _FILE_END.finditer(text)]
    at = next((end for end in ends if Path(text[:end]).expanduser().is_file()), ends[0] if ends else -1)
    if at < 0:
        at = text.partition("(")[0].rfind(":")
    if at < 0 or text.endswith((".py", ".ipynb")):
        return text, ""
    return text[:at], text[at + 1 :]


def read_source(path: Path) -> bytes:
    """The bytes of a file of source; raises as `Path.read_bytes` does."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    # A worker knows a file by the name it was given, which may go through links.
    for name in {os.path.abspath(path), os.path.realpath(path)}:  # noqa: PTH100
        _read.setdefault(name, set()).add(digest)
    return data


def texts_read(name: str) -> AbstractSet[str]:
    """A hash for each text of the file `name` that was read since `begin_run`; empty for a file that was not."""
    return _read.get(name, frozenset())


def begin_run() -> None:
    """Forget what earlier runs of this process have read: files may have changed since, as they may."""
    _read.clear()
