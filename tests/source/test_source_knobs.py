"""Knobs read from source: environment variables, constexprs, autotune configs, launch sites, splits."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
import typer
from locations import ROOT
from typer.testing import CliRunner

from occupancy_cli.cli.knobs_command import knobs
from occupancy_cli.errors import InputError
from occupancy_cli.report.terminal.knobs import config_summary
from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.module_names import Module
from occupancy_cli.source.source_knobs import SourceKnobs, locate, read_knobs, resolve_import
from occupancy_cli.source.static_values import ConfigValue, Evaluation, evaluate

KERNEL = """
import os
import itertools
from functools import partial
import triton
import triton.language as tl
from pkg import envs
from pkg.env_helpers import int_env

DEFAULT_WARPS = 4
WARPS = int(os.getenv("MY_WARPS", str(DEFAULT_WARPS)))
FAST = os.environ.get("MY_FAST", "0") == "1"
FORCED = "MY_FORCED" in os.environ
PATH = os.environ["MY_PATH"]
BLOCKS = (32, 64, 128)

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block in BLOCKS for warps in (4, 8) for stages in range(2, 5)
    if block * stages <= 256
]

def more_configs():
    configs = []
    for block, stages in itertools.product([16, 32], [1, 2]):
        if block == 16 and stages == 2:
            continue
        configs.append(triton.Config({"BLOCK": block}, num_stages=stages, num_warps=WARPS))
    return configs

@triton.jit
def helper(x):
    return x + 1

@triton.autotune(configs=CONFIGS, key=["n", "m"], restore_value=["out"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit(do_not_specialize=["m"])
def literal(x, out, n, m, BLOCK: tl.constexpr, EVEN: "tl.constexpr", MODE: tl.constexpr = "a"):
    tl.store(out, helper(tl.load(x)))

@triton.autotune(configs=more_configs(), key=KEYS if is_hip() else ["n"])
@triton.jit
def built(x, n, BLOCK: tl.constexpr):
    pass

@triton.autotune(configs=[triton.Config({"B": b}) for b in ask_the_device()], key=[])
@triton.jit
def unknowable(x, B: tl.constexpr):
    pass

def num_kv_splits(batch, heads):
    if batch > 64:
        return 1
    return max(1, TARGET_CTAS // (batch * heads))

def launch(x, out, n, m, wide=False):
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]), m)
    literal[grid](x, out, n, m, MODE="b")
    warps = 4
    if wide:
        warps = 8
    nsplit = int_env("MY_SPLITS", 7)
    kernel = built.fn if envs.MY_SWITCH else unknowable
    kernel[(n, nsplit)](x, n, BLOCK=64 if wide else DEFAULT_WARPS, num_warps=warps, num_stages=2, maxnreg=128)
"""

ENVS = """
import os
environment_variables = {
    "MY_SWITCH": lambda: bool(int(os.getenv("MY_SWITCH", "1"))),
    "UNUSED": lambda: os.getenv("UNUSED"),
}
def __getattr__(name):
    return environment_variables[name]()
"""

HELPERS = """
import os
def raw_env(name, default=None):
    return os.environ.get(name, default)
def int_env(name, default=0):
    return int(raw_env(name, default))
class EnvField:
    def __init__(self, default):
        self.default = default
    def __set_name__(self, owner, name):
        self.name = name
    def get(self):
        return os.getenv(self.name, self.default)
class EnvInt(EnvField):
    pass
class Envs:
    MY_DECLARED = EnvInt(32)
    NOT_ONE = Other(5)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('reading must not import')\n")
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "envs.py").write_text(ENVS)
    (folder / "env_helpers.py").write_text(HELPERS)
    return folder


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def variables(found: SourceKnobs) -> dict[str, tuple[tuple[str, ...], tuple[object, ...], tuple[str, ...]]]:
    return {
        v.name: (v.defaults, tuple(r.default_value for r in v.reads if r.default is not None), v.used_as)
        for v in found.environment
    }


def test_environment_of_a_file(package: Path) -> None:
    found = read_knobs(package / "kernel.py")
    assert variables(found) == {
        "MY_WARPS": (("str(DEFAULT_WARPS)",), ("4",), ("int",)),
        "MY_FAST": (("'0'",), ("0",), ("flag",)),
        "MY_FORCED": ((), (), ("whether it is set",)),
        "MY_PATH": ((), (), ()),
        # Read through the package's own modules, which are read for the variables used here and no others.
        "MY_SPLITS": (("7",), (7,), ("int",)),
        "MY_SWITCH": (("'1'",), ("1",), ("int",)),
    }
    warps = next(v for v in found.environment if v.name == "MY_WARPS")
    assert str(warps.reads[0].place) == f"kernel.py:{line_of(KERNEL, 'MY_WARPS')}"
    assert warps.reads[0].how == "os.getenv"
    switch = next(v for v in found.environment if v.name == "MY_SWITCH")
    assert [str(r.place) for r in switch.reads] == [
        f"envs.py:{line_of(ENVS, 'bool(int')}",
        f"kernel.py:{line_of(KERNEL, 'envs.MY_SWITCH')}",
    ]


