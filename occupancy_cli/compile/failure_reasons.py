"""Why a compile failed, in one sentence: from what was raised, and from what the compiler printed on the way.

Triton raises from its passes with texts such as "PassManager::run failed" and prints the diagnostic; its front end
wraps what went wrong in the line of a kernel in as many errors as there are calls around it. The innermost one, the
line it stands in, and the first diagnostic are what a reader needs.
"""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path
from typing import Any

from occupancy_cli.errors import OccupancyError

MAX_CHARACTERS = 400

_VAGUE = re.compile(r"PassManager::run failed|error encountered during parsing|^$|^failed to (run|translate)")
_DIAGNOSTIC = re.compile(r"^(?P<file>[^\n:]*):(?P<line>\d+):\d+: error: (?P<text>[^\n]+)", re.MULTILINE)
_LESS_TELLING = "Failures have been detected while processing an MLIR pass pipeline"
_PIPELINE = re.compile(r"Pipeline failed while executing \[`([^`]+?)` on")
_OTHER_ERROR = re.compile(r"^(?:error|fatal|ptxas[^:\n]*|LLVM ERROR):\s*([^\n]+)", re.MULTILINE | re.IGNORECASE)
_PTXAS_SAID = re.compile(r"^ptxas[^\n]*?(?:fatal|error)\s*:\s*([^\n]+)", re.MULTILINE)
_WRAPPED = re.compile(r"^(?P<kind>\w+)\((?P<quote>['\"])(?P<text>.*)(?P=quote)(?:,\s*)?\)$", re.DOTALL)
_UNRECOGNISED = re.compile(r"Keyword argument (\w+) was specified but unrecognised")
_CARETS = re.compile(r"[\s^~]*$")


def reason(bad: BaseException, printed: str = "") -> str:
    """One sentence for `bad`; `printed` is what the compiler wrote meanwhile."""
    chain = _chain(bad)
    inner = chain[-1]
    kind, text = type(inner).__name__, _text(inner)
    if isinstance(inner, OccupancyError):
        kind, text = "", inner.problem
    wrapped = _WRAPPED.match(text)
    if wrapped is not None:
        kind = wrapped["kind"].removesuffix("Impl")
        text = wrapped["text"].replace("\\n", " ").replace("\\'", "'")
    elif kind in ("CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure"):
        kind = "" if text else kind
    if _VAGUE.search(text):
        said = diagnostic(printed)
        if said:
            kind, text = "", said
        elif not text:
            text = _failing_line(inner)
    unknown = _UNRECOGNISED.search(text)
    if unknown is not None:
        # Said by Triton's launcher of what a config or a heuristic sets.
        return f"{unknown[1]} is set, but is neither a parameter of the kernel nor a launch option of this Triton"
    at_line = place(bad)
    if not at_line and kind:
        at = _failing_line(inner)  # Python code around the kernel: a heuristic, a repr, a pruning function
        at_line = f", at: {at}" if at and at not in text else ""
    sentence = f"{kind}: {text}" if kind and text else text or kind
    return " ".join(f"{sentence}{at_line}".split())[:MAX_CHARACTERS]


def place(bad: BaseException) -> str:
    """Where a compile failed, as the end of a sentence: the innermost function's line; empty when none is told."""
    told = next((at for error in reversed(_chain(bad)) if (at := _kernel_line(error))), "")
    return told or _visited_line(bad)


def ptxas_reason(text: str) -> str:
    """One sentence of what Triton raises when ptxas fails: its first line, and the first thing that ptxas said."""
    first = text.splitlines()[0]
    said = _PTXAS_SAID.search(text)
    return (f"{first}: {said[1].strip()}" if said else first)[:MAX_CHARACTERS]


def diagnostic(printed: str) -> str:
    """The first error that the compiler printed, with its file and line; "" when it printed none."""
    found = list(_DIAGNOSTIC.finditer(printed))
    telling = [d for d in found if not d["text"].startswith(_LESS_TELLING)]
    if telling:
        first = telling[0]
        return f"{first['text']} ({Path(first['file']).name}:{first['line']})"
    pipeline = _PIPELINE.search(printed)
    if pipeline is not None:
        at = f" ({Path(found[0]['file']).name}:{found[0]['line']})" if found else ""
        return f"the compiler's pass {pipeline[1]} failed{at}"
    other = _OTHER_ERROR.search(printed)
    return other[1].strip() if other else ""


def _chain(bad: BaseException) -> list[BaseException]:
    """The error and its causes, outermost first."""
    chain = [bad]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _text(bad: BaseException) -> str:
    """What an error says, without the source that Triton puts in front of it."""
    message = getattr(bad, "error_message", None)
    if isinstance(message, str) and message.strip():
        return message.strip()
    # Of a multi-line text the last line says it; the lines before quote the source.
    lines = [line.strip() for line in str(bad).splitlines() if not _CARETS.fullmatch(line)]
    return lines[-1] if lines else ""


def _kernel_line(bad: BaseException) -> str:
    """Where in the kernel Triton stood, with the source of that line."""
    return _source_line(getattr(bad, "src", None), getattr(bad, "node", None))


def _visited_line(bad: BaseException) -> str:
    """As `_kernel_line`, for an error that Triton lets pass as it was raised: 3.4 from what finds a kernel's callees.

    The innermost visitor has the node that it stood at; it, or the innermost function around it, has the source.
    """
    frames = [frame.f_locals for frame, _ in reversed(list(traceback.walk_tb(bad.__traceback__)))]
    node = next((n for names in frames if isinstance(n := names.get("node"), ast.AST) and hasattr(n, "lineno")), None)
    owners = (names.get("self") for names in frames)
    sources = (getattr(getattr(owner, "jit_fn", owner), "src", None) for owner in owners)
    return _source_line(next((source for source in sources if isinstance(source, str)), None), node)


def _source_line(source: object, node: object) -> str:
    line: Any = getattr(node, "lineno", None)
    if not isinstance(source, str) or not isinstance(line, int):
        return ""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    named = re.search(r"^\s*def (\w+)", source, re.MULTILINE)
    return f", at line {line} of {named[1] if named else 'the function'}: {lines[line - 1].strip()[:100]}"


def _failing_line(bad: BaseException) -> str:
    """The source line that raised, for an error without words (a bare assert)."""
    frames = traceback.extract_tb(bad.__traceback__)
    if not frames:
        return ""
    return f"{(frames[-1].line or '').strip()} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
