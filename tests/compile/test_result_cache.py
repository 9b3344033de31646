"""The result cache: what it keeps, when it does not answer, and what damage does to it (nothing)."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import sqlite3
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from occupancy_cli.compile import result_cache as cache_module
from occupancy_cli.compile.kernel_record import Dependencies
from occupancy_cli.compile.result_cache import ResultCache, Unkept
from occupancy_cli.errors import InputError
from occupancy_cli.loading.outside_facts import Fact, hashed, observe


@dataclass(frozen=True)
class Value:
    value: int
    times: Mapping[str, int] = field(default_factory=dict)


def seen(*facts: Fact) -> Dependencies:
    return Dependencies(facts, ())


def of_file(file: Path) -> Fact:
    return Fact("content", str(file), hashlib.sha256(file.read_bytes()).hexdigest())


def put(cache: ResultCache, key: str, value: int, file: Path) -> None:
    depends_on = seen(of_file(file), Fact("variable", "SOME_VARIABLE", None))
    cache.put(key, Value(value), depends_on, triton="3.9.0", kernel="k.py:k")


def got(cache: ResultCache, key: str) -> int | None:
    found = cache.get(key, Value)
    return None if found is None else found[0].value


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("one")
    return path


def test_a_record_answers_while_its_files_and_variables_hold(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ResultCache(tmp_path / "c"), "k", 1, source)
    assert got(ResultCache(tmp_path / "c"), "k") == 1
    assert got(ResultCache(tmp_path / "c"), "other") is None
    monkeypatch.setenv("SOME_VARIABLE", "set")
    assert got(ResultCache(tmp_path / "c"), "k") is None
    monkeypatch.delenv("SOME_VARIABLE")
    source.write_text("two")
    assert got(ResultCache(tmp_path / "c"), "k") is None
    put(ResultCache(tmp_path / "c"), "k", 2, source)
    source.write_text("one")
    assert got(ResultCache(tmp_path / "c"), "k") == 1  # both versions are kept


def test_of_several_records_that_hold_the_newest_with_what_is_asked_for_answers(tmp_path: Path, source: Path) -> None:
    """A record made before more was asked for must not stand in the way of the one that has it."""
    cache = ResultCache(tmp_path / "c")
    # What was read when they were made differs, so both stay; by key and dependencies either may come first.
    for first, second in (("A", "B"), ("B", "A")):
        key = first + second
        cache.put(key, Value(1), seen(of_file(source), Fact("variable", first, None)), triton="3.9.0")
        cache.put(key, Value(2, {"gpu": 5}), seen(of_file(source), Fact("variable", second, None)), triton="3.9.0")
        cache.put(key, Value(3), seen(of_file(source), Fact("variable", "C", None)), triton="3.9.0")
        assert got(cache, key) == 3
        found = cache.get(key, Value, lambda value: bool(value.times))
        assert found is not None and found[0] == Value(2, {"gpu": 5})
        assert cache.get(key, Value, lambda value: value.value > 3) is None


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
    assert [i for i in range(12) if got(left, f"k{i}") is not None] == [*range(5, 12)]


def test_a_changed_payload_is_not_trusted(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    cache.close()
    with sqlite3.connect(cache.path) as raw:
        raw.execute("UPDATE results SET payload = ?", ('{"value": 99}',))
    again = ResultCache(tmp_path / "c")
    assert got(again, "k") is None
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
    assert got(again, "k") is None
    assert again.trouble == ""
    put(again, "k", 2, source)
    assert got(again, "k") == 2


@pytest.mark.parametrize("depends", ["{}", "[]", '{"facts": 1, "device": []}', '{"facts": [["a"]], "device": []}'])
def test_a_record_of_another_shape_is_none(tmp_path: Path, depends: str) -> None:
    cache = ResultCache(tmp_path / "c")
    cache.put("k", Value(1), seen(), triton="3.9.0")
    cache.close()
    digest = hashlib.sha256("\0".join(("k", depends, '{"times": {}, "value": 1}')).encode()).hexdigest()
    with sqlite3.connect(cache.path) as raw:
        raw.execute("UPDATE results SET depends = ?, digest = ?", (depends, digest))
    assert got(ResultCache(tmp_path / "c"), "k") is None


def test_a_value_of_another_type_is_none(tmp_path: Path, source: Path) -> None:
    @dataclass(frozen=True)
    class Other:
        name: str

    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    assert cache.get("k", Other) is None


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b"", b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_damaged_file_is_set_aside_in_the_same_run(tmp_path: Path, source: Path, damage: bytes) -> None:
    first = ResultCache(tmp_path / "c")
    put(first, "k", 1, source)
    first.close()
    first.path.write_bytes(damage)
    broken = ResultCache(tmp_path / "c")
    assert got(broken, "k") is None
    put(broken, "k", 2, source)
    assert (got(broken, "k"), broken.trouble) == (2, "")
    # An empty file is a new one. What was damaged can still be looked at.
    assert bool(broken.notice) == bool(damage) == first.path.with_name(f"{first.path.name}.damaged").exists()
    assert broken.notice.count("\n") == 0


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE of_another_program (x)",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 7",
        "DROP TABLE results",
        "DROP TABLE results; CREATE TABLE results (key BLOB, else_ INT)",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE results (ke'",
    ],
)
def test_a_database_that_is_not_ours_is_set_aside(tmp_path: Path, source: Path, script: str) -> None:
    cache = ResultCache(tmp_path / "c")
    if "of_another" in script:
        cache.folder.mkdir()
    else:
        put(cache, "k", 1, source)
        cache.close()
    with contextlib.closing(sqlite3.connect(cache.path)) as raw:
        raw.executescript(script)
    again = ResultCache(tmp_path / "c")
    assert got(again, "k") is None
    put(again, "k", 2, source)
    assert (got(again, "k"), again.trouble) == (2, "")
    assert "started anew" in again.notice


@pytest.mark.parametrize("change", ["seconds = 'x'", "made = x'ff'", "triton = x'ff00'", "triton = 3"])
def test_a_column_of_another_type_is_no_traceback(tmp_path: Path, source: Path, change: str) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    cache.close()
    with sqlite3.connect(cache.path) as raw:
        raw.execute(f"UPDATE results SET {change}")
    again = ResultCache(tmp_path / "c")
    assert got(again, "k") == 1  # which it does not decide
    assert again.seconds("k") in (0.0, None)
    assert again.info().records == 1


def test_no_flipped_byte_gives_another_answer_or_a_traceback(tmp_path: Path, source: Path) -> None:
    """Every 199th byte of a small cache; `validation/cache_damage.py` flips every 64th of one that compiles filled."""
    good = ResultCache(tmp_path / "c")
    for i in range(8):
        put(good, f"k{i}", i, source)
    good.close()
    data = good.path.read_bytes()
    for at in range(0, len(data), 199):
        flipped = bytearray(data)
        flipped[at] ^= 0xFF
        good.path.write_bytes(flipped)
        cache = ResultCache(tmp_path / "c")
        for i in range(8):
            assert got(cache, f"k{i}") in (i, None), at
        cache.info()
        cache.verify()
        put(cache, "new", 9, source)
        assert (got(cache, "new"), cache.trouble) == (9, ""), at
        cache.clear()


def test_nobody_else_reads_it_and_no_value_of_the_environment_is_in_it(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret-4711")
    before = os.umask(0o022)
    try:
        cache = ResultCache(tmp_path / "made" / "c")
        fact = Fact("variable", "A_TOKEN", observe("variable", "A_TOKEN"))
        cache.put("k", Value(1), seen(fact), triton="3.9.0")
    finally:
        os.umask(before)
    assert got(ResultCache(tmp_path / "made" / "c"), "k") == 1
    monkeypatch.setenv("A_TOKEN", "secret-4712")
    assert got(ResultCache(tmp_path / "made" / "c"), "k") is None
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (cache.folder, cache.path)}
    assert modes == {"c": 0o700, cache.path.name: 0o600}
    assert b"secret" not in cache.path.read_bytes()
    assert hashed("A", "x") != hashed("B", "x")  # equal values do not show as such


def test_a_cache_that_others_could_read_is_closed_to_them(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "k", 1, source)
    cache.close()
    cache.path.chmod(0o644)
    cache.folder.chmod(0o755)
    assert got(ResultCache(tmp_path / "c"), "k") == 1
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    (cache.folder / "of a person.txt").write_text("")
    cache.folder.chmod(0o755)  # a folder that holds more is a person's own
    assert got(ResultCache(tmp_path / "c"), "k") == 1
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o755


def test_verify_tells_what_holds_what_is_stale_and_removes_what_is_damaged(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    other = tmp_path / "other.py"
    other.write_text("1")
    put(cache, "holds", 1, source)
    put(cache, "stale", 2, other)
    put(cache, "damaged", 3, source)
    cache.close()
    other.write_text("2")
    with sqlite3.connect(cache.path) as raw:
        raw.execute("UPDATE results SET payload = '{}' WHERE key = 'damaged'")
    found = ResultCache(tmp_path / "c").verify()
    assert (found.holding, found.stale, found.damaged, found.changes) == (1, 1, 1, ((str(other), 1),))
    assert ResultCache(tmp_path / "c").info().records == 2


def test_why_a_kernel_is_not_kept_is_remembered_until_it_is(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    cache.put_unkept("k.py:k", ["k.py:3 starts a process"])
    assert cache.info().unkept == (Unkept("k.py:k", ("k.py:3 starts a process",)),)
    put(cache, "k", 1, source)
    assert cache.info().unkept == ()


def test_a_kernel_whose_file_is_named_by_no_text_is_kept_as_any_other(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    name = os.fsdecode(b"\xff.py:k")
    cache.put_unkept(name, [f"{name}:3 starts a process"])
    assert cache.info().unkept == (Unkept(r"\udcff.py:k", (f"{name}:3 starts a process",)),)
    cache.put("k", Value(1), seen(of_file(source), Fact("kind", name, "file")), triton="3.9.0", kernel=name)
    assert (cache.info().unkept, cache.info().records, cache.notice) == ((), 1, "")


def test_a_full_disk_loses_a_result_and_says_so_once(tmp_path: Path, source: Path) -> None:
    cache = ResultCache(tmp_path / "c")
    put(cache, "before", 1, source)
    assert cache._connection is not None
    cache._connection.execute("PRAGMA max_page_count = 1")  # SQLITE_FULL, as a disk without room gives
    for i in range(200):
        cache.put(f"k{i}", Value(i, {"x" * 500: i}), seen(of_file(source)), triton="3.9.0")
    assert "full" in cache.unwritten and str(cache.path) in cache.unwritten and cache.trouble == cache.notice == ""
    assert got(cache, "before") == 1


def test_a_folder_that_cannot_be_made_only_turns_the_cache_off(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ResultCache(tmp_path / "file" / "cache")
    put(cache, "k", 1, source)
    assert got(cache, "k") is None
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
    assert got(cache, "a") is None
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
    assert [got(cache, str(i)) for i in range(180)] == list(range(180))