def test_a_reader_that_is_not_at_hand_counts_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from elsewhere import get_bool_env_var, set_env\n"
        "A = get_bool_env_var('MY_FLAG', 'false')\nset_env('MY_OTHER', '1')\n"
    )
    assert variables(read_knobs(tmp_path / "a.py")) == {"MY_FLAG": (("'false'",), ("false",), ("flag",))}


def test_environment_of_a_package(package: Path) -> None:
    found = variables(read_knobs(package))
    assert found["MY_DECLARED"] == (("32",), (32,), ("int",))
    assert found["UNUSED"] == ((), (), ())
    assert "NOT_ONE" not in found  # its class reads nothing
    assert "MY_SPLITS" in found and "MY_SWITCH" in found


def test_constexprs_and_decorators(package: Path) -> None:
    found = {k.name: k for k in read_knobs(package / "kernel.py").kernels}
    assert {k: v.role for k, v in found.items()} == {
        "helper": "helper", "literal": "kernel", "built": "kernel", "unknowable": "kernel",
    }  # fmt: skip
    literal = found["literal"]
    assert [a.name for a in literal.arguments] == ["x", "out", "n", "m"]
    assert [(c.name, c.default) for c in literal.constexprs] == [("BLOCK", None), ("EVEN", None), ("MODE", "'a'")]
    assert literal.heuristics == ("EVEN",)
    assert literal.jit_options == {"do_not_specialize": "['m']"}


def test_autotune_configs_are_computed(package: Path) -> None:
    found = {k.name: k.autotune for k in read_knobs(package / "kernel.py").kernels if k.autotune}
    literal = found["literal"]
    assert literal.configs is not None
    # BLOCK x stages in 32, 64, 128 x 2, 3, 4 with BLOCK * stages <= 256: 32 and 64 with all three, 128 with 2 alone: 7
    # pairs, each with 2 numbers of warps.
    assert len(literal.configs) == 14
    assert literal.configs[0] == {"BLOCK": 32, "num_warps": 4, "num_stages": 2, "num_ctas": 1}
    assert literal.configs[-1] == {"BLOCK": 128, "num_warps": 8, "num_stages": 2, "num_ctas": 1}
    assert literal.key == ("n", "m") and literal.more == {"restore_value": "['out']"}
    built = found["built"]
    # A function that appends in a loop; (16, 2) is skipped, the number of warps is an environment variable's default.
    assert built.configs == tuple(
        {"BLOCK": b, "num_warps": 4, "num_stages": s, "num_ctas": 1} for b, s in ((16, 1), (32, 1), (32, 2))
    )
    assert built.assumes == {"MY_WARPS": "'4'"}
    assert built.key == ("KEYS if is_hip() else ['n']",)  # not computable: as written


def test_configs_that_reading_cannot_give_are_shown_as_written(package: Path) -> None:
    found = next(k for k in read_knobs(package / "kernel.py").kernels if k.name == "unknowable").autotune
    assert found is not None and found.configs is None
    assert found.source == "[triton.Config({'B': b}) for b in ask_the_device()]"
    assert "ask_the_device" in found.why_unknown


def test_launch_sites(package: Path) -> None:
    first, second = read_knobs(package / "kernel.py").launches
    assert first.kernel == "literal" and first.function == "launch"
    assert first.grid == "grid"
    assert first.definitions["grid"][0].text == "lambda meta: (triton.cdiv(n, meta['BLOCK']), m)"
    assert first.constexprs == {"MODE": "'b'"}
    assert {"built", "unknowable"} <= set(second.kernels)  # `kernel` is either
    assert second.grid == "(n, nsplit)"
    assert second.options == {"num_warps": "warps", "num_stages": "2", "maxnreg": "128"}
    assert [d.text for d in second.definitions["warps"]] == ["4", "8"]
    assert second.definitions["nsplit"][0].text == "int_env('MY_SPLITS', 7)"


def test_splits(package: Path) -> None:
    found = [(s.name, s.text) for s in read_knobs(package / "kernel.py").splits]
    assert found == [
        ("num_kv_splits", "1"),
        ("num_kv_splits", "max(1, TARGET_CTAS // (batch * heads))"),
        ("nsplit", "int_env('MY_SPLITS', 7)"),
    ]


