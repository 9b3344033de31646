"""Why a compile failed, in one sentence, from what Triton raises and prints."""

from __future__ import annotations

import ast

import pytest

from occupancy_cli.compile.failure_reasons import MAX_CHARACTERS, diagnostic, place, reason

KERNEL = "def kernel(x):\n    y = x + 1\n    return missing(y)\n"


class CompilationError(Exception):
    """As Triton's: source, node, message."""

    def __init__(self, src: str, node: ast.AST, error_message: str | None = None) -> None:
        super().__init__(f"at 3:4:\n{src}    ^\n{error_message or ''}")
        self.src, self.node, self.error_message = src, node, error_message


def node(line: int) -> ast.AST:
    return ast.Name("x", ast.Load(), lineno=line, col_offset=4)


def test_the_innermost_error_and_its_line() -> None:
    try:
        try:
            try:
                raise ValueError("arange's range must be a power of 2")
            except ValueError as cause:
                raise CompilationError(KERNEL, node(3), str(cause)) from cause
        except CompilationError as cause:
            raise CompilationError("def outer():\n    kernel()\n", node(2)) from cause
    except CompilationError as bad:
        assert reason(bad) == (
            "ValueError: arange's range must be a power of 2, at line 3 of kernel: return missing(y)"
        )


def test_a_wrapped_repr_is_taken_out_of_its_wrapping() -> None:
    bad = CompilationError(KERNEL, node(3), repr(NameError("missing is not defined")))
    assert reason(bad) == "NameError: missing is not defined, at line 3 of kernel: return missing(y)"
    # The sentence of an error that prints itself without a name stays as it is.
    assert reason(CompilationError(KERNEL, node(2), "needs the value of a.b")).startswith("needs the value of a.b, at")


PRINTED = """/home/me/kernel.py:32:16: error: 'tt.load' op operand #1 must be 1-bit signless integer
        data = tl.load(data_ptr, mask=mask, other=other)
               ^
#loc = loc("/home/me/kernel.py":23:1)
"""
PIPELINE = """/home/me/kernel.py:61:0: error: Failures have been detected while processing an MLIR pass pipeline
/home/me/kernel.py:61:0: note: Pipeline failed while executing [`ConvertTritonToTritonGPU` on 'builtin.module' op]: x
"""


def test_a_vague_error_is_replaced_by_what_was_printed() -> None:
    said = "'tt.load' op operand #1 must be 1-bit signless integer (kernel.py:32)"
    assert reason(RuntimeError("error encountered during parsing"), PRINTED) == said
    assert diagnostic(PIPELINE) == "the compiler's pass ConvertTritonToTritonGPU failed (kernel.py:61)"
    assert diagnostic(PIPELINE + PRINTED) == said
    assert reason(RuntimeError("PassManager::run failed"), "") == "RuntimeError: PassManager::run failed"
    assert diagnostic("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm\n") == "Cannot select: intrinsic %llvm.nvvm"


def test_an_error_without_words_shows_its_line() -> None:
    with pytest.raises(AssertionError) as bad:
        exec(compile("assert 1 == 2", __file__, "exec"))
    assert reason(bad.value).startswith("AssertionError")
    assert "test_failure_reasons.py:1" in reason(bad.value)


def test_one_line_of_bounded_length() -> None:
    text = reason(ValueError("a\nb\n" + "long " * 1000))
    assert "\n" not in text and len(text) <= MAX_CHARACTERS


def test_the_line_names_the_helper_that_it_stands_in() -> None:
    helper = "@triton.jit\ndef helper(x):\n    return missing(x)\n"
    outer = CompilationError(KERNEL, node(2), None)
    outer.__cause__ = CompilationError(helper, node(3), "missing is not defined")
    assert place(outer) == ", at line 3 of helper: return missing(x)"
    assert place(ValueError("nowhere")) == ""
