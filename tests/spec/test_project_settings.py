"""`[tool.occupancy]`: read strictly, every error with its line; where keys of a TOML text stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.plan.project_kernels import select_of_project
from occupancy_cli.spec.budget_layers import limits_for, parse_budgets
from occupancy_cli.spec.project_settings import find_project, json_schema, read_project, refuse_other_triton
from occupancy_cli.spec.toml_places import toml_places

GOOD = """\
[project]
name = "x"

[tool.occupancy]
include = [
  "kernels",   # a comment, with "quotes" and ]
  'more/*.yaml',
]
exclude = ["kernels/old"]
gpus = ["h200", 5090]
triton = ["3.9"]
budgets = [{ max_spill_bytes = 0 }, { gpus = ["h200"], min_ctas_per_sm = 2 }]

[tool.occupancy.kernels."kernels/ops.py:add"]
arguments = { x_ptr = "*fp32", n = { type = "i32", value = 4096 } }
constexprs = { BLOCK = 64 }
use = [{ num_warps = 4 }]

[tool.other]
key = \"\"\"
[tool.occupancy]
gpus = 1
\"\"\"
"""
OPS = """
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n)
"""


def project(folder: Path, text: str = GOOD) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_places_of_keys_and_items() -> None:
    places = toml_places(GOOD)
    lines = GOOD.splitlines()
    table = ("tool", "occupancy")
    assert places[table] == (4, 1)
    assert places[(*table, "include", 1)] == (7, 3)
    assert lines[places[(*table, "gpus")][0] - 1].startswith("gpus")
    assert places[(*table, "gpus", 1)] == (10, 17)  # gpus = ["h200", 5090]: the 5 is the 17th character
    assert places[(*table, "budgets", 1)] == (12, 37)
    kernel = (*table, "kernels", "kernels/ops.py:add")
    assert lines[places[(*kernel, "use")][0] - 1].startswith("use")
    assert [p for p in places if p[:2] == table and p[2:3] == ("gpus",)] == [
        (*table, "gpus"),
        (*table, "gpus", 0),
        (*table, "gpus", 1),
    ]  # what the multi-line string holds is no key


def test_a_whole_table(tmp_path: Path) -> None:
    found = read_project(project(tmp_path))
    assert found is not None
    assert found.settings.gpus == ["h200", "5090"]
    assert found.settings.include == ["kernels", "more/*.yaml"]
    assert found.tables_for("kernels/ops.py:add") == ["kernels/ops.py:add"]
    limits = limits_for(found.budgets, "h200-sxm", {}, lambda name: f"{name}-sxm")
    assert {n: v.value for n, v in limits.items()} == {"max_spill_bytes": 0, "min_ctas_per_sm": 2}
    assert limits["min_ctas_per_sm"].origin.endswith("pyproject.toml:12")
    assert set(limits_for(found.budgets, "b200", {}, str)) == {"max_spill_bytes"}


def test_later_budgets_win() -> None:
    layers = (*parse_budgets(["max_spill_bytes=8"]), *parse_budgets(["max_spill_bytes=16", "fits=one"]))
    assert {n: v.value for n, v in limits_for(layers, "x", {}, str).items()} == {"max_spill_bytes": 16, "fits": "one"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("exclude", "exlude", "pyproject.toml:9:1: exlude: unknown key 'exlude'\nDid you mean exclude"),
        ("max_spill_bytes", "max_spil_bytes", "pyproject.toml:12:12: budgets[0].max_spil_bytes: unknown key"),
        ("max_spill_bytes = 0", "max_spill_bytes = -1", "greater than or equal to 0 (given: '-1')"),
        ('gpus = ["h200", 5090]', "gpus = []", "pyproject.toml:10:1: gpus: has 0 values, at least 1 are needed"),
        ('gpus = ["h200", 5090]', 'gpus = "h200"', "pyproject.toml:10:1: gpus"),
        ("constexprs =", "constexpr =", "pyproject.toml:16:1: kernels.kernels/ops.py:add.constexpr: unknown key"),
        ("min_ctas_per_sm = 2", "max_bank_conflict_ways = 0.5", "greater than or equal to 1"),
        ('triton = ["3.9"]', 'triton = ["3.9"', "not valid TOML"),
    ],
)
def test_an_error_names_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = project(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as bad:
        read_project(path)
    assert says in str(bad.value)


def test_the_nearest_table_upwards_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    project(tmp_path)
    project(tmp_path / "a", "[project]\nname = 'no table of ours'\n")
    found = find_project(inner)
    assert found is not None and found.folder == tmp_path
    with pytest.raises(InputError, match="has no table"):
        read_project(tmp_path / "a" / "pyproject.toml")
    with pytest.raises(InputError, match="no such file"):
        read_project(tmp_path / "pyproject.tml")


def test_another_triton_is_refused(tmp_path: Path) -> None:
    found = read_project(project(tmp_path))
    assert found is not None
    for version in ("3.9", "3.9.0"):
        refuse_other_triton(found, version)
    for version in ("3.8.0", "3.90"):
        with pytest.raises(InputError, match=r"asks for 3\.9"):
            refuse_other_triton(found, version)


def test_what_a_project_includes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels" / "old").mkdir(parents=True)
    (tmp_path / "kernels" / "ops.py").write_text(OPS)
    (tmp_path / "kernels" / "old" / "ops.py").write_text(OPS)
    text = GOOD.replace("  'more/*.yaml',\n", "")
    text += '\n[tool.occupancy.kernels."kernels/opps.py:add"]\ngpus = ["h200"]\n'
    found = read_project(project(tmp_path, text))
    for folder in (tmp_path, tmp_path / "kernels"):  # from wherever it is asked
        monkeypatch.chdir(folder)
        selection = select_of_project(found, [])
        (only,) = selection.kernels
        assert only.given.spec.arguments["n"].value == 4096
        assert (only.use, only.given.spec.constexprs) == (({"num_warps": 4},), {"BLOCK": 64})
        (wrong,) = selection.problems  # a table that fits no kernel
        assert "Did you mean kernels/ops.py:add?" in str(wrong.error)
        assert "pyproject.toml:24:1" in str(wrong.error)
    # Of a part of the project a table for another part is no mistake.
    monkeypatch.chdir(tmp_path)
    assert select_of_project(found, ["kernels/ops.py"]).problems == ()


def test_a_kernel_with_a_spec_is_launched_by_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "ops.py").write_text(OPS)
    spec = "schema: occupancy/kernel-spec/1\nkernel: ops.py:add\narguments: {x_ptr: '*fp32', n: i32}\n"
    (tmp_path / "kernels" / "add.yaml").write_text(spec)
    found = read_project(project(tmp_path, GOOD.replace("  'more/*.yaml',\n", "")))
    selection = select_of_project(found, [])
    assert selection.kernels == ()
    assert "the kernel has a spec, kernels/add.yaml" in str(selection.problems[0].error)


def test_the_schema_is_one() -> None:
    assert {"include", "exclude", "gpus", "budgets", "kernels"} <= set(json_schema()["properties"])
