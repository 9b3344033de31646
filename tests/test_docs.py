"""The documents do what they say: files, commands and Python in them are run, each page in a folder of its own.

`PYTHONPATH=.:tests python tests/test_docs.py --write [PAGE...]` puts today's output in.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from console_blocks import Block, blocks_of, printed, same
from locations import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def page_name(page: Path) -> str:
    return str(page.relative_to(DOCS))


def write_file(block: Block, folder: Path) -> None:
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def run_python(texts: list[str], folder: Path) -> str:
    """Run blocks one after the other; what went wrong, or "". `expression  # value` is held to its value."""
    code = ["import ast as _ast"]
    for text in texts:
        lines = text.splitlines()
        for node in ast.parse(text).body:
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            comment = lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].strip()
            value = comment.removeprefix("# ").partition(": ")[0] if comment.startswith("# ") else ""
            if isinstance(node, ast.Expr) and value and is_literal(value):
                expression = ast.get_source_segment(text, node)
                code.append(f"_found = {expression}\nassert _found == {value}, ({expression!r}, _found)")
            else:
                code.append(source)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr[-2000:]


def is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def run_page(page: Path, folder: Path) -> list[tuple[str, str, str]]:
    """(command, output shown, what it printed) of each command of a page; its Python has run too."""
    found = []
    python: list[str] = []
    for block in blocks_of(page):
        if block.file:
            write_file(block, folder)
        elif block.language == "console":
            found += [(command, shown, printed(command, folder)) for command, shown in block.commands]
        elif block.language == "python":
            python.append(block.text)
    trouble = run_python(python, folder) if python else ""
    return [*found, *([("Python", "", trouble)] if trouble else [])]


def runnable(page: Path) -> bool:
    return any(b.language in ("console", "python") and not b.file for b in blocks_of(page))


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=page_name)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    from occupancy_cli.compile.compile_service import triton_version

    written_with = re.search(r"Triton (\d+\.\d+\.\d+)", (ROOT / "README.md").read_text())
    assert written_with is not None
    if triton_version() != written_with[1]:
        pytest.skip(f"the documents were written with Triton {written_with[1]}")
    for command, shown, said in run_page(page, tmp_path):
        assert same(shown, said), f"{page_name(page)}: {command} prints\n{said}\nand the page shows\n{shown}"


def test_what_a_page_shows_is_compared_line_by_line() -> None:
    assert same("a\n...\nc", "a\nb1\nb2\nc") and same("a\n...", "a\nb") and same("...\nc", "b\nc") and same("", "")
    assert not same("a\n...\nc", "a\nb\nd") and not same("", "a") and not same("a.c", "abc")


def test_python_with_a_value_in_its_comment_is_held_to_it(tmp_path: Path) -> None:
    assert run_python(["x = 2\n", "x + 1  # 3: two and one\nx  # any text\n"], tmp_path) == ""
    assert "('x + 1', 3)" in run_python(["x = 2\nx + 1  # 4\n"], tmp_path)


def test_commands_that_are_not_run_here_have_the_options_they_name() -> None:
    import typer

    from occupancy_cli.cli.app import app

    group: Any = typer.main.get_command(app)
    seen = 0
    for page in PAGES:
        for block in blocks_of(page):
            lines = block.text.replace("\\\n", " ").splitlines() if block.language == "shell" else []
            for line in lines:
                words = shlex.split(line, comments=True)
                if words[:1] != ["occupancy"] or words[1:2] == ["--help"]:
                    continue
                command = group.commands[words[1]]
                parser = command.make_parser(command.context_class(command))
                parser.parse_args(words[2:])  # names the option that there is not
                seen += 1
    assert seen > 5


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_example_says_what_fits() -> None:
    script = ROOT / "examples" / "python" / "will_it_fit.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    # 102,400 bytes at BLOCK_T 64 are 1,024 over the 101,376 of sm120; an H200 has room for them twice.
    assert "rtx-pro-6000: BLOCK_T 64 is 1,024 bytes over the cap" in done.stdout
    assert "h200: BLOCK_T 64 takes 102,400 bytes" in done.stdout


def test_links_between_documents_lead_somewhere() -> None:
    made = re.compile(r"(^|/)reference/(commands|report|spec|project|api|gpus/[\w-]+)\.md$")  # by docs/hooks
    for document in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]:
        prose = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            assert (document.parent / target).exists() or made.search(target), f"{document.name}: {target}"


def write(pages: list[Path]) -> None:
    for page in pages:
        text, at = page.read_text(encoding="utf-8"), 0
        with tempfile.TemporaryDirectory() as folder:
            found = run_page(page, Path(folder))
        indents = [b.indent for b in blocks_of(page) if b.language == "console" for _ in b.commands]
        for (command, shown, said), indent in zip(found, [*indents, ""], strict=False):
            if command == "Python":
                print(f"{page_name(page)}: {said}")
                continue
            old, new = as_shown(command, shown, indent), as_shown(command, said, indent)
            at = text.index(old, at)
            if not same(shown, said):
                text = text[:at] + new + text[at + len(old) :]
                at += len(new)
            else:
                at += len(old)
        page.write_text(text, encoding="utf-8")


def as_shown(command: str, output: str, indent: str) -> str:
    """A command and its output as they stand in a page."""
    lines = [f"$ {line}" if i == 0 else line for i, line in enumerate(command.split("\n"))]
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in (*lines, *(output.split("\n") if output else ())))


if __name__ == "__main__" and "--write" in sys.argv:
    names = sys.argv[sys.argv.index("--write") + 1 :]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    write([p for p in PAGES if runnable(p) and (not names or page_name(p) in names)])
