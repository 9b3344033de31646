"""Runs pieces of code as kernel files in a process watched as a worker is, and tells what they were seen to look at.

`install` changes the whole process that it is called in, so that each test has one of its own.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

from locations import ROOT

HARNESS = """
import json, os, runpy, sys
from occupancy_cli.loading import outside_reads, outside_recordings
sys.path[:] = [folder for folder in sys.path if folder]
outside_reads.install([os.environ["TMPDIR"]] if "TMPDIR" in os.environ else [])
found = []
for path in sys.argv[1:]:
    with outside_recordings.recording() as seen:
        error = ""
        try:
            exec(compile(open(path).read(), path, "exec"), {"__file__": path, "__name__": "kernel"})
        except BaseException as bad:
            error = f"{type(bad).__name__}: {bad}"
    facts = [(f.kind, f.name, f.value) for f in seen.as_facts()]
    found.append({"facts": facts, "refusals": list(seen.refusals), "written": sorted(seen.written), "error": error})
print(json.dumps(found))
"""


def seen_by(*bodies: str, folder: Path, **environment: str) -> list[dict[str, Any]]:
    """What each body's run was seen to look at; they run one after the other in one process."""
    files = []
    for number, body in enumerate(bodies):
        file = folder / f"kernel{number}.py"
        file.write_text(textwrap.dedent(body))
        files.append(str(file))
    given = {**os.environ, **environment}
    places = list(filter(None, given.get("PYTHONPATH", "").split(os.pathsep)))
    if str(ROOT) not in places:  # this tree's package
        given["PYTHONPATH"] = os.pathsep.join([*places, str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", HARNESS, *files], capture_output=True, text=True, check=False, cwd=folder,
        env=given,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def filled(tmp_path: Path) -> Path:
    """A place where each look finds something."""
    for name in ("folder/sub", "path/package", "early"):
        (tmp_path / name).mkdir(parents=True)
    files = {"data.json": "[]", "folder/a.json": "1", "path/tuned.py": "X = 1", "numbers.txt": "1"}
    files |= {
        "path/package/__init__.py": "",
        "path/package/data.txt": "1",
        "folder/sub/c.json": "",
        "zipped.py": "X = 1",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.write(tmp_path / "zipped.py", "zipped.py")
    (tmp_path / "zipped.py").unlink()
    (tmp_path / "path" / "torch").mkdir()
    (tmp_path / "path" / "torch" / "__init__.py").write_text("def from_file(name): pass\n")
    (tmp_path / "link").symlink_to("data.json")
    (tmp_path / "path" / "compiled_thing.abi3.so").write_bytes(b"not an extension, but the import tells of it")
    sqlite3.connect(tmp_path / "tiles.db").close()
    return tmp_path
