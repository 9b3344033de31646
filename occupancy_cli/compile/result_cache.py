"""Results remembered by content, in SQLite.

A record's key holds the request (`CompileRequest.identity`) and the Triton version; the record holds the hash of every
source file that loading the kernel read, the value of every environment variable that was read, and what the kernel
asked its GPU. A lookup hashes those files again, as ccache's direct mode does: a hit needs neither Triton nor the
kernel file, and a changed file, an upgrade of Triton or another ptxas misses exactly the records it must. A record is
never trusted beyond that: its payload carries its own hash. When the cache cannot be read or written (read-only, full
disk, damaged), work goes on without it and `trouble` says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.loading.file_reads import fingerprint

FORMAT = 2
MAX_BYTES = 1 << 30
"""Past this the older half of the records is forgotten, at the first result that a run adds."""

_TABLE = """
CREATE TABLE IF NOT EXISTS results (
  key TEXT NOT NULL, depends TEXT NOT NULL, payload TEXT NOT NULL, digest TEXT NOT NULL, triton TEXT NOT NULL,
  seconds REAL NOT NULL, made REAL NOT NULL, PRIMARY KEY (key, depends)
) WITHOUT ROWID
"""


def default_cache_dir() -> Path:
    """`OCCUPANCY_CACHE_DIR`, else `occupancy` in `XDG_CACHE_HOME` or ~/.cache."""
    if given := os.environ.get("OCCUPANCY_CACHE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "occupancy"


@dataclass(frozen=True)
class CacheInfo:
    """What `occupancy cache info` shows."""

    path: str
    records: int
    size_bytes: int
    triton_versions: tuple[str, ...]
    trouble: str = ""


class ResultCache:
    """Payloads by request, verified against the files and variables they depend on. Safe to share between processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_dir()
        self.path = self.folder / f"results-{FORMAT}.sqlite"
        self.trouble = ""
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._room_made = False
        self._hashes: dict[str, str | None] = {}

    def get(
        self,
        key: str,
        accept: Callable[[Mapping[str, Any]], bool] | None = None,
        *,
        device: Mapping[str, int] | None = None,
    ) -> dict[str, Any] | None:
        """The newest payload for `key` whose dependencies hold today, and on `device`, that `accept` takes; else None.

        Several may hold: one that was made when less was asked for, and a later one that read more.
        """
        sql = "SELECT depends, payload, digest FROM results WHERE key = ? ORDER BY made DESC"
        for depends, payload, digest in self._run(sql, (key,)) or []:
            if not (isinstance(depends, str) and isinstance(payload, str)) or _digest(depends, payload) != digest:
                self._run("DELETE FROM results WHERE key = ? AND depends = ?", (key, depends), write=True)
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                if self._holds(json.loads(depends), device or {}):
                    found: dict[str, Any] = json.loads(payload)
                    if accept is None or accept(found):
                        return found
        return None

    def put(
        self,
        key: str,
        payload: Mapping[str, Any],
        *,
        files: Mapping[str, str],
        env: Mapping[str, str | None],
        triton: str,
        device: Mapping[str, int] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Remember `payload` with what it depends on; on trouble, remember the trouble instead.

        `device` is what the kernel asked its GPU, beyond the architecture that the key holds.
        """
        depends = json.dumps({"files": dict(files), "env": dict(env), "device": dict(device or {})}, sort_keys=True)
        text = json.dumps(dict(payload), sort_keys=True)
        row = (key, depends, text, _digest(depends, text), triton, seconds, time.time())
        self._make_room()
        self._run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row, write=True)

    def seconds(self, key: str) -> float | None:
        """How long the result for `key` took to make, whatever its sources were then; None when it never was made."""
        rows = self._run("SELECT MAX(seconds) FROM results WHERE key = ?", (key,)) or [(None,)]
        return None if rows[0][0] is None else float(rows[0][0])

    def info(self) -> CacheInfo:
        """Where the cache is, how much is in it, for which Triton versions."""
        rows = self._run("SELECT triton, COUNT(*) FROM results GROUP BY triton ORDER BY triton") or []
        size = self.path.stat().st_size if self.path.is_file() else 0
        return CacheInfo(str(self.path), sum(n for _, n in rows), size, tuple(t for t, _ in rows), self.trouble)

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
        self.trouble = ""
        return count

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _make_room(self) -> None:
        """Forget the older half of the records when the file holds too much; looked at once a run."""
        if self._room_made:
            return
        self._room_made = True
        sizes = [self._run(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")]
        pages, free, page_bytes = (rows[0][0] if rows else 0 for rows in sizes)
        if (pages - free) * page_bytes > MAX_BYTES:
            half = "SELECT made FROM results ORDER BY made LIMIT 1 OFFSET (SELECT COUNT(*) / 2 FROM results)"
            self._run(f"DELETE FROM results WHERE made < ({half})", write=True)

    def _holds(self, depends: Mapping[str, Any], device: Mapping[str, int]) -> bool:
        return (
            all(os.environ.get(n) == v for n, v in depends["env"].items())
            and all(device.get(n) == v for n, v in depends["device"].items())
            and all(self._hash(f) == h for f, h in depends["files"].items())
        )

    def _hash(self, file: str) -> str | None:
        if file not in self._hashes:
            self._hashes[file] = fingerprint(file)
        return self._hashes[file]

    def _run(self, sql: str, values: tuple[Any, ...] = (), *, write: bool = False) -> list[Any] | None:
        if self.trouble:
            return None
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                with self._connection:
                    return self._connection.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as bad:
                if write and ("readonly" in str(bad) or "read-only" in str(bad) or "full" in str(bad)):
                    self.trouble = ""  # reading still works; this result is simply not kept
                    return None
                if not isinstance(bad, sqlite3.OperationalError) and self._set_aside():
                    return None
                self.trouble = f"{self.path}: {bad}"
            except OSError as bad:
                self.trouble = f"{self.folder}: {bad.strerror or bad}"
        return None

    def _open(self) -> sqlite3.Connection:
        read_only = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            if not self.path.is_file():
                raise
        if self.path.is_file() and not os.access(self.path, os.W_OK):
            read_only = True
        mode = "ro" if read_only else "rwc"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=20, check_same_thread=False)
        connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged one fails its digest
        if not read_only:
            connection.execute(_TABLE)
        return connection

    def _set_aside(self) -> bool:
        """Remove a damaged file, so that the next run starts a new one; whether that worked."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            self._remove()
        except OSError:
            return False
        return True

    def _remove(self) -> None:
        # The journals too: one that is left would be played back into the next file of that name.
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def _digest(depends: str, payload: str) -> str:
    return hashlib.sha256((depends + payload).encode()).hexdigest()
