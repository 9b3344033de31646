"""Blocks of the documents, run as they stand: files that a page writes, commands with their output, Python.

```python title="scale.py"      a file that the page's later commands find, in the page's own folder
```console                      `$ command` and what it prints on a terminal of 100 columns; a line `...` stands
                                for any lines. A block without output is run too, and must print nothing.
```python                       run in the page's folder; `expression  # value` holds, its value before any colon
```shell                        not run here (a GPU, an installation): its options of `occupancy` exist
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 100
_FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')
_AS_TYPED = 'occupancy() { "$PYTHON" -m occupancy_cli "$@"; }; python() { "$PYTHON" "$@"; }; '


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is (or ""), its text, how far it is indented."""

    language: str
    file: str
    text: str
    indent: str

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command of a console block with the output shown."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            at = next((i for i, line in enumerate(lines) if not line.endswith("\\")), 0)
            yield "\n".join(lines[: at + 1]), "\n".join(lines[at + 1 :]).strip("\n")


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    found = []
    for indent, language, about, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        title = _TITLE.search(about)
        found.append(Block(language, title[1] if title else "", textwrap.dedent(text), indent))
    return found


def printed(command: str, folder: Path, env: dict[str, str] | None = None) -> str:
    """What a command of a shell prints on a terminal of 100 columns, without colours, errors too."""
    main, worker = pty.openpty()
    fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    given = {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": str(COLUMNS), "PYTHON": sys.executable}
    process = subprocess.Popen(
        ["bash", "-c", _AS_TYPED + command], stdout=worker, stderr=subprocess.PIPE,
        cwd=folder, env={**os.environ, **given, **(env or {})},
    )  # fmt: skip
    os.close(worker)
    text = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(main)
    _, errors = process.communicate()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text.decode().replace("\r\n", "\n"))
    if (process.returncode and not shown.strip()) or "Traceback" in errors.decode():
        shown += errors.decode()
    # The last line of a check says how long it took.
    lines = [re.sub(r"(unknown.*) in [\d.]+ s$", r"\1 in 4.2 s", line) for line in shown.splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def same(shown: str, said: str) -> bool:
    """Whether the output shown is what was printed, a line `...` of it standing for any lines."""
    pattern = "\n".join("(?s:.*)" if line == "..." else re.escape(line) for line in shown.splitlines())
    pattern = pattern.replace("\n(?s:.*)", "(?s:.*)").replace("(?s:.*)\n", "(?s:.*)")
    return re.fullmatch(pattern, said) is not None
