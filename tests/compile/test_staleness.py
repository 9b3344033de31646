"""A kept answer is used only when all it was made from is as it was; a report is of one state of its sources.

The walk over single ways to look outside is `tests/loading/test_outside_reads.py`; here real compiles are kept or not.
A kernel of 128 x REP elements a program takes other registers for another REP.
"""

from __future__ import annotations

import os
import textwrap
import threading
import time
from pathlib import Path

import pytest

from occupancy_cli.compile.compile_service import CompileService, SourcesChanged
from occupancy_cli.compile.request import ArgumentValue, CompileOutcome, CompileRequest, KernelSource, Target
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.source.source_launches import source_options

pytestmark = pytest.mark.compiles

SM120 = Target(120, 101_376, 188, 65_536)
QUICK = Limits(60.0, 8 << 30)
KERNEL = """
import os
import triton
import triton.language as tl
{before}
REP_: tl.constexpr = tl.constexpr(int(REP))

@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * 128 * REP_ + tl.arange(0, 128 * REP_)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2 + B, mask=i < n)
"""


def written(folder: Path, before: str) -> Path:
    path = folder / "k.py"
    path.write_text(KERNEL.format(before=textwrap.dedent(before)))
    return path


def asked(path: Path, value: int = 1) -> CompileRequest:
    pointers = (ArgumentValue("x_ptr", "*bf16"), ArgumentValue("o_ptr", "*fp32"))
    arguments = (*pointers, ArgumentValue("n", "i32", 4096))
    return CompileRequest(KernelSource("k", str(path)), SM120, arguments, (("B", value),), ())


def compiled(path: Path, cache: Path) -> tuple[CompileOutcome, CompileService]:
    with CompileService(limits=QUICK, jobs=1, cache=ResultCache(cache)) as service:
        (outcome,) = service.compile_all([asked(path)])
    assert outcome.ok, outcome.message
    return outcome, service


def registers(outcome: CompileOutcome) -> int:
    assert outcome.resources is not None and outcome.resources.registers_per_thread is not None
    return outcome.resources.registers_per_thread


KEPT = {
    "an optional module": (
        "try:\n    from site_tuned import REP\nexcept ImportError:\n    REP = 1",
        "site_tuned.py",
        "REP = 8",
    ),
    "a flag": ("REP = 8 if os.path.exists(os.path.join(os.path.dirname(__file__), 'flag')) else 1", "flag", ""),
    "a listing": ("REP = 1 + 7 * ('big' in os.listdir(os.path.dirname(__file__)))", "big", ""),
    "a package's start": ("from tiles import REP", "tiles/__init__.py", "REP = 8"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_appears_is_compiled_for_and_what_stays_is_kept(name: str, tmp_path: Path) -> None:
    before, appears, text = KEPT[name]
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "tiles.py").write_text("REP = 1")
    path = written(folder, before)
    first, service = compiled(path, tmp_path / "cache")
    assert not service.unkept
    again, _ = compiled(path, tmp_path / "cache")
    assert again.cached and registers(again) == registers(first)
    (folder / appears).parent.mkdir(exist_ok=True)
    (folder / appears).write_text(text)
    after, _ = compiled(path, tmp_path / "cache")
    assert not after.cached and registers(after) != registers(first)
    assert compiled(path, tmp_path / "cache")[0].cached


@pytest.mark.one_triton
def test_what_cannot_be_recorded_is_not_kept_and_the_run_says_so_once(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "tile").write_text("1")
    path = written(
        folder, f"import subprocess\nREP = subprocess.check_output(['cat', {str(folder / 'tile')!r}]).decode()"
    )
    with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
        service.describe(asked(path).source, SM120)
        service.compile_all([asked(path, 1), asked(path, 2)])
        (said,) = service.said_of_keeping()
    assert "k.py:6 starts a process" in said and str(path) in said
    (unkept,) = ResultCache(tmp_path / "cache").info().unkept
    assert unkept.kernel == f"{path}:k" and unkept.reasons[0].endswith("k.py:6 starts a process")
    (folder / "tile").write_text("8")
    first, _ = compiled(path, tmp_path / "other")
    again, _ = compiled(path, tmp_path / "cache")
    assert not again.cached and registers(again) == registers(first)


def edit_while_it_loads(path: Path, module: Path, mark: Path) -> threading.Thread:
    """Change `module` once the kernel says that it has read it, and put its time of change back."""

    def edit() -> None:
        until = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.01)
        was = module.stat()
        module.write_text("REP = 8")
        os.utime(module, ns=(was.st_atime_ns, was.st_mtime_ns))

    thread = threading.Thread(target=edit)
    thread.start()
    return thread


def test_an_edit_while_the_kernel_loads_ends_the_run_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    """The time of change is put back: it tells nothing. Both configs would be reported, each of another text."""
    module, mark = tmp_path / "tiles.py", tmp_path / "mark"
    module.write_text("REP = 1")
    waits = f"from tiles import REP\nimport time\nopen({str(mark)!r}, 'a').close()\ntime.sleep(1)"
    path = written(tmp_path, waits)
    editing = edit_while_it_loads(path, module, mark)
    with (
        CompileService(limits=QUICK, jobs=2, cache=ResultCache(tmp_path / "cache")) as service,
        pytest.raises(SourcesChanged, match=r"tiles\.py changed during the run") as caught,
    ):
        service.compile_all([asked(path, 1), asked(path, 2)])
    editing.join()
    assert caught.value.exit_code == 2
    assert ResultCache(tmp_path / "cache").info().records == 0