def test_one_kernel(package: Path) -> None:
    path, kernel = locate(f"{package / 'kernel.py'}:built")
    found = read_knobs(path, kernel=kernel)
    assert [k.name for k in found.kernels] == ["built"]
    assert [launch.options["num_stages"] for launch in found.launches] == ["2"]
    with pytest.raises(InputError, match=r"(?s)no JIT function 'bild'.*built"):
        read_knobs(path, kernel="bild")


def test_the_shipped_kernel() -> None:
    found = read_knobs(ROOT / "kernels" / "sparse_mla_decode.py")
    defaults = {v.name: [r.default_value for r in v.reads] for v in found.environment}
    assert defaults == {"SGLANG_SM120_MMA_BLOCK_H": [32], "SGLANG_SM120_MMA_TARGET_CTAS": [256]}
    split = next(k for k in found.kernels if k.name == "split_kernel")
    assert {"BLOCK_H", "BLOCK_T"} <= {c.name for c in split.constexprs}
    assert split.autotune is not None and split.autotune.configs
    assert any(s.name == "nsplit" and "split_count" in s.text for s in found.splits)


def test_the_example() -> None:
    found = read_knobs(ROOT / "examples" / "without_dependencies" / "decode_attention.py")
    assert {v.name: v.defaults for v in found.environment} == {
        "MY_ENGINE_BLOCK_H": ("'16'",), "MY_ENGINE_TARGET_CTAS": ("'256'",),
    }  # fmt: skip
    tuner = next(k for k in found.kernels if k.name == "decode_kernel").autotune
    assert tuner is not None and tuner.configs is None
    assert tuner.names["NUM_WARPS"] == "[4, 8] if not current_platform.is_rocm() else [4]"
    assert [s.name for s in found.splits] == ["TARGET_CTAS", "num_splits", "nsplit"]


# --- files that are not as they should be ----------------------------------------------------------------------------


def test_what_cannot_be_read_is_named_and_skipped(package: Path) -> None:
    (package / "broken.py").write_text("import triton\ndef jit(:\n")
    (package / "nul.py").write_bytes(b"env = 1\0")
    (package / "latin.py").write_bytes(b"# jit \xff\xfe\nx = '\xff'\n")
    (package / "deep.py").write_text("env = " + "-" * 100_000 + "1\n")
    found = read_knobs(package)
    skipped = {s.file: s.why for s in found.skipped}
    assert set(skipped) == {"broken.py", "nul.py", "latin.py", "deep.py"}
    assert "line 2" in skipped["broken.py"]
    assert all(skipped.values())
    assert len([k for k in found.kernels if k.name == "literal"]) == 1


def test_a_file_that_is_no_python_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (")
    with pytest.raises(InputError, match="cannot be read as Python"):
        read_knobs(tmp_path / "a.py")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no Python file"):
        read_knobs(tmp_path / "empty")


def test_a_wrong_path_is_answered_with_the_right_one(package: Path) -> None:
    with pytest.raises(InputError, match=r"kernel\.py") as missing:
        locate(str(package.parent / "kernel.py"))
    assert str(package / "kernel.py") in missing.value.hint
    with pytest.raises(InputError, match="no such file, folder or package"):
        locate("no_such_package_anywhere.module")


def test_an_installed_package_is_found_without_running_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(package.parent))
    assert locate("pkg")[0] == package
    assert locate("pkg.kernel:literal") == (package / "kernel.py", "literal")
    assert "pkg" not in sys.modules
    assert resolve_import(package / "kernel.py", "pkg.envs") == package / "envs.py"
    assert resolve_import(package / "kernel.py", ".envs") == package / "envs.py"
    assert resolve_import(package / "kernel.py", "torch") is None


# --- the interpreter -------------------------------------------------------------------------------------------------


def computed(source: str, expression: str) -> object:
    return evaluate(ast.parse(expression, mode="eval").body, Module(ast.parse(source), "x.py"))


@pytest.mark.parametrize(
    ("source", "expression", "value"),
    [
        ("", "[2 ** i for i in range(3)]", [1, 2, 4]),
        ("A = 3\nA = A + 1", "A", 4),
        ("A = []\nfor i in [1, 2]:\n    A += [i, i * 10]", "A", [1, 10, 2, 20]),
        ("A = {}\nA['x'] = 1\nA.update({'y': 2})", "A", {"x": 1, "y": 2}),
        ("def f(a, b=2, *rest, c=5):\n    return [a, b, *rest, c]", "f(1, 3, 4, c=6)", [1, 3, 4, 6]),
        ("keep = lambda n: n % 2 == 0", "list(filter(keep, [1, 2, 4]))", [2, 4]),
        ("", "sorted([3, 1, 2], key=lambda n: -n)", [3, 2, 1]),
        ("import triton", "triton.cdiv(7, 2) + triton.next_power_of_2(5)", 12),
        ("", "f'{1}x{2}'", "1x2"),
        ("", "1 if 2 in (1, 2) and not False else 0", 1),
    ],
)
def test_values(source: str, expression: str, value: object) -> None:
    assert computed(source, expression) == value


