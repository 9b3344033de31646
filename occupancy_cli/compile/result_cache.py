"""Results remembered by content, in SQLite.

A record's key holds the request (`CompileRequest.identity`) and the toolchain; the record holds what the result was
made from (`Dependencies`): facts of files, folders, absent modules, the environment, by hash. A look-up observes those
facts again: a hit needs neither Triton nor the kernel file, and a changed file, one that appeared, an upgrade of Triton
or another ptxas misses exactly the records it must. A record is never trusted beyond that: it carries its own hash.

The cache never stands in the way. A file that is damaged, or another program's, is put aside and started anew; where it
cannot be read or written (read-only, full disk), work goes on without it. `notice` and `trouble` say so. Values of the
environment and of arguments are in it as hashes only; its file is its owner's alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from occupancy_cli.compile.kernel_record import Dependencies
from occupancy_cli.compile.typed_json import WrongData, from_json, to_json
from occupancy_cli.errors import InputError
from occupancy_cli.loading.outside_facts import World

FORMAT = 4
MAX_BYTES = 1 << 30
"""Past this the older half of the records is forgotten, at the first result that a run adds."""
MOST_REASONS = 20
"""So many reasons why a kernel is not kept are remembered of each."""

_APPLICATION = 0x6F636370  # "occp": SQLite files of other programs have another
_TABLES = (
    "CREATE TABLE results (key TEXT NOT NULL, depends TEXT NOT NULL, payload TEXT NOT NULL, digest TEXT NOT NULL,"
    " triton TEXT NOT NULL, seconds REAL NOT NULL, made REAL NOT NULL, PRIMARY KEY (key, depends)) WITHOUT ROWID",
    "CREATE TABLE unkept (kernel TEXT NOT NULL PRIMARY KEY, reasons TEXT NOT NULL, made REAL NOT NULL) WITHOUT ROWID",
    # What follows from a record's own text: there is nothing outside that it depends on.
    "CREATE TABLE derived (key TEXT NOT NULL PRIMARY KEY, payload TEXT NOT NULL, digest TEXT NOT NULL,"
    " made REAL NOT NULL) WITHOUT ROWID",
)
# What the file cannot help: another process at it, or a place that does not let us. Anything else is damage.
_OF_THE_PLACE = ("locked", "busy", "readonly", "read-only", "full", "unable to open", "interrupted", "out of memory")

T = TypeVar("T")


def default_cache_dir() -> Path:
    """`OCCUPANCY_CACHE_DIR`, else `occupancy` in `XDG_CACHE_HOME` or ~/.cache."""
    if given := os.environ.get("OCCUPANCY_CACHE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "occupancy"


@dataclass(frozen=True)
class Unkept:
    """A kernel whose results are not kept, and what it does that cannot be recorded."""

    kernel: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class CacheInfo:
    """What `occupancy cache info` shows."""

    path: str
    records: int
    size_bytes: int
    triton_versions: tuple[str, ...]
    trouble: str = ""
    unkept: tuple[Unkept, ...] = ()


@dataclass(frozen=True)
class CacheCheck:
    """What `occupancy cache verify` found: records that would answer today, those whose sources have changed since
    (`stale`, with the first change of each), and damaged ones, which were removed."""

    holding: int
    stale: int
    damaged: int
    changes: tuple[tuple[str, int], ...]
    trouble: str = ""


class _NotOurs(sqlite3.DatabaseError):
    """The file is a database of another program or version."""


class ResultCache:
    """Payloads by request, verified against what they depend on. Safe to share between processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_dir()
        self.path = self.folder / f"results-{FORMAT}.sqlite"
        self.trouble = ""
        self.notice = ""
        """One line when the file had to be started anew."""
        self.unwritten = ""
        """Why a result could not be written, where reading works: a full disk, a file that is read-only."""
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._room_made = False
        self._world = World()
        self._depends: dict[str, tuple[Dependencies, bool] | None] = {}
        self._inode = 0

    def get(
        self,
        key: str,
        kind: type[T],
        accept: Callable[[T], bool] | None = None,
        *,
        device: Mapping[str, Any] | None = None,
    ) -> tuple[T, Dependencies] | None:
        """The newest value of type `kind` for `key` whose dependencies hold today, and on `device`, that `accept`
        takes, with its dependencies; else None.

        Several may hold: one that was made when less was asked for, and a later one that read more.
        """
        sql = "SELECT depends, payload, digest FROM results WHERE key = ? ORDER BY made DESC"
        for depends, payload, digest in self._run(sql, (key,)) or []:
            if not _is_whole(key, depends, payload, digest):
                self._run("DELETE FROM results WHERE key = ? AND depends IS ?", (key, depends), write=True)
                continue
            known = self._dependencies(depends)
            if known is None or not known[1] or not _answers_alike(known[0], device or {}):
                continue
            with contextlib.suppress(WrongData):  # of another version of this tool
                found = from_json(kind, payload)
                if accept is None or accept(found):
                    return found, known[0]
        return None

    def put(
        self, key: str, value: Any, depends_on: Dependencies, *, triton: str, seconds: float = 0.0, kernel: str = ""
    ) -> None:
        """Remember `value` with what it depends on; on trouble, remember the trouble instead."""
        depends, text = to_json(depends_on), to_json(value)
        row = (key, depends, text, _digest(key, depends, text), triton, seconds, time.time())
        self._make_room()
        self._run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row, write=True)
        if kernel:
            self._run("DELETE FROM unkept WHERE kernel = ?", (_storable(kernel),), write=True)

    def put_unkept(self, kernel: str, reasons: Iterable[str]) -> None:
        """Remember why a kernel's results are not kept, for `info`."""
        row = (_storable(kernel), to_json(tuple(reasons)[:MOST_REASONS]), time.time())
        self._run("INSERT OR REPLACE INTO unkept VALUES (?, ?, ?)", row, write=True)

    def seconds(self, key: str) -> float | None:
        """How long the result for `key` took to make, whatever its sources were then; None when it never was made."""
        rows = self._run("SELECT MAX(seconds) FROM results WHERE key = ?", (key,)) or [(None,)]
        return float(rows[0][0]) if isinstance(rows[0][0], (int, float)) else None

    def derived(self, key: str) -> str | None:
        """What `put_derived` kept under `key`."""
        for payload, digest in self._run("SELECT payload, digest FROM derived WHERE key = ?", (key,)) or []:
            if _is_whole(key, "", payload, digest):
                return str(payload)
            self._run("DELETE FROM derived WHERE key = ?", (key,), write=True)
        return None

    def put_derived(self, key: str, text: str) -> None:
        """Remember what follows from a text, whose hash `key` is, and from nothing else."""
        self._make_room()
        row = (key, text, _digest(key, "", text), time.time())
        self._run("INSERT OR REPLACE INTO derived VALUES (?, ?, ?, ?)", row, write=True)

    def info(self) -> CacheInfo:
        """Where the cache is, how much is in it, for which Triton versions, and which kernels are not kept."""
        rows = self._run("SELECT triton, COUNT(*) FROM results GROUP BY triton ORDER BY triton") or []
        said = self._run("SELECT kernel, reasons FROM unkept ORDER BY kernel") or []
        size = self.path.stat().st_size if self.path.is_file() else 0
        unkept = []
        for kernel, reasons in said:
            with contextlib.suppress(WrongData, TypeError):
                unkept.append(Unkept(str(kernel), from_json(tuple[str, ...], reasons)))
        versions = tuple(str(t) for t, _ in rows)
        return CacheInfo(str(self.path), sum(n for _, n in rows), size, versions, self.trouble, tuple(unkept))

    def verify(self) -> CacheCheck:
        """Read every record: whether it is whole, and whether it would answer today. Damaged ones are removed."""
        holding = stale = damaged = 0
        changes: dict[str, int] = {}
        for row in self._run("PRAGMA integrity_check(1)") or []:
            if row[0] != "ok":
                self._damaged(f"{row[0]}".splitlines()[0])
        for key, depends, payload, digest in self._run("SELECT key, depends, payload, digest FROM results") or []:
            if not _is_whole(key, depends, payload, digest) or (known := self._dependencies(depends)) is None:
                self._run("DELETE FROM results WHERE key IS ? AND depends IS ?", (key, depends), write=True)
                damaged += 1
            elif known[1]:
                holding += 1
            else:
                stale += 1
                broken = str(self._world.broken(known[0].facts))
                changes[broken] = changes.get(broken, 0) + 1
        for key, payload, digest in self._run("SELECT key, payload, digest FROM derived") or []:
            if not _is_whole(key, "", payload, digest):
                self._run("DELETE FROM derived WHERE key IS ?", (key,), write=True)
                damaged += 1
        often = sorted(changes.items(), key=lambda item: (-item[1], item[0]))
        return CacheCheck(holding, stale, damaged, tuple(often), self.trouble)

    def clear(self) -> int:
        """Remove every record, those of other versions of this tool too; returns how many there were of this one's.

        `InputError` when they cannot be removed.
        """
        count = self.info().records
        self.close()
        try:
            self._remove()
            for file in self.folder.glob("results-*.sqlite*"):
                file.unlink(missing_ok=True)
        except OSError as bad:
            raise InputError(
                f"the result cache cannot be removed: {bad.strerror or bad}", where=str(self.path)
            ) from bad
        self.trouble = self.notice = self.unwritten = ""
        return count

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._let_go()

    def _dependencies(self, text: str) -> tuple[Dependencies, bool] | None:
        """What `to_json` wrote of dependencies, and whether their facts hold; None when it is none.

        Records of one kernel have equal ones, and each is looked at once a run.
        """
        if text not in self._depends:
            try:
                found = from_json(Dependencies, text)
                self._depends[text] = (found, self._world.holds(found.facts))
            except (WrongData, KeyError):
                self._depends[text] = None
        return self._depends[text]

    def _make_room(self) -> None:
        """Forget the older half of the records when the file holds too much; looked at once a run."""
        if self._room_made:
            return
        self._room_made = True
        sizes = [self._run(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")]
        pages, free, page_bytes = (rows[0][0] if rows else 0 for rows in sizes)
        if (pages - free) * page_bytes > MAX_BYTES:
            for table in ("results", "derived"):
                half = f"SELECT made FROM {table} ORDER BY made LIMIT 1 OFFSET (SELECT COUNT(*) / 2 FROM {table})"
                self._run(f"DELETE FROM {table} WHERE made < ({half})", write=True)

    # --- the file ---

    def _run(self, sql: str, values: tuple[Any, ...] = (), *, write: bool = False) -> list[Any] | None:
        for _attempt in range(2):  # on a damaged file, then on a new one
            if self.trouble:
                return None
            with self._lock:
                try:
                    if self._connection is None:
                        self._connection = self._open()
                    with self._connection:
                        return self._connection.execute(sql, values).fetchall()
                except OSError as bad:
                    self.trouble = f"{self.folder}: {bad.strerror or bad}"
                    return None
                except (sqlite3.Error, ValueError, OverflowError, TypeError) as bad:
                    text = str(bad).lower()
                    if any(word in text for word in _OF_THE_PLACE):
                        # Reading may still work: a result that cannot be written is simply not kept.
                        if write:
                            self.unwritten = f"{self.path}: {bad}"
                        else:
                            self.trouble = f"{self.path}: {bad}"
                        return None
                    problem = str(bad)
            self._damaged(problem)
        return None

    def _damaged(self, problem: str) -> None:
        """Put the file aside, so that the next statement starts a new one."""
        with self._lock:
            self._let_go()
            self._room_made = False
            try:
                if self.path.stat().st_ino == self._inode or not self._inode:  # another process may have done so
                    aside = self.path.with_name(f"{self.path.name}.damaged")
                    self._remove_journals()
                    self.path.replace(aside)
                    self.notice = f"the result cache could not be read ({problem}) and is started anew; it was {aside}"
            except FileNotFoundError:
                pass
            except OSError as bad:
                self.trouble = f"{self.path}: {problem}, and it cannot be replaced: {bad.strerror or bad}"

    def _open(self) -> sqlite3.Connection:
        self._make_folder()
        read_only = self.path.is_file() and not os.access(self.path, os.W_OK)
        if not read_only:
            # Made before SQLite does: its journals take the permissions of the file.
            made = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                about = os.fstat(made)
                if about.st_mode & 0o077 and about.st_uid == os.geteuid():
                    os.fchmod(made, 0o600)
            finally:
                os.close(made)
        self._inode = self.path.stat().st_ino
        uri = f"{self.path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=20, check_same_thread=False, isolation_level=None)
        try:
            connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged one fails its digest
            if _marks(connection) != (_APPLICATION, FORMAT):
                self._begin(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Lay out an empty file; `_NotOurs` for any other."""
        connection.execute("BEGIN IMMEDIATE")  # of several that start at once, one lays it out
        try:
            if _marks(connection) != (_APPLICATION, FORMAT):
                tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
                if tables or _marks(connection) != (0, 0):
                    raise _NotOurs("it is a database of another program or version")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _make_folder(self) -> None:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            if not self.path.is_file():
                raise
            return
        about = self.folder.stat()
        # One that a person keeps other things in stays as they made it: the file itself is 0600.
        ours = about.st_uid == os.geteuid() and all(f.name.startswith("results-") for f in self.folder.iterdir())
        if about.st_mode & 0o077 and ours:
            with contextlib.suppress(OSError):
                self.folder.chmod(0o700)

    def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._remove_journals()

    def _remove_journals(self) -> None:
        # One that is left would be played back into the next file of that name.
        for suffix in ("-journal", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def _marks(connection: sqlite3.Connection) -> tuple[Any, Any]:
    return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))


def _storable(name: str) -> str:
    """A file's name as SQLite takes it: bytes that are no UTF-8 as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _is_whole(key: Any, depends: Any, payload: Any, digest: Any) -> bool:
    texts = isinstance(key, str) and isinstance(depends, str) and isinstance(payload, str)
    return texts and _digest(key, depends, payload) == digest


def _answers_alike(depends_on: Dependencies, device: Mapping[str, Any]) -> bool:
    return all(device.get(name) == value for name, value in depends_on.device)


def _digest(key: str, depends: str, payload: str) -> str:
    return hashlib.sha256("\0".join((key, depends, payload)).encode(errors="surrogateescape")).hexdigest()
