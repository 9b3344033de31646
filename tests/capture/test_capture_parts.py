"""The parts of a capture that need no process: traced grids, records to specs, kernel files, removed names."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_cli.capture.captured_grid import axis_expression
from occupancy_cli.capture.captured_spec import Captured, captured_from
from occupancy_cli.capture.traced_grid import TracedInt, traced_axes
from occupancy_cli.source.removed_apis import REMOVED, explain, explain_failure
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.yaml_reader import parse_yaml

TRITON = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])


# --- traced grids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "texts"),
    [
        (lambda m: ((4096 + m["B"] - 1) // m["B"],), ["ceil_div(4096, B)"]),
        (lambda m: ((m["B"] - 1 + 4096) // m["B"], 3), ["ceil_div(4096, B)", None]),
        (lambda m: (m["n"] // m["B"] * 2,), ["n // B * 2"]),
        (lambda m: (2 * (m["n"] - m["B"]) - (m["B"] - 1),), ["2 * (n - B) - (B - 1)"]),
        (lambda m: ((m["n"] + 7) // 8,), ["ceil_div(n, 8)"]),
        (lambda m: (m["n"] // (m["B"] // 2), m["n"] % m["B"]), ["n // (B // 2)", "n % B"]),
        (lambda m: [-(-m["n"] // m["B"])], ["ceil_div(n, B)"]),
        (lambda m: (7,), [None]),
        (lambda m: m["n"], ["n"]),
        (lambda m: (int(m["n"] / m["B"]),), [None]),
        (lambda m: m["no such"], []),
    ],
)
def test_a_grid_function_is_read_by_running_it(grid: Any, texts: list[str | None]) -> None:
    assert list(traced_axes(grid, {"n": 1000, "B": 64, "flag": True, "x": None})) == texts


@given(st.data())
def test_a_traced_text_evaluates_to_the_number_it_came_with(data: st.DataObject) -> None:
    values = {"a": data.draw(st.integers(1, 500)), "b": data.draw(st.integers(1, 500))}
    pool: list[Any] = [TracedInt(values["a"], "a"), TracedInt(values["b"], "b"), 3, 64]
    for _ in range(data.draw(st.integers(1, 6))):
        left, right = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        sign = data.draw(st.sampled_from("+-*/%"))
        if sign in "/%" and int(right) == 0:
            continue
        made = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "/": lambda a, b: a // b,
            "%": lambda a, b: a % b,
        }[sign](left, right)
        pool.append(made)
    for one in pool:
        if isinstance(one, TracedInt) and len(one.text) < 500 and abs(int(one)) < 2**62:
            assert parse_expression(one.text)(values) == int(one), one.text


# --- one expression for several configs --------------------------------------------------------------------------


def test_a_formula_is_used_only_if_it_gives_every_recorded_number() -> None:
    configs = [{"B": 64, "S": 1}, {"B": 128, "S": 2}]
    text = "ceil_div(n, B)"
    assert axis_expression([16, 8], configs, [text, text], {"n": 1000}) == text  # 1000/64 = 15.6, 1000/128 = 7.8
    # The same text with other numbers (a bound that the trace did not see) is written out instead.
    assert axis_expression([16, 5], configs, [text, text], {"n": 1000}) == "16 if B == 64 else 5"
    assert axis_expression([4, 4], configs, [None, None], {}) == 4
    assert axis_expression([4, 5], [{"B": 64}, {"B": 64}], [None, None], {}) is None
    # No grid comes from the number of warps: these were two launches.
    assert axis_expression([4, 5], [{"num_warps": 4}, {"num_warps": 8}], [None, None], {}) is None


def test_numbers_written_out_evaluate_to_themselves() -> None:
    configs = [{"B": b, "S": s} for b in (16, 32, 64) for s in (1, 2)]
    values = [1, 2, 3, 4, 5, 6]
    text = axis_expression(values, configs, [None] * 6, {})
    assert isinstance(text, str)
    assert [parse_expression(text)(config) for config in configs] == values


# --- records to specs --------------------------------------------------------------------------------------------


def _records(*launches: dict[str, Any], end: bool = True, **kernel: Any) -> list[str]:
    base = {"event": "kernel", "pid": 1, "id": 1, "name": "k", "qualname": "k", "module": "m", "file": "/src/m.py"}
    snapshot = {"event": "snapshot", "pid": 1, "id": 2, "text": "k = 1\n", "kernel": "k", "baked": {}, "left_out": []}
    records = [base | {"line": 5, "reference": "m:k"} | kernel, snapshot | {"imports": [], "removed": []}]
    for number, launch in enumerate(launches, start=10):
        default = {"kernel": 1, "snapshot": 2, "snapshot_error": "", "candidate": False, "grid": [4], "grid_text": []}
        default |= {"error": "", "tuned": None, "constexprs": {}, "options": {"num_warps": 4, "num_stages": 3}}
        default |= {"unsupported": [], "arguments": []}
        records.append({"event": "launch", "pid": 1, "id": number} | default | launch)
    if end:
        records.append({"event": "end", "pid": 1, "status": "complete", "message": "", "versions": {}})
    return [json.dumps(r) for r in records]


def _captured(*launches: dict[str, Any], **kernel: Any) -> Captured:
    return captured_from(_records(*launches, **kernel), "Captured in a test.")


def _data(captured: Captured, file: str = "k.yaml") -> Any:
    return parse_yaml(captured.files[file], file).data


def test_launches_that_differ_in_their_constexprs_are_configs_of_one_spec() -> None:
    captured = _captured(
        {"constexprs": {"B": 64, "C": 1}, "grid": [8], "options": {"num_warps": 4, "num_stages": 3, "num_ctas": 1}},
        {"constexprs": {"B": 32, "C": 1}, "grid": [16], "options": {"num_warps": 8, "num_stages": 3, "num_ctas": 1}},
    )
    data = _data(captured)
    assert data["constexprs"] == {"C": 1}
    assert data["configs"] == [{"B": 64, "num_warps": 4, "num_stages": 3}, {"B": 32, "num_warps": 8, "num_stages": 3}]
    assert data["grid"] == ["8 if B == 64 else 16"]


def test_a_text_that_reads_as_a_name_of_the_launch_is_kept_out_of_the_expressions() -> None:
    n = {"name": "n", "type": "i32", "value": 7}
    data = _data(_captured({"constexprs": {"MODE": "n", "OTHER": "relu", "NONE": None}, "arguments": [n]}))
    assert data["constexprs"] == {"OTHER": "relu", "NONE": None}
    assert data["configs"] == [{"MODE": "n", "num_warps": 4, "num_stages": 3}]


def test_equal_configs_with_two_grids_are_two_specs() -> None:
    captured = _captured({"grid": [4]}, {"grid": [5]})
    assert [spec.grid for spec in captured.specs] == [(4,), (5,)]
    assert [spec.file for spec in captured.specs] == ["k.yaml", "k-2.yaml"]
    # Both name the same kernel file.
    assert [_data(captured, f)["kernel"] for f in ("k.yaml", "k-2.yaml")] == ["kernels/k.py:k"] * 2


def test_configs_that_pruning_left_out_are_listed_and_not_used() -> None:
    tuned = {"names": ["B"], "kept": True, "configs": 2}
    captured = _captured(
        {"constexprs": {"B": 64}, "tuned": tuned},
        {"constexprs": {"B": 128}, "tuned": tuned | {"kept": False}, "candidate": True},
    )
    data = _data(captured)
    assert [c["B"] for c in data["configs"]] == [64, 128]
    assert data["check"] == {"use": [{"B": 64, "num_warps": 4, "num_stages": 3}]}
    assert (captured.specs[0].launches, captured.specs[0].tuned) == (1, True)


def test_a_process_that_died_leaves_what_it_wrote() -> None:
    lines = [*_records({}, end=False), '{"event": "launch", "id": 11, "ker']
    captured = captured_from(lines, "Captured in a test.")
    assert (captured.status, len(captured.specs)) == ("died", 1)


def test_what_a_spec_cannot_carry_has_a_reason() -> None:
    captured = _captured(
        {"unsupported": ["the constexpr C is a torch.dtype, which no spec can carry"]},
        {"grid": None},
        {"grid": [4, 0]},
        {"grid": [None]},
        {"arguments": [{"name": "d", "type": "tensordesc_im2col<fp16[8]>"}]},
        {"snapshot": None, "snapshot_error": "its source is not known"},
        {"options": {"num_warps": 4, "num_stages": 3, "launch_pdl": True}},
        reference="",
    )
    reasons = " | ".join(n.reason for n in captured.not_captured)
    for text in ("torch.dtype", "compiled and not launched", "grid is empty", "three integers", "im2col", "by name"):
        assert text in reasons
    (spec,) = captured.specs
    assert spec.notes == ("launched with launch_pdl=True, which a spec does not carry",)


def test_kernels_of_one_name_have_their_file_in_front() -> None:
    first = [json.loads(line) for line in _records({})]
    second = {**first[0], "id": 3, "file": "/src/other.py"}
    launch = {**first[2], "id": 20, "kernel": 3}
    captured = captured_from([json.dumps(r) for r in [*first[:3], second, launch, first[3]]], "Captured in a test.")
    assert [s.file for s in captured.specs] == ["m.k.yaml", "other.k.yaml"]


# --- kernel files ------------------------------------------------------------------------------------------------


@pytest.mark.compiles
def test_a_kernel_that_nothing_can_carry_is_refused_by_name(tmp_path: Path) -> None:
    snapshot = pytest.importorskip("occupancy_cli.capture.kernel_snapshot")
    source = tmp_path / "kernels_of_a_test.py"
    source.write_text(
        "import triton\nimport triton.language as tl\n"
        "class Thing:\n    pass\n"
        "THING = Thing()\n"
        "@triton.jit\ndef one(x): return x\n"
        "@triton.jit\ndef uses(x_ptr, C: tl.constexpr):\n    if C:\n        THING.go(x_ptr)\n    one(x_ptr)\n"
        "@triton.jit\ndef assigns(x_ptr, T: tl.constexpr):\n    T = 3\n    tl.store(x_ptr, T)\n"
        "@triton.jit\ndef defaults(x_ptr, t=THING):\n    one(x_ptr)\n"
    )
    import importlib.util

    spec = importlib.util.spec_from_file_location("kernels_of_a_test", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    taken = snapshot.snapshot(module.uses)
    assert taken.left_out == ("THING, a kernels_of_a_test.Thing",)
    assert "def one(x):\n    return x\n" in taken.text
    with pytest.raises(snapshot.CannotSnapshot, match="constexpr T is assigned to"):
        snapshot.snapshot(module.assigns, {"T": module.tl.float32})
    with pytest.raises(snapshot.CannotSnapshot, match="default of t in defaults is Thing"):
        snapshot.snapshot(module.defaults)


# --- names that some Triton no longer has ------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.parametrize("name", sorted(REMOVED))
def test_the_table_of_removed_names_holds_for_this_triton(name: str) -> None:
    import triton.language as tl

    known = REMOVED[name]
    value = getattr(tl, name, None)
    works = value is not None and "have been removed" not in (value.__doc__ or "")
    if tuple(map(int, known.last.split("."))) >= TRITON:
        assert works, f"tl.{name} is gone from Triton {TRITON}, the table says {known.last} has it"
    elif tuple(map(int, known.first_without.split("."))) <= TRITON:
        assert not works, f"tl.{name} works in Triton {TRITON}, the table says {known.first_without} is without it"


def test_a_failure_that_comes_of_a_removed_name_is_explained() -> None:
    refused = "NotImplementedError: Block pointers have been removed in favor of the tensor descriptor API"
    assert explain_failure(refused, "3.9.0") == explain("make_block_ptr", "3.9.0")
    assert "versions up to 3.8 have it" in explain("make_block_ptr", "3.9.0")
    missing = "AttributeError: module 'triton.language' has no attribute 'advance'"
    assert "tl.advance is not in Triton 3.9.0" in (explain_failure(missing, "3.9.0") or "")
    assert explain_failure("ValueError: something else", "3.9.0") is None
