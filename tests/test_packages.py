"""Wheel and source distribution: the same bytes wherever and whenever they are built, and whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from locations import ROOT

pytest.importorskip("hatchling")
pytestmark = pytest.mark.slow

NOT_BUILT_FROM = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "data", "given", "h200")


def built(source: Path, umask: int, **env: str) -> dict[str, Path]:
    """The distributions of a copy of the tree by the ends of their names."""
    out = source.parent / "out"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=source, env=os.environ | env, check=True,
        capture_output=True, umask=umask,
    )  # fmt: skip
    return {"".join(path.suffixes[-1:]): path for path in out.iterdir()}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    """Built in two folders, at two times of two time zones, by two users' habits."""
    found = []
    for name, umask, zone, at in (
        ("one", 0o022, "UTC", 1_600_000_000),
        ("another", 0o077, "Asia/Tokyo", 1_700_000_000),
    ):
        source = tmp_path_factory.mktemp(name) / "tree"
        shutil.copytree(ROOT, source, ignore=NOT_BUILT_FROM)
        for path in source.rglob("*"):
            os.utime(path, (at, at))
        found.append(built(source, umask, TZ=zone, SOURCE_DATE_EPOCH="1700000000"))
    return found


def test_the_same_bytes(twice: list[dict[str, Path]]) -> None:
    one, another = twice
    assert len(one) == 2 and one.keys() == another.keys()
    for kind, path in one.items():
        digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (path, another[kind])]
        assert digests[0] == digests[1], path.name


def test_what_is_in_them(twice: list[dict[str, Path]]) -> None:
    paths = list(twice[0].values())
    (wheel,) = (p for p in paths if p.suffix == ".whl")
    (sdist,) = (p for p in paths if p.suffix == ".gz")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for path in ("occupancy_cli/py.typed", "occupancy_cli/_shipped/hw_profiles/index.txt"):
        assert path in inside, path
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    for path in ("mkdocs.yml", "docs/hooks/reference.py", "CONTRIBUTING.md", "tests/test_docs.py", "pyproject.toml"):
        assert path in files, path
