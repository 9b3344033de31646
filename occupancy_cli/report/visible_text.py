"""Text that came from outside, made safe to print: nothing in it can steer a terminal, a CI log or a shell.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    >>> visible("one\n::error file=x::two")
    'one\\n::error file=x::two'

Names, messages of compilers, file text and values of the environment go through here once, where they are put into
what is printed. Control characters and what orders text anew (Unicode's Cc, Cf, Zl, Zp) are shown as escapes. GitHub
takes a line that begins with `::` or holds `##[` for a command of its own
(docs.github.com, "Workflow commands for GitHub Actions"): in text of several lines such a line is set off.
"""

from __future__ import annotations

import re
import unicodedata

# Fast test for the common case: printable ASCII and anything beyond Latin-1's control block is looked at more closely.
_SUSPECT = re.compile(r"[^\x20-\x7e]")
_LINE_COMMAND = re.compile(r"^(\s*)(::|##\[)", re.MULTILINE)
_STEERING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def visible(text: str) -> str:
    """`text` on one line: every control character, line ends included, as a visible escape."""
    return _SUSPECT.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """`text` that may run over several lines: line ends stay, everything else as `visible` has it, and no line is a
    command to a CI system."""
    lines = (visible(line) for line in re.split(r"\r\n|\n", text))
    return _LINE_COMMAND.sub(r"\1\\\2", "\n".join(lines))


def steers(character: str) -> bool:
    """Whether a terminal would obey a character, or order the text around it anew, rather than show it."""
    return unicodedata.category(character) in _STEERING


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if not steers(character):
        return character
    named = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    if named is not None:
        return named
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