@pytest.mark.parametrize(
    ("source", "expression"),
    [
        ("", "9 ** 9 ** 9"),
        ("", "1 << 10 ** 9"),
        ("", "'a' * 10 ** 12"),
        ("", "[0] * 10 ** 12"),
        ("", "list(range(10 ** 12))"),
        ("", "[i for i in range(999) for j in range(999) for k in range(999)]"),
        ("x = [1]\nfor i in range(99):\n    x = x + x", "x"),
        ("x = [1]\nfor i in range(99):\n    x.extend(x)", "x"),
        ("x = [1]\nfor i in range(99):\n    x = [x, x]", "x == x"),
        ("import itertools", "itertools.product([1, 2], repeat=10 ** 9)"),
        ("def f():\n    return f()", "f()"),
        ("def f(n):\n    while True:\n        n += 1", "f(1)"),
        ("a = b\nb = a", "a"),
        ("", "sum([[1]] * 999, [])"),
    ],
)
def test_no_source_hangs_the_reader(source: str, expression: str) -> None:
    with pytest.raises(NotStatic):
        computed(source, expression)


@pytest.mark.parametrize(
    ("source", "expression", "reason"),
    [
        ("if is_hip():\n    A = [1]\nelse:\n    A = [2]", "A", "is_hip"),
        ("import torch", "[1] if torch.cuda.is_available() else [2]", "torch"),
        ("import os", "[1] if os.environ['X'] else [2]", "X"),
        ("", "[1] if 1 / 0 else [2]", "ZeroDivisionError"),
        ("try:\n    A = 1\nexcept ValueError:\n    A = 2", "A", "x.py:1"),
    ],
)
def test_what_is_not_known_is_never_guessed(source: str, expression: str, reason: str) -> None:
    with pytest.raises(NotStatic, match=reason):
        computed(source, expression)


def test_a_config_keeps_what_is_known_of_it() -> None:
    made = computed("import triton", "triton.Config({'A': 1, 'B': device()}, num_warps=2 * 4, maxnreg=64)")
    assert isinstance(made, ConfigValue)
    assert made.kwargs["A"] == 1 and made.kwargs["B"].text == "device()"
    assert made.options == {"num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": 64}


def test_assumed_defaults_survive_a_second_look() -> None:
    module = Module(ast.parse("import os\nA = int(os.getenv('N', '2'))\nB = A + 1"), "x.py")
    for _ in range(2):
        state = Evaluation()
        assert evaluate(ast.parse("A + B", mode="eval").body, module, into=state) == 5  # 2 + (2 + 1)
        assert state.assumed == {"N": "'2'"}


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(knobs)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_table(package: Path) -> None:
    (package / "markup.py").write_text(
        "import triton\n@triton.jit\ndef k(x, A):\n    pass\ndef f(x):\n    k[(x['[red]'],)](x, A=1, num_warps=2)\n"
    )
    text = run(str(package))
    assert "4 kernels, 1 JIT helper, 3 launch sites" in text
    for part in ("MY_SPLITS", "14 configs: BLOCK 32, 64, 128; num_warps 4, 8; num_stages 2, 3, 4", "x['[red]']"):
        assert part in text
    assert "MY_DECLARED" not in text  # no file with a kernel reads it
    assert "MY_DECLARED" in run(str(package), "--all")


def test_the_json(package: Path) -> None:
    data = json.loads(run(str(package / "kernel.py"), "--format", "json"))
    assert (data["schema"], data["command"]) == ("occupancy/report/1", "knobs")
    data = data["knobs"]
    built = next(k for k in data["kernels"] if k["name"] == "built")
    assert built["autotune"]["configs"][0] == {"BLOCK": 16, "num_warps": 4, "num_stages": 1, "num_ctas": 1}
    assert {v["name"]: v["defaults"] for v in data["environment"]}["MY_WARPS"] == ["str(DEFAULT_WARPS)"]


def test_all_combinations_are_called_that(package: Path) -> None:
    tuner = next(k for k in read_knobs(package / "kernel.py").kernels if k.name == "built").autotune
    assert tuner is not None
    assert config_summary(tuner) == "3 configs: BLOCK 16, 32; num_warps 4; num_stages 1, 2"
