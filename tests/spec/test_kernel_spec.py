"""Spec files: the shipped ones load, wrong ones are refused at the right line, and no text can do harm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_cli.errors import InputError
from occupancy_cli.plan.kernel_input import shipped_specs
from occupancy_cli.spec.kernel_spec import KernelSpecFile, canonical_type, load_spec, validate
from occupancy_cli.yaml_reader import load_yaml, parse_yaml

SPEC = """\
schema: occupancy/kernel-spec/1
kernel: small.py:scale
shapes: {n: 4096}
knobs:
  BLOCK: {default: 64, values: [64, 128], env: SMALL_BLOCK}
derived:
  blocks: ceil_div(n, BLOCK)
configs:
  - {num_warps: 4}
arguments:
  x_ptr: "*fp32"
  n: {type: i32, value: n}
grid: [blocks]
"""


@pytest.mark.parametrize("path", shipped_specs(), ids=lambda p: p.stem)
def test_every_shipped_spec_loads(path: Path) -> None:
    spec, _ = load_spec(path)
    assert isinstance(spec, KernelSpecFile)
    assert spec.name == path.stem


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("knobs:", "knobz:", "x.yaml:4:1: knobz: unknown key 'knobz'\nDid you mean knobs?"),
        ("knobs:", "kno[bs:", "x.yaml:4:1: kno[bs: unknown key 'kno[bs'\nDid you mean knobs?"),
        ("knobs:", "int:", "x.yaml:4:1: int: unknown key 'int'"),
        ("env: SMALL", "envv: SMALL", "x.yaml:5:43: knobs.BLOCK.envv: unknown key 'envv'\nDid you mean env?"),
        ("type: i32", "type: i31", "x.yaml:12:7: arguments.n.type: unknown type 'i31'; did you mean"),
        ('"*fp32"', '"*fp23"', "unknown type 'fp23'; did you mean fp32"),
        ("kernel: small.py:scale\n", "", "x.yaml:1:1: the key 'kernel' is missing"),
        ("default: 64", "default: [64]", "x.yaml:5:11: knobs.BLOCK.default"),
        ("occupancy/kernel-spec/1", "occupancy/kernel-spec/9", "This version reads `schema: occupancy/kernel-spec/1`"),
        (
            "  - {num_warps: 4}",
            "  autotun",
            "'autotun' is no value for it\nIt is autotune | a list of configs | {product",
        ),
        ("grid: [blocks]", "grid: [a, b, c, d]", "x.yaml:13:1: grid: has 4 values, at most 3 are needed"),
        (
            'x_ptr: "*fp32"',
            "x_ptr: 4",
            "arguments.x_ptr: 4 is no value for it\nIt is a mapping with the keys type, value",
        ),
        ("shapes: {n: 4096}", "shapes: {n: 4096, n: 1}", "x.yaml:3:19: key 'n' is given twice"),
        ("n: 4096", "n: .nan", "not a finite number"),
        ("n: 4096", "n: " + "9" * 400, "an integer of 400 characters"),
        ("{n: 4096}", "{n: [4", "not valid YAML"),
        ("kernel: small", "a: &x [1]\nb: *x\nkernel: small", "aliases (*name) are not supported"),
        ("grid: [blocks]", "grid: [" + "[" * 60 + "]" * 60 + "]", "nested more than 40 deep"),
    ],
)
def test_wrong_specs_are_refused_where_they_are_wrong(old: str, new: str, says: str) -> None:
    assert old in SPEC
    with pytest.raises(InputError) as caught:
        validate(parse_yaml(SPEC.replace(old, new, 1), "x.yaml"))
    assert says in str(caught.value)


def test_an_expression_is_refused_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(SPEC.replace("ceil_div(n, BLOCK)", "9**9**9"))
    with pytest.raises(InputError, match=r"k\.yaml:7:3: derived\.blocks: '\*\*' is not allowed"):
        load_spec(path)


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ("[{num_warps: 0}]", "k.yaml:8:12: configs[0].num_warps: num_warps is 0, not a power of two"),
        ('[{num_warps: "four"}]', "k.yaml:8:12: configs[0].num_warps: num_warps is 'four', not a power of two"),
        ("[{num_stages: 1.5}]", "configs[0].num_stages: num_stages is 1.5, not a whole number from 0 on"),
        ("{product: {num_ctas: [1, 3]}}", "configs.product.num_ctas[1]: num_ctas is 3, not a power of two"),
        ("{product: {num_warps: []}}", "configs.product.num_warps: has 0 values, at least 1 are needed"),
        ("[{BLOCK: [64, 128]}]", "configs[0].BLOCK: a list where one value is needed\nSeveral values"),
        ("3", "k.yaml:8:1: configs: 3 is no value for it\nIt is autotune | a list of configs"),
        ("[[1]]", "k.yaml:8:11: configs[0]: a list is no value for it\nIt is autotune | a list of configs"),
        ("{table: 3}", "k.yaml:8:11: configs.table: input should be a valid string (given: '3')"),
    ],
)
def test_configs_that_no_launch_can_have(tmp_path: Path, configs: str, says: str) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(SPEC.replace("configs:\n  - {num_warps: 4}", f"configs: {configs}"))
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert says in str(caught.value)


def test_launch_options_that_a_launch_can_have(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    options = "[{num_warps: 1, num_stages: 0, num_ctas: 2, maxnreg: 168}, {maxnreg: null}]"
    path.write_text(SPEC.replace("configs:\n  - {num_warps: 4}", f"configs: {options}"))
    assert len(list(load_spec(path)[0].configs)) == 2


def test_a_device_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"zero\.yaml: is no ordinary file"):
        load_yaml(tmp_path / "zero.yaml")


def test_an_alias_bomb_costs_nothing() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    started = time.monotonic()
    with pytest.raises(InputError, match="aliases"):
        parse_yaml(bomb, "bomb.yaml")
    assert time.monotonic() - started < 5  # a bound on harm, not a measurement


def test_a_file_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(InputError, match="100,000,000 bytes; a YAML file may have 1,000,000"):
        load_yaml(path)


def test_a_missing_file_names_where_one_of_that_name_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "mla.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load_yaml(Path("mla.yaml"))
    assert "A file of that name lies at" in caught.value.hint
    assert "deep/er/mla.yaml" in caught.value.hint


@pytest.mark.parametrize(
    ("given_type", "canonical"),
    [
        ("*bf16", "*bf16"),
        ("float8_e4m3fn", "fp8e4nv"),
        ("*float16", "*fp16"),
        ("bool", "i1"),
        ("None", "none"),
        ("tensordesc<bf16[64,  64]>", "tensordesc<bf16[64,64]>"),
    ],
)
def test_types(given_type: str, canonical: str) -> None:
    assert canonical_type(given_type) == canonical


YAMLISH = st.lists(
    st.sampled_from(
        [
            *SPEC.splitlines(keepends=True),
            "a",
            ": ",
            "[",
            "]",
            "{",
            "}",
            "\n",
            "  ",
            "&x ",
            "*x",
            "- ",
            "!!python/name:os ",
            '"',
        ]
    ),
    max_size=25,
).map("".join)


@settings(max_examples=800, deadline=None)
@given(st.one_of(YAMLISH, st.text(max_size=80).map(lambda t: SPEC + t)))
def test_any_text_is_a_spec_or_an_input_error(text: str) -> None:
    try:
        validate(parse_yaml(text, "x.yaml"))
    except InputError as refused:
        assert "x.yaml" in str(refused)
