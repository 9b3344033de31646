"""Other versions of Triton, beside the one installed: built once and kept, or found where a person says.

A version is a folder that holds the package `triton` and nothing else; put in front of Python's path it takes the place
of the installed one, and everything else stays as it is. Folders that are built lie in the cache folder, under
`triton/VERSION`, made by pip; a path may be such a folder, a virtual environment, or a `site-packages`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from occupancy_cli.compile.result_cache import default_cache_dir
from occupancy_cli.errors import InputError, MissingDependencyError

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?([a-z.+-][\w.+-]*)?")
_BUILD_SECONDS = 1800


@contextlib.contextmanager
def triton_folder(name: str) -> Iterator[Path]:
    """A folder with the Triton that `name` says, a version or a path, alone in it.

    Raises `InputError` for a path without Triton or with one for another Python, `MissingDependencyError` where pip
    cannot get the version.
    """
    if _VERSION.fullmatch(name) and not Path(name).exists():
        yield _built(name)
        return
    package = _package_in(Path(name))
    with tempfile.TemporaryDirectory(prefix="occupancy-triton-") as folder:
        (Path(folder) / "triton").symlink_to(package, target_is_directory=True)
        yield Path(folder)


def environment_of(folder: Path) -> dict[str, str]:
    """The environment in which Python finds that Triton first, and this tool where it is now."""
    own = str(Path(__file__).resolve().parents[2])
    path = [str(folder), own, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _package_in(path: Path) -> Path:
    places = [path, *sorted(path.glob("lib/python*/site-packages"))]
    package = next((p / "triton" for p in places if (p / "triton" / "__init__.py").is_file()), None)
    if package is None:
        raise InputError(
            "no Triton is there",
            where=f"--triton {path}",
            hint="Give a version such as 3.6.0, a virtual environment, or a folder that holds `triton`.",
        )
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    compiled = [file.name for file in (package / "_C").glob("libtriton*.so")]
    if compiled and not any(tag in file or "cpython" not in file for file in compiled):
        raise InputError(f"its Triton is for another Python ({compiled[0]}, this is {tag})", where=f"--triton {path}")
    return package.resolve()


def _built(version: str) -> Path:
    """The folder of a version in the cache, made when it is not there: whole, or not at all."""
    folder = default_cache_dir() / "triton" / f"{version}-py{sys.version_info.major}{sys.version_info.minor}"
    if (folder / "triton" / "__init__.py").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder.parent) as making:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", making]
        try:
            done = subprocess.run(
                [*command, f"triton=={version}"], capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS
            )
        except subprocess.TimeoutExpired as late:
            raise MissingDependencyError(
                f"pip took more than {_BUILD_SECONDS} s", where=f"--triton {version}"
            ) from late
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            raise MissingDependencyError(
                f"pip does not get it: {said[0] if said else 'no reason given'}",
                where=f"--triton {version}",
                hint="Give the path of an environment that has it: --triton 3.6.0 or --triton /path/to/venv.",
            )
        whole = Path(making) / "whole"
        whole.mkdir()
        shutil.move(str(Path(making) / "triton"), str(whole / "triton"))
        with contextlib.suppress(FileExistsError, OSError):  # another run may have made it meanwhile
            whole.replace(folder)
    return folder
