"""What counts as read: files opened and folders listed by plain code, there or not; not what is imported or written."""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path

import pytest

from occupancy_cli.loading.file_reads import as_read, file_reads, fingerprint, fingerprints, now_ns


def test_files_opened_and_folders_listed_are_told_whether_they_are_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs.json").write_text("[]")
    with file_reads() as read:
        Path("configs.json").read_text()  # relative to the folder of that moment
        os.close(os.open(b"configs.json", os.O_RDONLY))
        with pytest.raises(FileNotFoundError):
            Path("missing.json").read_text()
        list(tmp_path.glob("*.json"))
        Path("written.txt").write_text("x")
        Path("log.txt").write_text("x")
        Path("log.txt").read_text()
        Path("/proc/self/stat").read_text()
    Path("configs.json").read_bytes()  # no longer asked
    assert read == {str(tmp_path), str(tmp_path / "configs.json"), str(tmp_path / "missing.json")}


def test_what_the_import_system_opens_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_here.py").write_text(
        "from pathlib import Path\nDATA = Path(__file__).with_name('d').exists()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with file_reads() as read:
        importlib.import_module("imported_here")
    assert read == set()


def test_reads_inside_one_another_each_see_theirs(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("")
    second.write_text("")
    with file_reads() as outer:
        first.read_text()
        with file_reads() as inner:
            second.read_text()
    assert (outer, inner) == ({str(first), str(second)}, {str(second)})


def test_a_fingerprint_is_of_content_and_a_folders_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "a.json", tmp_path / "configs"
    file.write_text("[64]")
    folder.mkdir()
    assert fingerprint(str(file)) == hashlib.sha256(b"[64]").hexdigest()
    empty = fingerprint(str(folder))
    (folder / "b.json").write_text("1")
    named = fingerprint(str(folder))
    (folder / "b.json").write_text("2")
    assert empty != named == fingerprint(str(folder))
    assert fingerprint(str(tmp_path / "missing")) is None
    monkeypatch.setattr("occupancy_cli.loading.file_reads.MOST_BYTES", 3)
    large = fingerprint(str(file))
    os.utime(file, ns=(1, 1))
    assert large is not None and large.startswith("4 bytes of") and fingerprint(str(file)) == "4 bytes of 1"


def test_devices_and_what_lies_beside_are_left_out(tmp_path: Path) -> None:
    inside = tmp_path / "torch" / "version.txt"
    inside.parent.mkdir()
    inside.write_text("")
    os.mkfifo(tmp_path / "fifo")
    paths = [str(inside), str(tmp_path / "torch2"), str(tmp_path / "fifo"), str(tmp_path / "x.pyc")]
    assert fingerprints(paths, [str(tmp_path / "torch")], now_ns()) == {str(tmp_path / "torch2"): None}


def test_a_file_that_changed_while_it_was_read_has_no_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("[64]")
    written = file.stat().st_mtime_ns
    assert as_read(str(file), written) == fingerprint(str(file))
    assert as_read(str(file), written - 1) == "changed while it was read"
    assert as_read(str(tmp_path / "missing"), written) is None
    os.utime(file, ns=(written, written + 10**15))  # by a clock that is ahead
    assert as_read(str(file), written) == fingerprint(str(file))
