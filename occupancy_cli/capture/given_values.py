"""In the script's process: files of which lines have a given value are run with it in its place.

Such a file is compiled from its source each time, by way of `source.given_values`, and its cached bytecode is neither
read nor written: no other run sees a given value. Each value that is used is recorded, once a process.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from occupancy_cli.capture.recorder import Recorder
from occupancy_cli.source.given_values import ASK, with_values


class GivenValues:
    """The given values of a plan: `text`, `file` (its real path), `line`, `value` (a literal), `stands_for` each."""

    def __init__(self, given: Sequence[Mapping[str, Any]], recorder: Recorder) -> None:
        self._given = given
        self._recorder = recorder
        self._used: set[tuple[int, int]] = set()

    def install(self) -> None:
        """Before the script runs: what asks for a value finds it, and modules with one are loaded with it."""
        if not self._given:
            return
        for each in self._given:
            self._recorder.event("value", text=each["text"], stands_for=each["stands_for"], used=False)
        setattr(builtins, ASK, self._value)
        original = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            return self.code_of(loader.get_filename(name)) or original(loader, name)

        SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]

    def code_of(self, file: str) -> CodeType | None:
        """The code of a file in which a value is given; None for any other."""
        real = os.path.realpath(file)
        numbered = [(each["line"], i) for i, each in enumerate(self._given) if each["file"] == real]
        if not numbered:
            return None
        code = compile(with_values(Path(file).read_bytes(), file, numbered), file, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code

    def _value(self, number: int, _computed: Any = None) -> Any:
        if (os.getpid(), number) not in self._used:
            self._used.add((os.getpid(), number))
            given = self._given[number]
            self._recorder.event("value", text=given["text"], stands_for=given["stands_for"], used=True)
        return ast.literal_eval(self._given[number]["value"])  # a list of its own each time

    @staticmethod
    def run_as_main(code: CodeType, file: str) -> None:
        """Run code as Python runs a script: as the module `__main__`, which stays there until the process ends."""
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # the script of the person who asks, as `runpy` would run it
