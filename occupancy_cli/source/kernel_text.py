"""The Python text that a kernel stands in, where that is not simply a .py file.

    kernel.ipynb      the cells of a notebook as one module: definitions, and the constants that they need
    output_code.py    of TorchInductor: `name = async_compile.triton('name', '''...''')` holds a kernel's module

`parse` gives the tree that everything which reads source goes by, `module_text` the module to load for one kernel.
Lines of a text are those of the file that holds it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from occupancy_cli.errors import InputError
from occupancy_cli.json_reader import MAX_BYTES, parse_json
from occupancy_cli.source.source_files import read_source

NOTEBOOK = ".ipynb"
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def parse(path: Path, data: bytes) -> ast.Module:
    """The tree of a file: of a notebook its definitions, with the kernels that texts hold beside the rest.

    Raises what `ast.parse` raises, ValueError for a notebook that is none.
    """
    if path.suffix == NOTEBOOK:
        return ast.parse(notebook_text(data))
    tree = ast.parse(data)
    if b"async_compile" in data or b".triton(" in data:
        for _name, text in _embedded(tree):
            inner = ast.parse(text)
            tree.body += [s for s in inner.body if isinstance(s, (*_DEFINES, *_IMPORTS, ast.Assign, ast.AnnAssign))]
    return tree


def module_text(path: Path, kernel: str) -> str | None:
    """The module to load for `kernel` where the file itself is not it; None where it is."""
    data = read_source(path)
    if path.suffix == NOTEBOOK:
        return notebook_text(data)
    if b"async_compile" not in data and b".triton(" not in data:
        return None
    try:
        return next((text for name, text in _embedded(ast.parse(data)) if name == kernel), None)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _embedded(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules that a file hands to a compiler as text, each by the name it is assigned to."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        call, target = node.value, node.targets[0]
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "triton" and isinstance(target, ast.Name)):
            continue
        text = next(
            (
                a
                for a in (*call.args, *(k.value for k in call.keywords))
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and "def " in a.value
            ),
            None,
        )
        if text is not None and isinstance(text.value, str):
            yield target.id, "\n" * (text.lineno - 1) + text.value


def notebook_text(data: bytes) -> str:
    """The code cells of a notebook as one module: imports, definitions, and the assignments that kernels need.

    What a cell does beside (training, plots, magics) is left out: reading a kernel runs no experiment.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"is a notebook of {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        cells = parse_json(data.decode(), "")["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    except InputError as bad:
        raise ValueError(f"is no notebook: {bad.problem}") from None
    except (ValueError, KeyError, TypeError) as bad:
        raise ValueError(f"is no notebook: {bad}") from None
    body: list[ast.stmt] = []
    for text in texts:
        lines = ["" if line.lstrip().startswith(("%", "!", "?")) else line for line in text.splitlines()]
        try:
            body += ast.parse("\n".join(lines)).body
        except (SyntaxError, ValueError):
            continue  # a cell of another language, or a half-written one
    needed = _needed(body)
    kept = [s for s in body if isinstance(s, (*_DEFINES, *_IMPORTS)) or _binds(s) & needed]
    return "\n\n".join(ast.unparse(s) for s in kept) + "\n"


def _needed(body: list[ast.stmt]) -> set[str]:
    """The names that decorated functions read, through assignments and the functions that those call."""
    named = {s.name: s for s in body if isinstance(s, _DEFINES)}
    todo: list[ast.AST] = [s for s in named.values() if s.decorator_list]
    names: set[str] = set()
    while todo:
        for node in ast.walk(todo.pop()):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in names:
                continue
            names.add(node.id)
            todo += [s for s in body if node.id in _binds(s)]
            todo += [named[node.id]] if node.id in named else []
    return names


def _binds(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    elif isinstance(statement, (ast.If, ast.Try)):
        inside = [*statement.body, *statement.orelse]
        inside += [s for h in statement.handlers for s in h.body] if isinstance(statement, ast.Try) else []
        kinds = (*_DEFINES, *_IMPORTS, ast.Assign, ast.AnnAssign, ast.If, ast.Try, ast.Pass)
        if not all(isinstance(s, kinds) for s in inside):
            return set()
        return {n for s in inside for n in _binds(s)} | {s.name for s in inside if isinstance(s, _DEFINES)}
    else:
        return set()
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
