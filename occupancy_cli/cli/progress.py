"""What is being done, on standard error while it is done; nothing where that is no terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from occupancy_cli.report.visible_text import visible

if TYPE_CHECKING:
    from occupancy_cli.answers.measure import MeasureProgress
    from occupancy_cli.compile.compile_service import Progress


class _LineNowAndThen:
    """Where a run stands, a line every `EVERY_S` seconds: a log has no bar, and a silent job looks like a dead one."""

    EVERY_S = 10.0

    def __init__(self) -> None:
        self._state: Progress | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> _LineNowAndThen:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def show(self, state: Progress) -> None:
        """Take note of where the run stands."""
        self._state = state

    def _run(self) -> None:
        while not self._ended.wait(self.EVERY_S):
            state = self._state
            if state is None or state.done >= state.total:
                continue
            left = "" if state.seconds_left is None else f", about {state.seconds_left:,.0f} s left"
            with contextlib.suppress(OSError, ValueError):
                last = f"; last {visible(state.current)}" if state.current else ""
                sys.stderr.write(f"compiling: {state.done:,} of {state.total:,} done{left}{last}\n")
                sys.stderr.flush()


@contextlib.contextmanager
def compiling() -> Iterator[Callable[[Progress], None] | None]:
    """Progress with count, current config and time left: a bar on a terminal, in CI a line every 10 seconds.

    None when standard error is neither.
    """
    if not sys.stderr.isatty():
        if os.environ.get("CI", "").casefold() in ("", "0", "false"):
            yield None
            return
        with _LineNowAndThen() as lines:
            yield lines.show
        return
    from rich import progress as rich_progress
    from rich.console import Console

    bar = rich_progress.Progress(
        rich_progress.TextColumn("compiling"),
        rich_progress.BarColumn(20),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[current]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: list[rich_progress.TaskID] = []

    def show(state: Progress) -> None:
        if not tasks:
            bar.start()
            tasks.append(bar.add_task("", total=state.total, current=""))
        bar.update(tasks[0], total=state.total, completed=state.done, current=visible(state.current))

    try:
        yield show
    finally:
        if tasks:
            bar.stop()


@contextlib.contextmanager
def reading_cache() -> Iterator[Callable[[int, str], None] | None]:
    """A count on standard error while a large cache is read; None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the cache") as status:

        def show(seen: int, _name: str) -> None:
            if seen % 100 == 0:
                status.update(f"reading the cache: {seen:,} folders")

        yield show


@contextlib.contextmanager
def reading_source() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on standard error while many files are read; None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading source", total=None)

        def show(done: int, total: int, _name: str) -> None:
            if done % 25 == 0:
                bar.update(task, total=total, completed=done)

        yield show


@contextlib.contextmanager
def measuring() -> Iterator[Callable[[MeasureProgress], None] | None]:
    """A line on standard error that follows the points, when that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(state: MeasureProgress) -> None:
        row = state.row
        what = " ".join(f"{n}={row[n]}" for n in ("batch", "nsplit", "BLOCK_H", "BLOCK_M", "num_warps") if n in row)
        sys.stderr.write(f"\r\x1b[Kmeasuring {state.done} of {state.total}: {visible(what)}  {row['us_total']:.1f} us")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")


@contextlib.contextmanager
def parts(doing: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error that names the part of the work at hand, when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _part: None
        return

    def show(part: str) -> None:
        sys.stderr.write(f"\r\x1b[K{doing}: {visible(part)}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
