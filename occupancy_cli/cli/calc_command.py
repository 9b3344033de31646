"""`occupancy calc`: the occupancy of one kernel from its numbers, or of many from JSON Lines.

One kernel: the limits table, what more CTAs per SM take of each resource, and on request a chart over one resource.
Many kernels: see `answers.calculated_rows`. Needs neither Triton nor a GPU.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.gpu.profiles import GpuProfile

_ROWS_PER_WRITE = 4096


class Sweep(str, enum.Enum):
    """What `--sweep` goes over; the model's name of it."""

    regs = "regs"
    shared = "shared"
    warps = "warps"

    @property
    def resource(self) -> str:
        return "registers" if self is Sweep.regs else self.value


def calc(
    gpu: Annotated[
        str, typer.Option("--gpu", help="GPU: a product (5090, h100), a compute capability (sm120) or local.")
    ] = options.DEFAULT_GPU,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads per CTA, those of warp specialization included.")
    ] = None,
    num_warps: Annotated[
        int | None, typer.Option("--num-warps", help="Warps per CTA, in the place of threads.")
    ] = None,
    regs: Annotated[
        int | None, typer.Option("--regs", help="Registers per thread. Left out: not known, and no limit by them.")
    ] = None,
    shared: Annotated[
        int | None, typer.Option("--shared", help="Dynamic shared memory per CTA in bytes (Triton's metadata.shared).")
    ] = None,
    static_shared: Annotated[
        int, typer.Option("--static-shared", help="Static shared memory per CTA in bytes, without the system's 1 KB.")
    ] = 0,
    carveout: Annotated[
        int | None, typer.Option("--carveout", help="Shared part of the L1 array in bytes. Left out: the largest.")
    ] = None,
    num_ctas: Annotated[int, typer.Option("--num-ctas", help="CTAs per cluster.")] = 1,
    tmem: Annotated[int, typer.Option("--tmem", help="Tensor memory columns per CTA (CC 10.x and 11.0).")] = 0,
    sweep: Annotated[Sweep | None, typer.Option("--sweep", help="Chart the occupancy over one resource.")] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Answer every row of a JSON Lines file (- for standard input) as JSON Lines.",
        ),
    ] = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Occupancy from threads, registers and shared memory: every limit, what binds, what the next CTA takes.

    With --input FILE, one answer a row: keys threads (or num_warps), regs, shared; a key that a row leaves out takes
    the option's value. A row that cannot be answered gives a row with "error", and the exit code is then 2.
    """
    folders = hw_profiles or []
    if threads is not None and num_warps is not None:
        raise InputError("--threads and --num-warps are given both", where="--num-warps", hint="One of them is enough.")
    if num_warps is not None:
        if num_warps < 1:
            raise InputError(f"{num_warps} is not possible: it is at least 1", where="--num-warps")
        threads = 32 * num_warps
    profile = options.resolve_gpu(gpu, hw_profiles)
    kernel: dict[str, Any] = {
        "threads_per_cta": threads,
        "registers_per_thread": regs,
        "shared_bytes": shared,
        "static_shared_bytes": static_shared,
        "carveout_bytes": carveout,
        "num_ctas": num_ctas,
        "tmem_columns": tmem,
    }
    if input_file is not None:
        if sweep is not None:
            raise InputError("a chart is of one kernel, and --input gives many", where="--sweep")
        _answer_file(input_file, {k: v for k, v in kernel.items() if v is not None}, profile, folders)
        return
    from occupancy_cli.answers.calc import calculate

    show(calculate(profile, kernel, sweep.resource if sweep else None), output_format)


def _answer_file(name: str, defaults: dict[str, Any], gpu: GpuProfile, folders: list[Path]) -> None:
    from occupancy_cli.answers.calculated_rows import Count, answer_rows

    count = Count()

    def answer(lines: Iterable[str]) -> None:
        answers = answer_rows(lines, defaults, gpu, lambda other: options.resolve_gpu(other, folders), count)
        try:
            # In blocks: a write for every row would cost as much as the row.
            while block := list(islice(answers, _ROWS_PER_WRITE)):
                sys.stdout.write("\n".join(block) + "\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} is not UTF-8 text: {error}", where="--input") from None

    if name == "-":
        answer(sys.stdin)
    else:
        try:
            file = Path(name).open(encoding="utf-8-sig")  # noqa: SIM115 - entered below, so that only opening is caught here
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror or error}", where="--input") from None
        with file:
            answer(file)
    if count.errors:
        print(f"{count.errors:,} of {count.rows:,} row{'s' * (count.rows != 1)} could not be answered", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2)
