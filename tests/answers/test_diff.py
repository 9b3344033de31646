"""`diff`: maps and registers of two sides, paired by line, by text and by value; operands of every form."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from locations import DATA
from report_schema import valid_report
from small_gemm import small_gemm
from typer.testing import CliRunner

from occupancy_cli.answers.diff import compared, paired
from occupancy_cli.answers.explained import shared_map_part
from occupancy_cli.answers.map_changes import buffer_changes
from occupancy_cli.cli.app import app
from occupancy_cli.compile.triton_environments import environment_of, triton_folder
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.readers.shared_map import read_shared_map
from occupancy_cli.report.explain_parts import Buffer, SharedMemoryMap, SourceText
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report


def _buffer(value: str, offset: int, size: int, life: tuple[int, int], line: int, *, peak: bool = True) -> Buffer:
    source = SourceText(file="k.py", line=line, text=f"{value} = tl.load({value}_ptr)")
    return Buffer(
        offset=offset, bytes=size, shape=[size // 2], dtype="bf16", copies=1, purpose="dot operand", value=value,
        live_from=life[0], live_to=life[1], at_peak=peak, source=source,
    )  # fmt: skip


def _map(*buffers: Buffer) -> SharedMemoryMap:
    total = max(b.offset + b.bytes for b in buffers)
    return SharedMemoryMap(
        total_bytes=total, operations=99, peak_at=0, peak_unused_bytes=0, loops=[], buffers=list(buffers)
    )


def test_buffers_that_no_longer_share_an_address_are_named() -> None:
    # Both take 1,024 bytes before and after; the total grows since b no longer lies where a lay.
    before = _map(_buffer("a", 0, 1024, (1, 5), 10), _buffer("b", 0, 1024, (6, 9), 20, peak=False))
    after = _map(_buffer("a", 0, 1024, (1, 7), 10), _buffer("b", 1024, 1024, (6, 9), 20))
    changes = {c.value: c for c in buffer_changes(before, after)}
    assert changes["b"].said == "no longer shares an address, now at the peak"
    assert (changes["b"].shared_before, changes["b"].shared_after) == (["a"], [])
    assert changes["a"].said == "no longer shares an address"
    assert buffer_changes(before, before) == []


def test_lines_that_moved_are_paired_by_their_text_and_what_is_new_is_named() -> None:
    before = _map(_buffer("a", 0, 1024, (1, 5), 10), _buffer("b", 1024, 512, (1, 5), 11))
    after = _map(_buffer("a", 0, 2048, (1, 5), 14), _buffer("c", 2048, 512, (1, 5), 15))
    changes = {c.value: c for c in buffer_changes(before, after)}
    assert changes["a"].said == "grew by 1,024" and changes["a"].source_after == after.buffers[0].source
    assert (changes["b"].said, changes["b"].after_bytes) == ("gone", None)
    assert (changes["c"].said, changes["c"].before_bytes) == ("new", None)


def test_two_buffers_of_one_line_are_paired_in_program_order() -> None:
    one, two = _buffer("x", 0, 256, (1, 2), 7), _buffer("x", 256, 512, (3, 4), 7)
    grown = _map(one, replace(two, bytes=1024))
    (change,) = buffer_changes(_map(one, two), grown)
    assert (change.before_bytes, change.after_bytes) == (512, 1024)


def test_one_kernel_under_two_versions_of_triton() -> None:
    maps = []
    for version in ("3.4.0", "3.9.0"):
        with lzma.open(DATA / "allocated" / f"sparse_mla_decode_{version}.mlir.xz", "rt") as file:
            maps.append(shared_map_part(read_shared_map(file.read()), {}))
    assert not [c for c in buffer_changes(*maps) if c.said in ("new", "gone")], "every buffer finds its other side"


def _config(**values: int) -> Config:
    return Config(config={**values}, status="ok", fits=True, over_bytes=0)


def test_configs_are_paired_by_their_values() -> None:
    before, after = [_config(B=1, w=4), _config(B=2, w=4)], [_config(B=2, w=4), _config(B=3, w=4)]
    pairs, only_before, only_after = paired(before, after)
    assert pairs == [(before[1], after[0])] and only_before == [before[0]] and only_after == [after[1]]
    assert paired([before[0]], [after[1]])[0] == [(before[0], after[1])], "one on each side is a pair whatever it is"


def _report(*configs: Config) -> Report:
    kernel = Kernel(name="k", source="k.yaml", kernel="k.py:k", configs=list(configs))
    return Report(command="explain", toolchain=Toolchain(occupancy="1", triton=None, ptxas=None), kernels=[kernel])


def test_sides_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="no config in common"):
        compared(_report(_config(B=1), _config(B=2)), _report(_config(B=3)), ("one", "other"))
    with pytest.raises(InputError, match="holds 0 kernels"):
        compared(replace(_report(), kernels=[]), _report(_config(B=1)), ("one", "other"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["h200"], "two sides are compared, 1 given"),
        (["h200", "h20O"], "no GPU"),
        (["--rev", "HEAD", "--triton", "3.6.0"], "given both"),
        (["a.py:k", "b.py:k", "--rev", "HEAD"], "one kernel is compared with itself"),
        (["--triton", "/no/such/folder"], "no Triton is there"),
    ],
)
def test_operands_that_are_none(given: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("occupancy_cli.answers.diff_sides.explain", lambda *_a, **_k: _report(_config(B=1)))
    done = CliRunner().invoke(app, ["diff", *given])
    assert isinstance(done.exception, OccupancyError) and said in str(done.exception), done.output


def test_files_that_are_no_explanation(tmp_path: Path) -> None:
    for text, said in (("{", "is no Report"), (_report(_config(B=1)).to_json(), "has no maps")):
        (tmp_path / "a.json").write_text(text)
        done = CliRunner().invoke(app, ["diff", str(tmp_path / "a.json"), str(tmp_path / "a.json")])
        assert isinstance(done.exception, InputError) and said in str(done.exception)


def test_a_path_of_triton_is_put_in_front_alone(tmp_path: Path) -> None:
    package = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "triton"
    (package / "_C").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '9.9.9'\n")
    (package.parent / "typer").mkdir()
    with triton_folder(str(tmp_path / "venv")) as folder:
        assert [f.name for f in folder.iterdir()] == ["triton"]
        env = environment_of(folder)
        find = "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('triton', 'typer')))"
        command = [sys.executable, "-c", find]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split()
        assert found[0] == str(folder / "triton" / "__init__.py") and str(tmp_path) not in found[1]
    (package / "_C" / "libtriton.cpython-27-x86_64-linux-gnu.so").touch()
    with pytest.raises(InputError, match="another Python"), triton_folder(str(tmp_path / "venv")):
        pass


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_revision_a_saved_report_and_another_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    kernel, *flags = small_gemm(tmp_path)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "gemm.py"), (*author, "commit", "-qm", "a")):
        subprocess.run(["git", *command], check=True, cwd=tmp_path)
    run = CliRunner()

    def printed(*command: str) -> str:
        done = run.invoke(app, [*command, "--format", "json"])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    explained = ("explain", kernel, *flags, "--no-others")
    (tmp_path / "before.json").write_text(printed(*explained))
    file = tmp_path / "gemm.py"
    # A comment moves every line; a second reduction needs scratch, and the same registers or more.
    text = file.read_text().replace(
        "    top = tl.max(acc, 1)\n", "    # both\n    top = tl.max(acc, 1) + tl.min(acc, 1)\n"
    )
    file.write_text(text)
    then = valid_report(printed("diff", kernel, *flags, "--rev", "HEAD"))
    (found,) = then["diffs"]
    assert (found["before"], found["after"]) == ("HEAD", "now")
    (config,) = found["configs"]
    new = [b for b in config["buffers"] if b["said"] == "new"]
    assert new and all(b["source_after"]["file"] == "gemm.py" for b in new)
    assert not [b for b in config["buffers"] if b["said"] == "gone"]
    (tmp_path / "after.json").write_text(printed(*explained))
    again = valid_report(printed("diff", "before.json", "after.json"))
    assert [b["said"] for b in again["diffs"][0]["configs"][0]["buffers"]] == [b["said"] for b in config["buffers"]]
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    here = str(Path(spec.origin).parent.parent)
    same = json.loads(printed("diff", kernel, *flags, "--triton", f"{here},{here}"))
    assert [c["same"] for c in same["diffs"][0]["configs"]] == [True]
