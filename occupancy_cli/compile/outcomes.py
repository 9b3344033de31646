"""From what workers answered, and what the cache keeps, to the outcomes that the house reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from occupancy_cli.compile.kernel_record import EXPLANATION_VERSION, KernelRecord
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource
from occupancy_cli.errors import CompileError, InputError

if TYPE_CHECKING:
    from occupancy_cli.compile.worker_messages import Failed


def is_sufficient(record: KernelRecord, request: CompileRequest) -> bool:
    """Whether a record has all that is asked: it may have ended at shared memory, or lack a time on this GPU."""
    if request.explain and (record.explanation is None or record.explanation.version != EXPLANATION_VERSION):
        return False
    if record.resources.registers_per_thread is None:
        return request.stop_above is not None and record.resources.shared_bytes > request.stop_above
    return request.time_on is None or request.time_on.digest in record.times


def outcome_from(record: KernelRecord) -> CompileOutcome:
    """The outcome that a record holds."""
    return CompileOutcome(
        record.resources,
        seconds=record.compile_seconds,
        notes=record.notes,
        toolchain=record.toolchain,
        times=record.times,
        explanation=record.explanation,
    )


def failure_from(answer: Failed, output: str = "") -> CompileOutcome:
    """The outcome of an answer that is an error."""
    message = f"{answer.message} ({answer.hint})" if answer.hint else answer.message
    return CompileOutcome(None, answer.kind, message, output=output or answer.output)


def raise_failure(answer: Failed, output: str, source: KernelSource) -> NoReturn:
    """The error of a question about a kernel that got no answer; `output` is what was printed meanwhile."""
    if answer.kind == "input":
        raise InputError(answer.message, where=answer.where, hint=answer.hint)
    output = output.strip()
    shown = f"It printed: {output.splitlines()[-1][:200]}" if output else ""
    raise CompileError(
        f"the kernel file did not load: {answer.message}", where=str(source), hint=shown, kind=answer.kind
    )
