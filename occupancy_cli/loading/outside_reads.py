"""What code that a worker runs looks at outside itself: recorded as facts, or named as what cannot be.

A result may be kept only when everything it was made from can be asked again. So the rule is the reverse of a list of
known reads: **what is neither recorded nor known to read nothing makes the result unkeepable**, with a reason.

1. Python's audit events tell of files opened, folders listed, processes, sockets, libraries, extension modules
   (`outside_events`). An event that no table there lists is a reason not to keep.
2. What raises no event is watched where it is called: `os.stat` and its kin, the clock, randomness
   (`watched_functions`), the environment (`watched_environment`), the finders of the import system
   (`watched_imports`). `install` puts watched functions in their place wherever a loaded module holds the original,
   once, before any kernel is loaded.
3. Compiled extension modules see the outside without Python. Those that are known to compute on what they are given
   are recorded as files; any other makes the result unkeepable.

Whose look it is says `outside_callers`; what was seen is a `Recording` (`outside_recordings`).
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Iterable
from typing import Any

from occupancy_cli.loading.outside_events import on_event
from occupancy_cli.loading.outside_recordings import begin, counts
from occupancy_cli.loading.watched_environment import watch_environment
from occupancy_cli.loading.watched_functions import (
    CLOCKS,
    OF_THE_ZONE,
    WATCHED_ELSEWHERE,
    WATCHED_IN_OS,
    Watched,
    WatchedScandir,
    look_seed,
    look_time_of,
    refusing,
    watch,
    watch_dates,
)
from occupancy_cli.loading.watched_imports import watch_imports


def install(private: Iterable[str] = ()) -> None:
    """Watch this process from now on. `private` are the worker's own folders. Call it before a kernel is loaded."""
    if not begin(private):
        return
    for modules in WATCHED_ELSEWHERE.values():
        for module, _ in modules:
            with contextlib.suppress(ImportError):
                __import__(module)
    for name, look in WATCHED_IN_OS.items():
        watch(os, name, look)
    watch(os, "scandir", lambda *_a: None, WatchedScandir)
    for name in CLOCKS:
        watch(time, name, refusing("reads the clock"))
    for name in OF_THE_ZONE:
        watch(time, name, refusing("reads the clock or its zone"))
    for name in ("gmtime", "asctime"):
        watch(time, name, look_time_of)
    for what, functions in WATCHED_ELSEWHERE.items():
        for module, name in functions:
            if module in sys.modules and not isinstance(getattr(sys.modules[module], name, None), Watched):
                watch(sys.modules[module], name, refusing(what))
    seed = random.Random.seed

    def watched_seed(self: Any, a: Any = None, version: int = 2) -> None:
        frame = sys._getframe(1)
        if recordings := counts(frame):
            look_seed(recordings, frame, self, a)
        seed(self, a, version)

    random.Random.seed = watched_seed  # type: ignore[method-assign]
    watch_dates()
    watch_environment()
    watch_imports()
    sys.addaudithook(on_event)
