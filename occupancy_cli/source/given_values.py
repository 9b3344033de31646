"""Values that a person gives for a line of a script, where a run without a GPU cannot know them: `train.py:39=True`.

    39:  if loss.item() > 3:          --value train.py:39=True    the condition holds
    52:  longest = lens.max().item()  --value train.py:52=4096    what is assigned

What a value stands for is read from the source: the condition of the `if`, `while` or `assert` in that line, what an
assignment or a `return` there computes, what a `for` there goes through. It is put into the syntax tree that is run in
the place of the file's own; the file, its lines and its cached bytecode stay as they are.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.module_names import last_name, shown
from occupancy_cli.source.source_files import read_source
from occupancy_cli.yaml_reader import find_file

ASK = "__occupancy_given_value__"
"""The name that a changed syntax tree calls for a value, with the value's number."""
_FORM = "Write PATH:LINE=VALUE, such as train.py:39=True; VALUE is a Python literal: True, 4096, 0.5, 'text', [1, 2]."
_FIELD: dict[type[ast.stmt], str] = {
    ast.If: "test",
    ast.While: "test",
    ast.Assert: "test",
    ast.Assign: "value",
    ast.AnnAssign: "value",
    ast.AugAssign: "value",
    ast.Return: "value",
    ast.For: "iter",
}


@dataclass(frozen=True)
class GivenValue:
    """A value for `line` of `file` (an absolute path); `stands_for` is the source that it replaces, `text` as given."""

    text: str
    file: str
    line: int
    value: Any
    stands_for: str


def parse_values(texts: Iterable[str]) -> tuple[GivenValue, ...]:
    """`PATH:LINE=VALUE` each; `InputError` for a form, a file or a line that cannot be meant."""
    found: dict[tuple[str, int], GivenValue] = {}
    for text in texts:
        where = f"--value {text}"
        match = re.fullmatch(r"(.+?):(\d{1,9})=(.*)", text, re.DOTALL)
        if match is None:
            raise InputError("is no value for a line", where=where, hint=_FORM)
        path = Path(match[1])
        find_file(path)
        value = _literal(match[3], where)
        statement = _statement(path, int(match[2]), where)
        given = GivenValue(text, os.path.realpath(path), statement.lineno, value, _stands_for(statement))
        _check_value(statement, value, where)
        if (given.file, given.line) in found:
            other = found[given.file, given.line].text
            raise InputError(f"the line has a value already: {other}", where=where, hint="Keep one of them.")
        found[given.file, given.line] = given
    return tuple(found.values())


def with_values(source: bytes, file: str, numbered: Sequence[tuple[int, int]]) -> ast.Module:
    """The syntax tree of `file` with a call of `ASK(number)` where a value is given: `numbered` is (line, number)."""
    tree = ast.parse(source, file)
    for line, number in numbered:
        statement = next(s for s in _statements(tree) if s.lineno == line)
        field = _FIELD[type(statement)]
        computed: ast.expr = getattr(statement, field)
        arguments: list[ast.expr] = [ast.Constant(number)]
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(computed)):
            arguments.append(computed)  # it binds a name that the lines after it use
        call = ast.Call(ast.Name(ASK, ast.Load()), arguments, [])
        setattr(statement, field, ast.fix_missing_locations(ast.copy_location(call, computed)))
    return tree


def _literal(text: str, where: str) -> Any:
    known = {"true": True, "false": False}
    if text.strip() in known:
        return known[text.strip()]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise InputError(f"{text!r} is no Python literal", where=where, hint=_FORM) from None


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """The statements that a value can be given for, outer ones first."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and type(n) in _FIELD]
    return [s for s in found if getattr(s, _FIELD[type(s)]) is not None]


def _statement(path: Path, line: int, where: str) -> ast.stmt:
    """The statement in whose head (up to the end of what is computed there) the line is."""
    try:
        tree = parse(path, read_source(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as bad:
        raise InputError(f"is no Python file: {bad}", where=str(path)) from None
    statements = _statements(tree)
    here = [s for s in statements if s.lineno <= line <= (getattr(s, _FIELD[type(s)]).end_lineno or s.lineno)]
    if not here:
        near = sorted(statements, key=lambda s: abs(s.lineno - line))[:3]
        listed = "; ".join(f"line {s.lineno} has {_stands_for(s)}" for s in sorted(near, key=lambda s: s.lineno))
        problem = f"line {line} of {path.name} has no condition, assignment, return or loop"
        raise InputError(problem, where=where, hint=f"Near it: {listed}." if near else "")
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.lineno <= line <= (function.end_lineno or 0):
            decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
            if any(last_name(d) == "jit" for d in decorators):
                hint = "Values are given for lines that Python runs; those of a kernel are its arguments."
                raise InputError(f"the line is in the Triton kernel {function.name}", where=where, hint=hint)
    return here[0]


def _check_value(statement: ast.stmt, value: Any, where: str) -> None:
    if isinstance(statement, ast.For) and not isinstance(value, (list, tuple, dict, set, str)):
        raise InputError("a `for` goes through a list", where=where, hint="Write [0, 1, 2], say.")
    leaves = any(isinstance(n, (ast.Break, ast.Return, ast.Raise)) for n in ast.walk(statement))
    if isinstance(statement, ast.While) and value and not leaves:
        hint = "Give values for what the condition is computed from."
        raise InputError("the loop would never end: nothing in it leaves it", where=where, hint=hint)


def _stands_for(statement: ast.stmt) -> str:
    """The head of a statement, in backquotes."""
    computed = shown(getattr(statement, _FIELD[type(statement)]), 80)
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return f"`{type(statement).__name__.lower()} {computed}`"
    if isinstance(statement, ast.For):
        return f"`for {shown(statement.target, 40)} in {computed}`"
    return f"`{shown(statement, 100)}`"
