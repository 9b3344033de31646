"""The result cache: what it keeps, when it does not answer, and what damage does to it (nothing)."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from occupancy_cli.compile import result_cache as cache_module
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker import EnvironmentReads
from occupancy_cli.errors import InputError


def put(cache: ResultCache, key: str, value: int, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    cache.put(key, {"value": value}, files={str(file): digest}, env={"SOME_VARIABLE": None}, triton="3.9.0")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("one")
    return path


def test_a_record_answers_while_its_files_and_variables_hold(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ResultCache(tmp_path / "c"), "k", 1, source)
    assert ResultCache(tmp_path / "c").get("k") == {"value": 1}
    assert ResultCache(tmp_path / "c").get("other") is None
    monkeypatch.setenv("SOME_VARIABLE", "set")
    assert ResultCache(tmp_path / "c").get("k") is None
    monkeypatch.delenv("SOME_VARIABLE")
    source.write_text("two")
    assert ResultCache(tmp_path / "c").get("k") is None
    put(ResultCache(tmp_path / "c"), "k", 2, source)
    source.write_text("one")
    assert ResultCache(tmp_path / "c").get("k") == {"value": 1}  # both versions are kept


def test_of_several_records_that_hold_the_newest_with_what_is_asked_for_answers(tmp_path: Path, source: Path) -> None:
    """A record made before more was asked for must not stand in the way of the one that has it."""
    cache = ResultCache(tmp_path / "c")
    kept = {"files": {str(source): hashlib.sha256(b"one").hexdigest()}, "triton": "3.9.0"}
    # What was read when they were made differs, so both stay; by key and dependencies either may come first.
    for first, second in (("A", "B"), ("B", "A")):
        key = first + second
        cache.put(key, {"value": 1}, env={first: None}, **kept)
        cache.put(key, {"value": 2, "timings": {"gpu": 5}}, env={second: None}, **kept)
        cache.put(key, {"value": 3}, env={"C": None}, **kept)
        assert cache.get(key) == {"value": 3}
        assert cache.get(key, lambda found: "timings" in found) == {"value": 2, "timings": {"gpu": 5}}
        assert cache.get(key, lambda found: "cubin" in found) is None


def test_the_older_half_is_forgotten_past_the_limit(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ResultCache(tmp_path / "c")
    for i in range(10):
        put(first, f"k{i}", i, source)
    first.close()
    put(ResultCache(tmp_path / "c"), "k10", 10, source)
    assert ResultCache(tmp_path / "c").info().records == 11  # far below a gigabyte
    monkeypatch.setattr(cache_module, "MAX_BYTES", 4096)
    put(ResultCache(tmp_path / "c"), "k11", 11, source)
    left = ResultCache(tmp_path / "c")
    # 11 // 2 = 5 go, k0 to k4, and one came.
    assert [i for i in range(12) if left.get(f"k{i}") is not None] == [*range(5, 12)]


def test_a_changed_payload_is_not_trusted(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    cache.close()
    with sqlite3.connect(cache.path) as raw:
        raw.execute("UPDATE results SET payload = ?", ('{"value": 99}',))
    again = ResultCache(tmp_path / "c")
    assert again.get("k") is None
    assert again.info().records == 0  # and it is gone


@pytest.mark.parametrize(
    "change", ["payload = x'ff00fe'", "payload = CAST(x'ff00fe' AS TEXT)", "depends = 7", "depends = 'zzz'"]
)
def test_a_record_of_random_bytes_is_none(tmp_path: Path, source: Path, change: str) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    cache.close()
    with sqlite3.connect(cache.path) as raw:
        raw.execute(f"UPDATE results SET {change}")
    again = ResultCache(tmp_path / "c")
    assert again.get("k") is None
    assert again.trouble == ""
    put(again, "k", 2, source)
    assert again.get("k") == {"value": 2}


@pytest.mark.parametrize("depends", ["{}", "[]", '{"files": 1, "env": {}}'])
def test_a_record_of_another_shape_is_none(tmp_path: Path, depends: str) -> None:
    cache = ResultCache(tmp_path / "c")
    cache.put("k", {"value": 1}, files={}, env={}, triton="3.9.0")
    cache.close()
    digest = hashlib.sha256((depends + "{}").encode()).hexdigest()
    with sqlite3.connect(cache.path) as raw:
        raw.execute("UPDATE results SET depends = ?, payload = '{}', digest = ?", (depends, digest))
    assert ResultCache(tmp_path / "c").get("k") is None


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b"", b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_damaged_file_is_set_aside(tmp_path: Path, source: Path, damage: bytes) -> None:
    first = ResultCache(tmp_path / "c")
    put(first, "k", 1, source)
    first.close()
    first.path.write_bytes(damage)
    broken = ResultCache(tmp_path / "c")
    assert broken.get("k") is None
    put(broken, "k", 1, source)
    after = ResultCache(tmp_path / "c")
    put(after, "k", 1, source)
    assert after.get("k") == {"value": 1}


def test_a_folder_that_cannot_be_made_only_turns_the_cache_off(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ResultCache(tmp_path / "file" / "cache")
    put(cache, "k", 1, source)
    assert cache.get("k") is None
    assert "file/cache" in cache.trouble


def test_a_cache_that_cannot_be_cleared_is_one_error(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    cache.path.mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be removed"):
        cache.clear()


def test_clear_forgets_everything(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "a", 1, source)
    (cache.folder / "results-1.sqlite").write_bytes(b"of an earlier version")
    put(cache, "b", 2, source)
    assert cache.clear() == 2
    assert not list(cache.folder.iterdir())
    assert cache.get("a") is None
    assert ResultCache(tmp_path / "c").info().records == 0


def _write_many(folder: Path, source: Path, start: int) -> None:
    cache = ResultCache(folder)
    for i in range(start, start + 60):
        put(cache, str(i), i, source)
    assert not cache.trouble, cache.trouble


def test_parallel_writers_lose_nothing(tmp_path: Path, source: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(tmp_path / "c", source, 60 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [w.exitcode for w in writers] == [0, 0, 0]
    cache = ResultCache(tmp_path / "c")
    assert [cache.get(str(i)) for i in range(180)] == [{"value": i} for i in range(180)]


def test_a_child_process_is_no_read_of_the_whole_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9 spawns ptxas without closing files, which hands `os.environ` on item by item: were that a read, a
    result made in one shell would be unknown to the next (SHLVL, OLDPWD)."""
    monkeypatch.setenv("HANDED_ON", "1")
    monkeypatch.setenv("ASKED_FOR", "2")
    reads = EnvironmentReads()
    with reads.recording():
        subprocess.run(["/bin/true"], check=True, close_fds=False)
        assert os.environ["ASKED_FOR"] == "2"
        assert os.environ.get("NOT_SET_AT_ALL") is None
    assert reads.values["ASKED_FOR"] == "2"
    assert reads.values["NOT_SET_AT_ALL"] is None
    assert "HANDED_ON" not in reads.values
