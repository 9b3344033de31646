"""Scratch whose size Triton did not write down, made into modules of one operation each for Triton to allocate.

Until Triton 3.7 the allocation pass writes at an operation where its scratch begins and not how large it is. How large
follows from the operation's types and attributes alone, by rules that change from version to version: so they are not
told again here. A module that holds nothing but that operation is handed to the same pass, and what it then needs
altogether is the size:

    tt.func @probe(%$0: tensor<32x16xf32, #mma>) -> (tensor<32x16xf32, #blocked>) {
      %0 = ttg.convert_layout %$0 : tensor<32x16xf32, #mma> -> tensor<32x16xf32, #blocked>   the pass: ttg.shared = 2048
      tt.return %0 : tensor<32x16xf32, #blocked>

What it gives is returned, since an atomic operation takes scratch only for a result that someone uses.
`with_sizes` writes them into the text as later versions do, `allocation.size` beside `allocation.offset`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_OFFSET = re.compile(r"allocation\.offset = \d+ : i32")
_ATTRIBUTE = re.compile(r",? ?allocation\.offset = \d+ : i32")
_LOC = re.compile(r"\s*loc\((?:#\w+|[^()]*(?:\([^()]*\)[^()]*)*)\)\s*$")
_MODULE = re.compile(r"^module attributes \{(.*)\} \{")
_TOTAL = re.compile(r",? ?\"?ttg\.(?:shared|tensor_memory_size)\"? = \d+ : i32")
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")


def with_sizes(allocated: str, size_of: Callable[[str], int | None]) -> str:
    """The text with every missing `allocation.size`, as `size_of` gives it for a module of that operation alone.

    `size_of` returns None for a module that cannot be allocated so; such an operation stays without a size.
    """
    lines = allocated.splitlines()
    definitions = [line for line in lines if line.startswith("#") and " = #" in line]
    module = next((found for line in lines if (found := _MODULE.match(line.strip()))), None)
    if module is None:
        return allocated
    attributes = _TOTAL.sub("", module.group(1)).lstrip(", ")
    known: dict[str, int | None] = {}
    for i, line in enumerate(lines):
        offset = _OFFSET.search(line)
        if offset is None or "allocation.size" in line or "local_alloc" in line:
            continue
        probe = _probe(lines, i)
        if probe is None:
            continue
        text = "\n".join([*definitions, f"module attributes {{{attributes}}} {{", probe, "}", ""])
        if text not in known:
            known[text] = size_of(text)
        size = known[text]
        if size is not None:
            lines[i] = f"{line[: offset.end()]}, allocation.size = {size} : i32{line[offset.end() :]}"
    return "\n".join(lines) + "\n"


def _probe(lines: list[str], end: int) -> str | None:
    """A function of the operation that ends at line `end`, its operands as arguments; None where it holds others."""
    first = end
    if lines[end].lstrip().startswith("}"):
        indent = _indent(lines[end])
        opens = (i for i in range(end - 1, -1, -1) if lines[i].endswith("{") and _indent(lines[i]) == indent)
        first = next(opens, end)
        if first == end:
            return None
    operation = [_LOC.sub("", line) for line in lines[first : end + 1]]
    operation = [_region_line(line) for line in operation]
    operation[-1] = re.sub(r"\s*\{\s*\}(?=\s*:)", "", _ATTRIBUTE.sub("", operation[-1]).replace("{, ", "{"))
    head = operation[0].partition(" = ")[2] if _OPERAND.match(operation[0].strip()) else operation[0]
    head = re.sub(r"<\{.*?\}>|\{[^{}]*\}", "", head).partition(" : ")[0]
    operands = list(dict.fromkeys(_OPERAND.findall(head)))
    types = _operand_types(operation[-1].rpartition(" : ")[2])
    count = len(_OPERAND.findall(head))
    if types is None or count != len(types):
        return None
    of_operand = dict(zip(_OPERAND.findall(head), types, strict=True))
    # No name of a source has a dollar in it: none of a region's or a result's is one of these.
    names = {name: f"%${i}" for i, name in enumerate(operands)}
    result = _OPERAND.match(operation[0].strip())
    operation[0] = _OPERAND.sub(lambda found: names.get(found[0], found[0]), operation[0])
    arguments = ", ".join(f"{names[name]}: {of_operand[name]}" for name in operands)
    given, returned = "", "tt.return"
    if result is not None:
        results = _listed(operation[-1].rpartition(" : ")[2].partition(" -> ")[2].strip())
        name = result[0]
        named = [f"{name}#{i}" for i in range(len(results))] if len(results) > 1 else [name]
        given, returned = f" -> ({', '.join(results)})", f"tt.return {', '.join(named)} : {', '.join(results)}"
    head = f"  tt.func public @probe({arguments}){given} {{"
    return "\n".join([head, *operation, f"    {returned}", "  }"])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _region_line(line: str) -> str:
    """A line of a region without the locations that stand behind its block's arguments."""
    return re.sub(r"\s+loc\([^()]*(?:\([^()]*\)[^()]*)*\)", "", line)


def _operand_types(text: str) -> list[str] | None:
    """The operand types of `(A, B) -> C` or `A -> B`; None where no result's type stands behind them."""
    before, arrow, _ = text.partition(" -> ")
    return _listed(before) if arrow else None


def _listed(text: str) -> list[str]:
    """The types of `(A, B)` or of `A`."""
    text = text.strip()
    if not text.startswith("("):
        return [text]
    found, depth, start = [], 0, 1
    for i, letter in enumerate(text):
        if letter in "(<[{":
            depth += 1
        elif letter in ")>]}" and text[i - 1] != "-":
            depth -= 1
        if (letter == "," and depth == 1) or depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
            if depth == 0:
                break
    return [each for each in found if each]