@pytest.mark.one_triton
def test_an_edit_between_two_questions_of_a_run_ends_it_by_name(tmp_path: Path) -> None:
    module = tmp_path / "tiles.py"
    module.write_text("REP = 1")
    path = written(tmp_path, "from tiles import REP")
    with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
        service.describe(asked(path).source, SM120)
        service.close()  # the next worker reads anew
        module.write_text("REP = 8")
        with pytest.raises(SourcesChanged, match=r"tiles\.py"):
            service.compile_all([asked(path)])


@pytest.mark.one_triton
def test_a_kept_answer_and_a_new_one_are_of_one_state(tmp_path: Path) -> None:
    module = tmp_path / "tiles.py"
    module.write_text("REP = 1")
    path = written(tmp_path, "from tiles import REP")
    compiled(path, tmp_path / "cache")
    with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
        assert service.compile_all([asked(path)])[0].cached
        module.write_text("REP = 8")
        with pytest.raises(SourcesChanged, match=r"tiles\.py"):
            service.compile_all([asked(path, 2)])


@pytest.mark.one_triton
def test_a_kernel_that_writes_beside_itself_is_no_change(tmp_path: Path) -> None:
    """A log that each worker appends to, a folder that the first one makes, a cache that it reads back."""
    body = """
    HERE = os.path.dirname(__file__)
    os.makedirs(HERE + '/made', exist_ok=True)
    with open(HERE + '/log', 'a') as log: log.write('loaded')
    with open(HERE + '/made/rep', 'w') as file: file.write('1')
    with open(HERE + '/made/rep') as file: REP = file.read()
    """
    path = written(tmp_path, body)
    with CompileService(limits=QUICK, jobs=2, cache=ResultCache(tmp_path / "cache")) as service:
        outcomes = service.compile_all([asked(path, value) for value in (1, 2, 3)])
    assert [o.ok for o in outcomes] == [True] * 3
    for _ in range(2):  # once for the folder that is there now
        outcome, _service = compiled(path, tmp_path / "cache")
    assert outcome.cached


FORGERIES = {
    "another request's": "b'{\"id\": 1}\\n'",
    "one of the right form": 'b\'{"Failed": {"kind": "compile", "message": "x", "where": "", "hint": ""}}\\n\'',
    "half a line": "b'0123456789abcdef0123456789abcdef '",
    "bytes": "bytes(range(256)) + b'\\n'",
}


@pytest.mark.one_triton
@pytest.mark.parametrize("name", FORGERIES)
def test_an_answer_that_the_kernel_writes_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """Written wherever the process has something open, so to the channel too; the next request gets its answer."""
    forges = f"""
    for entry in os.listdir('/proc/self/fd'):
        try:
            os.write(int(entry), {FORGERIES[name]})
        except OSError:
            pass
    REP = 1
    """
    bad = tmp_path / "bad"
    bad.mkdir()
    path, plain = written(bad, forges), written(tmp_path, "REP = 1")
    with CompileService(limits=QUICK, jobs=1) as service:
        wrong, right = service.compile_all([asked(path), asked(plain)])
    assert (wrong.kind, wrong.resources, right.ok) == ("crash", None, True)
    assert f"{path}:k" in wrong.message and "answered what was not asked" in wrong.message


@pytest.mark.one_triton
def test_what_is_read_here_and_what_a_worker_loads_are_one_text(tmp_path: Path) -> None:
    """Options of a launch are read from the text in this process, the kernel is loaded by another: an edit between
    them, or after the last compile, ends the run; the next run takes the new text."""
    path = written(tmp_path, "REP = 1")
    new = path.read_text().replace("REP = 1", "REP = 8")
    with (
        pytest.raises(SourcesChanged, match=r"k\.py changed during the run"),
        CompileService(limits=QUICK, jobs=1) as service,
    ):
        source_options(path, "k")
        path.write_text(new)
        service.compile_all([asked(path)])
    with (
        pytest.raises(SourcesChanged, match=r"k\.py changed during the run"),
        CompileService(limits=QUICK, jobs=1) as service,
    ):
        assert service.compile_all([asked(path)])[0].ok
        path.write_text(f"{new}\n# edited\n")
        source_options(path, "k")
    assert compiled(path, tmp_path / "cache")[0].ok


def test_options_are_read_anew_whatever_the_time_of_change_says(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("import triton\n@triton.jit\ndef k(x): pass\nk[(1,)](x, num_warps=4)\n")
    was = path.stat()
    (first,) = source_options(path, "k").launches
    path.write_text(path.read_text().replace("num_warps=4", "num_warps=8"))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    (second,) = source_options(path, "k").launches
    assert (first.values["num_warps"], second.values["num_warps"]) == (4, 8)
