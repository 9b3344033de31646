"""However a capture is ended, nothing of it is left: not its script, not what that started, not its folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiles  # Triton is imported in the script's process

SCRIPT = """
import os, subprocess, sys, time
inner = "import os, time; open(os.environ['PIDS'] + '/inner', 'w').write(str(os.getpid())); time.sleep(90)"
if sys.argv[1:] == ["stubborn"]:
    import signal
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
while not os.path.exists(os.environ["PIDS"] + "/inner"):
    time.sleep(0.02)
open(os.environ["PIDS"] + "/script", "w").write(str(os.getpid()))
time.sleep(90)
"""


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class Running:
    """A capture that is under way, started by a process of its own (`parent`)."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "script.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "occupancy_cli", "capture", "-o", "specs", "script.py", *arguments]
        start = (
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); sys.exit(p.wait())"
        )
        self.parent = subprocess.Popen(
            [sys.executable, "-c", start, *command],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(self.temporary), "PIDS": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self.parent.stdout is not None
        self.tool = int(self.parent.stdout.readline())
        assert wait_until(lambda: (folder / "script").is_file() and bool((folder / "script").read_text()), 60.0)
        self.script = int((folder / "script").read_text())
        self.inner = int((folder / "inner").read_text())

    def left(self) -> list[str]:
        found = {"tool": self.tool, "script": self.script, "what it started": self.inner}
        return [name for name, pid in found.items() if runs(pid)] + sorted(p.name for p in self.temporary.iterdir())


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(*arguments: str) -> Running:
        running.append(Running(tmp_path, *arguments))
        return running[-1]

    yield start
    for one in running:
        for pid in (one.parent.pid, one.tool, one.script, one.inner):
            if runs(pid):
                os.kill(pid, signal.SIGKILL)
        one.parent.wait()


@pytest.mark.one_triton
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
@pytest.mark.parametrize("script", ["obedient", "stubborn"])
def test_a_signal_to_the_capture_leaves_nothing(started: Callable[..., Running], name: str, script: str) -> None:
    running = started(script)
    os.kill(running.tool, getattr(signal, name))
    assert wait_until(lambda: not running.left()), running.left()
    code = running.parent.wait(60)
    assert code not in (0, 1), "a script that was ended did not run to its end"


@pytest.mark.one_triton
def test_the_end_of_its_parent_ends_it(started: Callable[..., Running]) -> None:
    running = started("stubborn")
    running.parent.kill()
    assert wait_until(lambda: not running.left()), running.left()


@pytest.mark.one_triton
def test_a_script_that_ends_by_itself_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.rpartition("time.sleep(90)")[0])
    command = [sys.executable, "-m", "occupancy_cli", "capture", "-o", "specs", "script.py"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PIDS": str(tmp_path)}, capture_output=True, check=False)
    assert not runs(int((tmp_path / "inner").read_text()))
