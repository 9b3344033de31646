"""The errors this tool raises for what a person asked of it, each with the data behind its sentence.

One root, `OccupancyError`. The command line turns it into one sentence on standard error and the exit code that the
error's class carries (2: cannot decide; 1 is kept for a check that found a violation). Errors cross process borders,
so they pickle by their data alone.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_LONGEST_NAME = 200


class OccupancyError(Exception):
    """What could not be done, and what would have been right.

    `where` names the file, key, option or config at fault, `problem` says what is wrong with which value, `hint` gives
    the right form or the nearest valid name. `data` holds whatever a program may want to read back (required, limit,
    unit, names).
    """

    exit_code = 2

    def __init__(self, problem: str, *, where: str = "", hint: str = "", **data: Any) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{text}\n{self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.problem, self.where, self.hint, self.data))


def _rebuild(cls: type[OccupancyError], problem: str, where: str, hint: str, data: dict[str, Any]) -> OccupancyError:
    return cls(problem, where=where, hint=hint, **data)


class InputError(OccupancyError):
    """A value a person gave (argument, option, environment variable, spec, profile) is not usable."""


class UnknownNameError(InputError):
    """A name that is not among the valid ones; the hint lists the nearest."""


class CompileError(OccupancyError):
    """A kernel or config did not compile; `data['kind']` says how (see `occupancy_cli.compile.request.Kind`)."""


class MissingDependencyError(OccupancyError):
    """An optional part of the tool needs a package that is not installed."""


def nearest(name: str, valid: Iterable[str], most: int = 3) -> list[str]:
    """The valid names closest to `name`, best first; case is ignored."""
    by_folded = {v.casefold(): v for v in valid}
    hits = difflib.get_close_matches(name.casefold(), list(by_folded), n=most, cutoff=0.5)
    return [by_folded[h] for h in hits]


def unknown_name(what: str, name: str, valid: Iterable[str], *, where: str = "") -> UnknownNameError:
    """An error for `name`, which is no `what` ("GPU", "knob"), with the nearest valid names or all of them."""
    names = sorted(set(valid))
    close = nearest(name, names)
    if close:
        hint = "Did you mean " + " or ".join(close) + "?"
    elif names:
        hint = f"Valid: {', '.join(names[:20])}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    else:
        hint = f"There is no {what} to choose from."
    return UnknownNameError(f"unknown {what} {name!r}", where=where, hint=hint, name=name, valid=names)


def sentence(bad: BaseException) -> str:
    """What an unexpected failure comes to, in a sentence, and how to see more."""
    if isinstance(bad, FileNotFoundError) and not _has_working_directory():
        return "the working directory no longer exists"
    if isinstance(bad, OSError) and bad.strerror:
        name = "" if bad.filename is None else f"{_shortened(os.fsdecode(bad.filename))}: "
        return f"{name}{bad.strerror}"
    if isinstance(bad, RuntimeError) and str(bad).startswith("Symlink loop"):  # pathlib, before Python 3.13
        return f"{_shortened(str(bad).rpartition('from ')[2].strip(chr(39)))}: is a link that leads to itself"
    if isinstance(bad, MemoryError):
        return "out of memory"
    import traceback  # only an error of our own needs it

    last = traceback.extract_tb(bad.__traceback__)[-1:]
    at = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    said = f": {bad}" if str(bad) else ""
    return f"an error of occupancy itself: {type(bad).__name__}{said}{at}\nOCCUPANCY_DEBUG=1 shows where it came from."


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}… ({len(name):,} characters)"
