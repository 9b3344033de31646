"""`check` as a CI job runs it: what is selected, that every file gets its answer, and the exit code at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from locations import DATA
from report_schema import valid_report

from occupancy_cli.answers.check import allowed
from occupancy_cli.plan.check_selection import SelectionError, select
from occupancy_cli.report.check_formats import FORMATS
from occupancy_cli.report.schema import Finding

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def twice(x):
    return x + x


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 128}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, twice(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""
ADD_LINE = 1 + KERNELS.splitlines().index("def add(x_ptr, n, BLOCK: tl.constexpr):")
SCALE = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:scale
shapes: {n: 4096, batch: 4}
arguments: {x_ptr: "*fp32", n: {type: i32, value: n}}
configs: autotune
grid: ["ceil_div(n, BLOCK) * batch"]
check: {gpus: [rtx-pro-6000]}
"""
ADD = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:add
shapes: {n: 4096}
arguments: {x_ptr: "*fp32", n: {type: i32, value: n}}
constexprs: {BLOCK: 64}
configs:
  - {num_warps: 1}
  - {num_warps: 2}
check: {gpus: [rtx-pro-6000]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two kernels and a helper in one file, a spec for one of them, and YAML of other people."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "ops.py").write_text(KERNELS)
    (folder / "scale.yaml").write_text(SCALE)
    (folder / "workflow.yaml").write_text("on: push\njobs: {}\n")
    return tmp_path


def run(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", "check", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **env},
    )  # fmt: skip


def findings(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = valid_report(done.stdout)["findings"]
    return found


# --- selection ---------------------------------------------------------------------------------------------------


def names(*given: str, **more: Any) -> list[str]:
    return sorted(k.given.spec.kernel.rpartition("/")[2] for k in select(given, **more).kernels)


def test_a_folder_gives_its_specs_and_the_kernels_without_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    found = select(["kernels"])
    assert [(k.given.name, k.file) for k in found.kernels] == [
        ("scale", "kernels/scale.yaml"),
        ("add", "kernels/ops.py"),
    ]
    assert found.kernels[1].line == ADD_LINE
    assert (found.helpers, found.problems) == (1, ())


@pytest.mark.parametrize(
    ("given", "kernels"),
    [
        (["kernels/ops.py"], ["ops.py:add", "ops.py:scale"]),
        (["kernels/ops.py:add"], ["ops.py:add"]),
        (["kernels/ops.py:add", "kernels/ops.py:scale"], ["ops.py:add", "ops.py:scale"]),
        (["kernels/ops.py:add", "kernels/ops.py"], ["ops.py:add", "ops.py:scale"]),
        (["kernels/ops.py:s*"], ["ops.py:scale"]),
        (["kernels/ops.py:twice"], ["ops.py:twice"]),  # a helper that is asked for by its name
        (["kernels/*.yaml"], ["ops.py:scale"]),
        (["kernels/scale.yaml", "kernels/*.yaml"], ["ops.py:scale"]),
        (["**/*.py"], ["ops.py:add", "ops.py:scale"]),
        (["kernels", "kernels/scale.yaml", "kernels/ops.py"], ["ops.py:add", "ops.py:scale"]),
        (["sparse_mla_decode"], ["sparse_mla_decode.py:split_kernel"]),
    ],
)
def test_what_names_stand_for(
    project: Path, given: list[str], kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert names(*given) == kernels


def test_a_python_file_is_judged_by_the_spec_beside_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (only,) = select(["kernels/ops.py:scale"]).kernels
    assert (only.file, only.given.from_flags) == ("kernels/scale.yaml", False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["kernel"], "Did you mean kernels"),
        (["kernels/opps.py"], "kernels/ops.py"),
        (["kernels/ops.py:scales"], "Did you mean kernels/ops.py:scale?"),
        (["kernels/*.yml"], "the pattern matches none"),
        (["kernels/nothing"], "nothing"),
        (["kernels/workflow.txt"], "workflow.txt"),
        (["empty"], "no spec and no kernel there"),
        (["plain.py"], "no Triton kernel in it"),
        (["kernels/work*.yaml"], "matches 1 files, none of them a spec"),
        (["x.yaml", "y.yaml"], "none of the 2 names is there"),
        (["a" * 300 + ".yaml"], "aaaaaaaaa"),
    ],
)
def test_nothing_to_judge_is_an_error(
    project: Path, given: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "empty").mkdir()
    (project / "plain.py").write_text("x = 1\n")
    with pytest.raises(SelectionError) as bad:
        select(given)
    assert says in str(bad.value)


def test_one_wrong_name_leaves_the_others(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "bad.yaml").write_text("schema: occupancy/kernel-spec/1\nkernel: [\n")
    (project / "bad.py").write_text("import triton\n@triton.jit\ndef f(:\n")
    found = select([".", "missing.yaml"])
    assert len(found.kernels) == 2
    assert {p.file: p.error.problem.partition(":")[0] for p in found.problems} == {
        "missing.yaml": "no such file",
        "bad.yaml": "not valid YAML",
        "bad.py": "cannot be read as Python",
    }


def test_exclude_and_what_is_no_project_of_ours(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for folder in (".hidden", "venv/lib", "old/more"):
        (project / folder).mkdir(parents=True)
        (project / folder / "ops.py").write_text(KERNELS)
    assert names(".") == ["ops.py:add", "ops.py:add", "ops.py:scale", "ops.py:scale"]
    for pattern in ("old", "old/*", "old/more/ops.py", "*/more"):
        assert names(".", exclude=[pattern]) == ["ops.py:add", "ops.py:scale"]
    with pytest.raises(SelectionError):
        select(["kernels"], exclude=["kernels/*"])


def test_of_a_captured_folder_what_its_index_lists(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    folder = project / "kernels"
    (folder / "index.json").write_text(
        json.dumps({"schema": "occupancy/capture/1", "specs": [{"file": "scale.yaml"}, {"file": "gone.yaml"}]})
    )
    for given in ("kernels", "."):
        found = select([given])
        assert [k.given.name for k in found.kernels] == ["scale"]
        assert [p.file for p in found.problems] == ["kernels/gone.yaml"]


# --- what may stay unknown ---------------------------------------------------------------------------------------


def finding(level: Any, rule: str, message: str = "x") -> Finding:
    return Finding(level=level, kernel="k", gpu="g", config={}, rule=rule, message=message)


@pytest.mark.parametrize(
    ("pattern", "levels"),
    [
        ("not-read", ["violation", "allowed", "undecided", "undecided"]),
        ("compiles: *120 s*", ["violation", "undecided", "allowed", "undecided"]),
        ("*", ["violation", "allowed", "allowed", "undecided"]),  # never a file that could not be read
        ("shared*", ["violation", "undecided", "undecided", "undecided"]),
    ],
)
def test_what_is_allowed_to_be_unknown(pattern: str, levels: list[str]) -> None:
    given = [
        finding("violation", "shared-memory-cap"),
        finding("undecided", "not-read"),
        finding("undecided", "compiles", "k did not compile:\nnot done after 120 s"),
        finding("undecided", "input"),
    ]
    made, unused = allowed(given, [pattern])
    assert [f.level for f in made] == levels
    assert bool(unused) == ("allowed" not in levels)


# --- whole runs --------------------------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.one_triton
def test_every_file_gets_its_answer(project: Path) -> None:
    """One of each: holds, over a budget, no YAML, a file that does not load, a GPU that there is not, no types."""
    folder = project / "kernels"
    (folder / "broken.yaml").write_text("schema: occupancy/kernel-spec/1\nkernel: [\n")
    (folder / "other.yaml").write_text(ADD.replace("rtx-pro-6000", "rtx-pro-6001"))
    (folder / "unloadable.py").write_text(
        "import triton\n\nraise RuntimeError('no')\n\n\n@triton.jit\ndef k(x_ptr):\n    pass\n"
    )
    (folder / "unloadable.yaml").write_text(ADD.replace("ops.py:add", "unloadable.py:k"))
    done = run("kernels", "--gpu", "h200", "--budget", "max_registers_per_thread=255", "--format", "json", cwd=project)
    assert done.returncode == 2, done.stderr
    by_file: dict[str, list[tuple[str, str]]] = {}
    for f in findings(done):
        by_file.setdefault(f["source"], []).append((f["level"], f["rule"]))
    ok = [("ok", "shared-memory-cap"), ("ok", "max_registers_per_thread")]
    assert by_file == {
        "kernels/broken.yaml": [("undecided", "input")],
        "kernels/scale.yaml": ok * 2,
        "kernels/other.yaml": ok * 2,  # --gpu stands in for the GPUs of specs
        "kernels/unloadable.yaml": [("undecided", "loads")],
    }
    # Without --gpu the name that there is not is that spec's own error, with its line.
    done = run("kernels", "--format", "json", cwd=project)
    (wrong,) = [f for f in findings(done) if f["source"] == "kernels/other.yaml"]
    assert (wrong["line"], "rtx-pro-6000" in wrong["message"]) == (9, True)
    assert valid_report(done.stdout)["check"]["helpers"] == 1
    # A broken budget is a broken budget, whatever else is unknown.
    done = run("kernels", "--gpu", "h200", "--budget", "max_registers_per_thread=1", cwd=project)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("3 kernels · 4 configs · 1 GPU: 0 ok, 4 over budget, 2 unknown in ")


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_failing_config_is_named_by_its_python_line(project: Path) -> None:
    done = run("kernels/scale.yaml", "--budget", "max_registers_per_thread=1", "--format", "json", cwd=project)
    places = {(f["config"]["BLOCK"], f["file"], f["line"]) for f in findings(done) if f["level"] == "violation"}
    lines = KERNELS.splitlines()
    expected = {b: 1 + next(i for i, line in enumerate(lines) if f'"BLOCK": {b}' in line) for b in (64, 128)}
    assert places == {(b, "kernels/ops.py", line) for b, line in expected.items()}


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_launch_that_no_gpu_takes_fails(project: Path) -> None:
    """What was compiled fits; 70,000 CTAs along y are more than the 65,535 of CUDA."""
    (project / "kernels" / "add.yaml").write_text(ADD + "grid: [1, n]\n")
    done = run("kernels/add.yaml", "--set", "n=70000", "--format", "json", cwd=project)
    assert done.returncode in (1, 2)
    assert all("'n' comes to 70,000, an axis is 1 to 65,535" in f["message"] for f in findings(done))


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_kernel_without_types_says_what_to_do(project: Path) -> None:
    done = run("kernels/ops.py:add", "--format", "json", cwd=project)
    assert done.returncode == 2
    (only,) = findings(done)
    assert (only["rule"], only["file"], only["line"]) == ("arguments", "kernels/ops.py", ADD_LINE)
    assert "x_ptr, n" in only["message"] and "occupancy init" in only["message"]
    assert run("kernels/ops.py:add", "--allow-unknown", "arguments", cwd=project).returncode == 0


@pytest.mark.compiles
@pytest.mark.one_triton
def test_every_format_at_once_by_the_same_report(project: Path) -> None:
    (project / "kernels" / "add.yaml").write_text(ADD)
    files = [f"--output-file={name}=out/{name}" for name in FORMATS]
    arguments = ("kernels", "--budget", "max_registers_per_thread=1", *files)
    done = run(*arguments, "--format", "jsonl", cwd=project, GITHUB_ACTIONS="1")
    assert done.returncode == 1, done.stderr
    text = {name: (project / "out" / name).read_text() for name in FORMATS}
    assert text["jsonl"] == done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["finding"] * 8 + ["summary"]
    assert (lines[-1]["violations"], lines[-1]["exit_code"], lines[-1]["helpers"]) == (4, 1, 1)
    assert valid_report(text["json"])["findings"] == [{k: v for k, v in f.items() if k != "kind"} for f in lines[:-1]]
    assert text["github"].count("::error file=kernels/") == 4
    assert len(json.loads(text["gitlab"])) == 4
    log = json.loads(text["sarif"])
    jsonschema.validate(log, json.loads((DATA / "schemas" / "sarif-schema-2.1.0.json").read_text()))
    assert len(log["runs"][0]["results"]) == 4
    assert ElementTree.fromstring(text["junit"]).get("failures") == "4"
    summary = "2 kernels · 4 configs · 1 GPU: 0 ok, 4 over budget, 0 unknown in "
    for name in ("table", "markdown", "github"):
        assert summary in text[name]
    assert "\x1b" not in text["table"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing is named to check"),
        (["kernels", "--format", "sarf"], "Did you mean sarif"),
        (["kernels", "--output-file", "sarif"], "Write FORMAT=PATH"),
        (["kernels", "--output-file", "jnit=x"], "Did you mean junit"),
        (["kernels", "--output-file", "json=x", "--output-file", "sarif=x"], "x is given twice"),
        (["kernels", "--output-file", "json=kernels"], "kernels is a folder"),
        (["kernels", "--gpu", "h2000"], "h200"),
        (["kernels", "--budget", "max_spil_bytes=0"], "Did you mean max_spill_bytes"),
        (["kernels", "--budget", "max_spill_bytes"], "Write --budget NAME=VALUE"),
        (["kernels", "--budget", "max_spill_bytes=-1"], "greater than or equal to 0"),
        (["kernels", "--budget", "min_wave_efficiency=0.8"], "greater than 1"),
        (["kernels", "--budget", "max_bank_conflict_ways=0"], "greater than or equal to 1"),
        (["kernels", "--budget", "fits=some"], "'each' or 'one'"),
    ],
)
def test_what_was_typed_wrong_is_told_before_anything_is_compiled(
    project: Path, arguments: list[str], says: str
) -> None:
    done = run(*arguments, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert not (project / "x").exists()


PROJECT = """\
[tool.occupancy]
include = ["kernels"]
gpus = ["rtx-pro-6000"]
baseline = "occupancy.lock.json"

[tool.occupancy.kernels."kernels/ops.py:add"]
arguments = { x_ptr = "*fp32", n = { type = "i32", value = 4096 } }
constexprs = { BLOCK = 64 }
configs = [{ num_warps = 1 }, { num_warps = 2 }]
budgets = { max_registers_per_thread = 255 }
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_project_with_its_baseline_over_some_commits(project: Path) -> None:
    """The life of a gate: set up, green, a kernel grows, is taken in; only what changed is judged; things disappear."""

    def git(*arguments: str) -> None:
        author = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *author, *arguments], check=True, cwd=project, capture_output=True)

    def last(done: subprocess.CompletedProcess[str]) -> str:
        return done.stdout.splitlines()[-1].rpartition(" in ")[0]

    (project / "pyproject.toml").write_text(PROJECT)
    (project / "kernels" / "tile.py").write_text("TILE = 64\n")
    ops = "from tile import TILE\n" + KERNELS.replace('triton.Config({"BLOCK": 64}', 'triton.Config({"BLOCK": TILE}')
    (project / "kernels" / "ops.py").write_text(ops)
    lock = project / "occupancy.lock.json"
    missing = run(cwd=project)
    assert (missing.returncode, "occupancy.lock.json: no such file" in missing.stderr) == (2, True)
    assert run("--write-baseline", "occupancy.lock.json", cwd=project).returncode == 0
    written = lock.read_text()
    done = run(cwd=project / "kernels")  # from wherever
    assert (done.returncode, last(done)) == (0, "2 kernels · 4 configs · 1 GPU: 4 ok, 0 over budget, 0 unknown")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    done = run("--changed-since", "HEAD", cwd=project)
    assert (done.returncode, last(done)) == (0, "0 kernels · 0 configs · 0 GPUs: 0 ok, 0 over budget, 0 unknown")
    assert "2 kernels not judged: nothing that they are made from changed" in done.stdout
    # A file that the kernels import: both are made from it. One gets a config that the baseline does not have.
    (project / "kernels" / "tile.py").write_text("TILE = 256\n")
    done = run("--changed-since", "HEAD", "--format", "json", cwd=project)
    assert done.returncode == 2, done.stderr
    said = {f["message"].partition(" occupancy.lock.json")[0] for f in findings(done) if f["rule"] == "baseline"}
    assert said == {"is not in", "in"}
    assert run("--update-baseline", cwd=project).returncode == 0
    changed = set(written.splitlines()) ^ set(lock.read_text().splitlines())
    assert len([line for line in changed if line.startswith('"BLOCK')]) >= 2
    assert run(cwd=project).returncode == 0
    # What takes something away is never green.
    assert run("--gpu", "h200", cwd=project).returncode == 2
    (project / "kernels" / "scale.yaml").unlink()
    assert run(cwd=project).returncode == 2
    lock.unlink()
    assert run(cwd=project).returncode == 2


# A product of 128 x 64 tiles: three stages keep two tiles of each operand in flight, 64 KiB or 128 KiB by the size BK.
TUNED = """
import triton
import triton.language as tl

{emitted}

@triton.autotune(configs={configs}, key=["K"]{more})
@triton.jit
def mm(a_ptr, b_ptr, c_ptr, K, BK: tl.constexpr):
    m = tl.arange(0, 128)
    k = tl.arange(0, BK)
    acc = tl.zeros([128, 128], tl.float32)
    for k0 in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + k0 + k[None, :])
        b = tl.load(b_ptr + (k0 + k)[:, None] * 128 + m[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * 128 + m[None, :], acc)
"""
EVERY = '[triton.Config({"BK": b}, num_warps=8, num_stages=3) for b in (64, 128)]'
MM = """\
schema: occupancy/kernel-spec/1
kernel: mm.py:mm
shapes: {K: 4096}
arguments: {a_ptr: "*bf16", b_ptr: "*bf16", c_ptr: "*fp32", K: {type: i32, value: K}}
configs: autotune
grid: [188]
check: {gpus: [rtx-pro-6000]}
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_recommend_emits_passes_as_it_is_pasted(tmp_path: Path) -> None:
    def written(**parts: str) -> None:
        (tmp_path / "mm.py").write_text(TUNED.format(**{"emitted": "", "configs": EVERY, "more": "", **parts}))

    def emitted(form: str) -> str:
        command = [sys.executable, "-m", "occupancy_cli", "recommend", "mm.yaml", "--gpu", "rtx-pro-6000"]
        done = subprocess.run([*command, "--emit", form], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "mm.yaml").write_text(MM)
    written()
    failed = run("mm.yaml", "--format", "json", cwd=tmp_path)
    assert failed.returncode == 1
    (over,) = [f for f in findings(failed) if f["level"] == "violation"]
    assert over["config"]["BK"] == 128
    # Two copies of a 128 x 128 tile of bf16 are 65,536 bytes, as much for the other operand: over by 131,072 - 101,376.
    assert "are 29,696 over the cap of 101,376" in over["message"]
    assert "is 65,536 bytes for `a` (pipelined load, 2 copies of 128x128 bf16), mm.py:" in over["message"]
    assert "a = tl.load(a_ptr" in over["message"]
    configs, prune = emitted("configs"), emitted("prune")
    written(emitted=configs, configs="CONFIGS")
    assert run("mm.yaml", cwd=tmp_path).returncode == 0
    written(emitted=prune, more=', prune_configs_by={"early_config_prune": prune_configs}')
    done = run("mm.yaml", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert valid_report(done.stdout)["check"]["pruned"] == 1
    # Where another config of the autotuner fits, that may be all that is asked.
    written()
    for where, code in ((MM, 1), (MM.replace("check: {", "check: {budgets: {fits: one}, "), 0)):
        (tmp_path / "mm.yaml").write_text(where)
        assert run("mm.yaml", cwd=tmp_path).returncode == code


BUDGETS = """\
check:
  gpus: [rtx-pro-6000]
  budgets:
    - {max_registers_per_thread: 255}
    - {configs: [{BLOCK: 64}], batches: [1, 2000], min_wave_efficiency: 90}
    - {gpus: [h200], max_registers_per_thread: 1}
    - {configs: [{BLOCK: 128}], max_predicted_time_us: 0.001}
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_budgets_for_some_gpus_configs_and_batches(project: Path) -> None:
    spec = SCALE.replace("check: {gpus: [rtx-pro-6000]}\n", BUDGETS)
    (project / "kernels" / "scale.yaml").write_text(spec)
    done = run("kernels/scale.yaml", "--format", "json", cwd=project)
    broken = {(f["config"]["BLOCK"], f["rule"]): f for f in findings(done) if f["level"] == "violation"}
    assert set(broken) == {(64, "min_wave_efficiency"), (128, "max_predicted_time_us")}
    # 4096 / 64 CTAs x 1 on 188 SMs x 24 CTAs of 2 warps: 64 of 4,512 slots busy; batch 2000 fills 28.4 waves.
    said = broken[64, "min_wave_efficiency"]["message"]
    assert said == "1.4 % of the CTA slots busy at batch 1, budget at least 90: 88.6 short"
    (project / "kernels" / "scale.yaml").write_text(spec.replace("{BLOCK: 128}", "{BLOK: 128}"))
    done = run("kernels/scale.yaml", "--format", "json", cwd=project)
    (wrong,) = findings(done)
    assert (wrong["rule"], wrong["line"]) == ("input", 13)
    assert "Did you mean BLOCK?" in wrong["message"]
