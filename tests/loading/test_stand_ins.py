"""Kernel modules whose imports are missing: what loads with stand-ins, what is said of it, what is refused."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from locations import EXAMPLES

from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import ArgumentValue, CompileOutcome, CompileRequest, KernelSource, Target
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import OccupancyError
from occupancy_cli.loading import target_gpu
from occupancy_cli.loading.absent_modules import standing_in
from occupancy_cli.loading.stand_ins import StandIn, StandIns, ValueNeeded

SM120 = Target(arch=120, shared_per_cta_optin_bytes=101376, sm_count=188, registers_per_sm=65536)
SM90 = Target(arch=90, shared_per_cta_optin_bytes=232448, sm_count=132, registers_per_sm=65536)
LIMITS = Limits(60.0, 8 << 30)

START = """
import triton
import triton.language as tl
"""
KERNEL = """
@triton.jit
def plain(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def write(folder: Path, name: str, *parts: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(START + "\n".join(textwrap.dedent(p) for p in parts))
    return path


def request(path: Path, kernel: str = "plain", target: Target = SM120, **constexprs: Any) -> CompileRequest:
    return CompileRequest(
        source=KernelSource(kernel, file=str(path)),
        target=target,
        arguments=(ArgumentValue("x_ptr", "*fp32"), ArgumentValue("n", "i32", 4096)),
        constexprs=tuple(({"BLOCK": 256} | constexprs).items()),
        options=(("num_warps", 4),),
        stop_above=-1,
    )


def compiled(path: Path, kernel: str = "plain", **constexprs: Any) -> CompileOutcome:
    with CompileService(limits=LIMITS, jobs=1) as service:
        return service.compile_all([request(path, kernel, **constexprs)])[0]


# --- what loads ------------------------------------------------------------------------------------------------------

EVERY_FORM = """
import no_such_a
import no_such_a.sub.deeper as deeper
from no_such_b import something, other as renamed
from no_such_b.types import Tensor
import dataclasses, enum, functools, typing
from collections.abc import Callable

@no_such_a.decorator
@no_such_a.with_arguments("name", value=1)
@functools.partial(no_such_a.compile, dynamic=True)
def host(x: Tensor, y: typing.Optional[no_such_a.Tensor] = None, z: "Tensor | None" = renamed.DEFAULT) -> Tensor | None:
    return 5

@host.register_fake
def _(x): ...

class Module(no_such_a.nn.Module, no_such_b_base := something.Base):
    field: Tensor = no_such_a.zeros(1)
    def __init__(self):
        super().__init__(1, key=2)
        self.made = self.from_the_base(3)

class Function(no_such_a.autograd.Function):
    @staticmethod
    @renamed.custom_fwd(device_type="cuda")
    def forward(ctx, x): ...

apply = Function.apply
Module()

@dataclasses.dataclass
class Config:
    dtype: no_such_a.dtype = no_such_a.float16
    shape: typing.List[Tensor] = dataclasses.field(default_factory=list)

class Kind(enum.Enum):
    HALF = no_such_a.float16

class WithMeta(metaclass=something.Meta):
    pass

NAMES = {no_such_a.float16: "half", no_such_a.bfloat16: "bf16"}
assert NAMES[no_such_a.float16] == "half" and Kind.HALF.value is no_such_a.float16
assert host(1) == 5 and not isinstance(3, no_such_a.Tensor)
major, minor = no_such_a.capability()
first, *rest = no_such_a.values()
with no_such_a.no_grad() as guard, something.lock:
    VALUE = (no_such_a.count() + 1) // 2 - deeper.x ** 2
if no_such_a.is_available() or no_such_a.version() >= (2, 4) or "x" in something.names or something.count > 3:
    raise RuntimeError("no stand-in says yes")
for never in something.many():
    raise RuntimeError("a stand-in holds nothing")
registry: Callable[[Tensor], None] = no_such_a.ops.registry["key"]
no_such_a.setting = 3
no_such_a.ops.table["x"] = 1
hash(something), f"{something}", str(renamed)
schema = no_such_a.infer_schema(host, mutates_args=())
text = "name" + schema if host else schema + 1
"""


@pytest.mark.compiles
def test_every_form_of_use_loads(tmp_path: Path) -> None:
    outcome = compiled(write(tmp_path, "forms.py", EVERY_FORM, KERNEL))
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: no_such_a, no_such_b"
    assert "no_such_a.is_available() was taken as false" in outcome.notes[1]


@pytest.mark.compiles
def test_missing_decorators_above_and_below_triton_jit(tmp_path: Path) -> None:
    kernel = KERNEL.replace("@triton.jit", "@no_such_a.cached()\n@triton.jit\n@no_such_a.annotated")
    outcome = compiled(write(tmp_path, "decorated.py", "import no_such_a\n", kernel))
    assert outcome.ok, outcome.message


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_module_that_misses_nothing_says_nothing(tmp_path: Path) -> None:
    outcome = compiled(write(tmp_path, "whole.py", KERNEL))
    assert outcome.ok and outcome.notes == ()


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_guarded_import_fails_as_it_would(tmp_path: Path) -> None:
    guarded = """
    import importlib.util, contextlib
    try:
        import no_such_optional
        HAS = True
    except ImportError:
        HAS = False
    with contextlib.suppress(ImportError):
        import no_such_suppressed
        HAS = True
    try:
        import no_such_required
    except ImportError as missing:
        raise RuntimeError("please install it") from missing
    assert not HAS and importlib.util.find_spec("no_such_required_either") is None
    """
    outcome = compiled(write(tmp_path, "guarded.py", guarded, KERNEL))
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: no_such_required"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_kernel_behind_a_guard_is_found_all_the_same(tmp_path: Path) -> None:
    body = "try:\n    import no_such_optional\n    HAS = True\nexcept ImportError:\n    HAS = False\nif HAS:\n"
    inside = textwrap.indent(KERNEL, "    ")
    outcome = compiled(write(tmp_path, "behind.py", "import no_such_required\n", body + inside))
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: no_such_optional, no_such_required"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_an_installed_module_no_longer_has(tmp_path: Path) -> None:
    moved = "from triton.language.math import moved_away\nfrom os import never_there\nfrom triton import ops\n"
    outcome = compiled(write(tmp_path, "moved.py", moved, KERNEL))
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: os.never_there, triton.language.math.moved_away, triton.ops"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_module_that_fails_below_the_kernel(tmp_path: Path) -> None:
    after = "import no_such_a\nWARPS = int(no_such_a.count())\n"
    outcome = compiled(write(tmp_path, "below.py", KERNEL, after))
    assert outcome.ok, outcome.message
    assert "did not load to its end: the value of no_such_a.count() is needed" in outcome.notes[-1]
    above = compiled(write(tmp_path, "above.py", after, KERNEL))
    assert above.kind == "import"
    assert "No module named 'no_such_a'" in above.message and "no_such_a.count()" in above.message


# --- packages --------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose __init__ cannot run, with re-exports, a sibling that is whole and one that stops half-way."""
    root = tmp_path / "pkg_of_test"
    (root / "ops").mkdir(parents=True)
    (root / "__init__.py").write_text("__version__ = '1.2'\nimport no_such_server\nraise RuntimeError('heavy')\n")
    (root / "ops" / "__init__.py").write_text(
        "from .constants import WIDTH as EXPORTED\nfrom .helpers import twice\nraise RuntimeError('ops')\n"
    )
    (root / "ops" / "constants.py").write_text("import no_such_c\nWIDTH = 32\n")
    (root / "ops" / "helpers.py").write_text(
        "import triton\n@triton.jit\ndef twice(x):\n    return x + x\n"
        "import no_such_c\nEARLY = 64\nCOUNT = int(no_such_c.count())\nLATE = 3\n"
    )
    kernel = """
    from pkg_of_test import __version__
    from pkg_of_test.ops import EXPORTED, twice
    from .helpers import EARLY, LATE
    WIDTH = tl.constexpr(EXPORTED * EARLY)  # 32 x 64 = 2,048
    assert __version__ == "1.2"

    @triton.jit
    def plain(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.arange(0, WIDTH)
        tl.store(x_ptr + at, twice(tl.load(x_ptr + at, mask=at < n)), mask=at < n)

    LATE_VALUE = tl.constexpr(LATE)

    @triton.jit
    def needs(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr, n + LATE_VALUE)
    """
    write(root / "ops", "kernel.py", kernel)
    return root


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_init_of_a_package_is_read_not_run(package: Path) -> None:
    outcome = compiled(package / "ops" / "kernel.py")
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: no_such_c, pkg_of_test.ops.helpers"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_by_module_name_as_by_file(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=os.pathsep)
    by_name = CompileRequest(
        **{**vars(request(package)), "source": KernelSource("plain", module="pkg_of_test.ops.kernel")}
    )
    absent = CompileRequest(**{**vars(request(package)), "source": KernelSource("plain", module="pkg_of_test.no.such")})
    with CompileService(limits=LIMITS, jobs=1) as service:
        found, lost = service.compile_all([by_name, absent])
    assert found.ok, found.message
    # The kernel's own module is never stood in for.
    assert lost.kind == "import" and "No module named" in lost.message


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_value_below_the_line_at_which_a_sibling_stopped(package: Path) -> None:
    outcome = compiled(package / "ops" / "kernel.py", "needs")
    assert outcome.kind in ("compile", "input")
    assert "the value of pkg_of_test.ops.helpers.LATE is needed" in outcome.message
    assert "pkg_of_test.ops.helpers stopped loading at line 7" in outcome.message


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_cache_knows_what_the_load_read(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def run() -> tuple[CompileOutcome, int]:
        with CompileService(limits=LIMITS, jobs=1, cache=ResultCache(folder)) as service:
            return service.compile_all([request(package / "ops" / "kernel.py")])[0], service.compiled

    first, compiles = run()
    assert first.ok and compiles == 1
    again, compiles = run()
    assert compiles == 0 and again.cached
    assert again.notes == first.notes  # said of a remembered result too
    for changed in ("ops/constants.py", "ops/__init__.py", "ops/helpers.py"):
        path = package / changed
        path.write_text(path.read_text() + "# changed\n")
        assert run()[1] == 1, changed


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.compiles
def test_a_global_of_the_kernel(tmp_path: Path) -> None:
    kernel = """
    import no_such_a
    LIMIT = no_such_a.limits.LARGEST
    WRAPPED = tl.constexpr(LIMIT)

    @triton.jit
    def plain(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr, n + WRAPPED)

    @triton.jit
    def by_attribute(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr, no_such_a.helper(n))

    @triton.jit
    def by_name(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr, n + LIMIT)

    @triton.jit
    def in_a_dead_branch(x_ptr, n, BLOCK: tl.constexpr):
        if BLOCK == 1:
            tl.store(x_ptr, no_such_a.helper(n))
        tl.store(x_ptr, n)
    """
    path = write(tmp_path, "needs.py", kernel)
    for name, needed in (
        ("plain", "no_such_a.limits.LARGEST"),
        ("by_attribute", "no_such_a.helper"),
        ("by_name", "no_such_a.limits.LARGEST"),
    ):
        outcome = compiled(path, name)
        assert not outcome.ok
        assert f"the value of {needed} is needed, but no_such_a is not installed" in outcome.message, name
    assert compiled(path, "in_a_dead_branch").ok


@pytest.mark.compiles
def test_an_autotune_config_and_a_heuristic(tmp_path: Path) -> None:
    kernel = """
    import no_such_a

    @triton.autotune(configs=[triton.Config({"BLOCK": no_such_a.best()})], key=["n"])
    @triton.jit
    def tuned(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

    @triton.heuristics({"BLOCK": lambda args: no_such_a.pick(args["n"])})
    @triton.jit
    def heuristic(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

    @triton.heuristics({"BLOCK": lambda args: 64 if no_such_a.large(args["n"]) else 32})
    @triton.jit
    def decided(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
    """
    path = write(tmp_path, "tuned.py", kernel)
    with CompileService(limits=LIMITS, jobs=1) as service:
        with pytest.raises(OccupancyError, match=r"the value of no_such_a\.best\(\) is needed"):
            service.describe(KernelSource("tuned", file=str(path)), SM120)
        description = service.describe(KernelSource("heuristic", file=str(path)), SM120)
        assert description.heuristics == ("BLOCK",)
        for name, needed in (("heuristic", "no_such_a.pick()"), ("decided", "no_such_a.large()")):
            outcome = service.compile_all([request(path, name)])[0]
            assert not outcome.ok and f"the value of {needed} is needed" in outcome.message, name


# --- the example -----------------------------------------------------------------------------------------------------

EXAMPLE = EXAMPLES / "without_dependencies" / "decode_attention.py"


@pytest.mark.compiles
def test_the_example_with_nothing_installed() -> None:
    pointers = ("query_ptr", "kv_ptr", "out_ptr")
    integers = {"tokens": 4096, "head_dim": 128, "stride_query": 128, "stride_kv": 128}
    decode = CompileRequest(
        source=KernelSource("decode_kernel", file=str(EXAMPLE)),
        target=SM120,
        arguments=(
            *(ArgumentValue(name, "*bf16") for name in pointers),
            ArgumentValue("scale", "fp32"),
            *(ArgumentValue(name, "i32", value) for name, value in integers.items()),
        ),
        constexprs=(("BLOCK_H", 16), ("BLOCK_D", 128), ("BLOCK_N", 16)),
        options=(("num_warps", 4), ("num_stages", 1)),
        stop_above=-1,
    )
    checked = CompileRequest(
        source=KernelSource("checked_kernel", file=str(EXAMPLE)),
        target=SM120,
        arguments=(ArgumentValue("out_ptr", "*i32"), ArgumentValue("rows", "i32", 5)),
        constexprs=(),
        options=(),
        stop_above=-1,
    )
    with CompileService(limits=LIMITS, jobs=1) as service:
        described = service.describe(decode.source, SM120)
        outcome, refused = service.compile_all([decode, checked])
    assert described.autotune is not None and len(described.autotune.configs) == 3 * 2 * 2
    assert outcome.ok, outcome.message
    assert outcome.notes[0].startswith("stand-ins for: my_engine, my_engine_cuda")
    assert "my_engine.platforms.current_platform.is_rocm() was taken as false" in outcome.notes[1]
    assert "the value of my_engine.flags.ROW_LIMIT is needed, but my_engine is not installed" in refused.message


# --- one worker, several loads ---------------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.one_triton
def test_helpers_of_one_name_in_two_folders(tmp_path: Path) -> None:
    for name, width in (("a", 64), ("b", 32)):
        write(tmp_path / name, "same_name_helper.py", f"WIDTH = tl.constexpr({width})\n")
        kernel = """
        from same_name_helper import WIDTH
        @triton.jit
        def plain(x_ptr, n, BLOCK: tl.constexpr):
            tl.static_assert(WIDTH == BLOCK)
            tl.store(x_ptr + tl.arange(0, WIDTH), 0.0)
        """
        write(tmp_path / name, f"kernel_{name}.py", kernel)
    files = [tmp_path / "a" / "kernel_a.py", tmp_path / "b" / "kernel_b.py"]
    with CompileService(limits=LIMITS, jobs=1) as service:
        outcomes = service.compile_all([request(files[0], BLOCK=64), request(files[1], BLOCK=32)])
        # and back again, to what the first one has in memory
        outcomes += service.compile_all([request(files[0], BLOCK=64, target=SM90)])
    assert [o.ok for o in outcomes] == [True] * 3, [o.message for o in outcomes]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_module_that_asks_for_the_device_is_loaded_for_each(tmp_path: Path) -> None:
    kernel = """
    import no_such_a
    ARCH = tl.constexpr(triton.runtime.driver.active.get_current_target().arch)
    @triton.jit
    def plain(x_ptr, n, BLOCK: tl.constexpr):
        tl.static_assert(ARCH == BLOCK)
        tl.store(x_ptr, n)
    """
    path = write(tmp_path, "device.py", kernel)
    with CompileService(limits=LIMITS, jobs=1) as service:
        for target in (SM120, SM90, SM120):
            outcome = service.compile_all([request(path, target=target, BLOCK=target.arch)])[0]
            assert outcome.ok, outcome.message


# --- the stand-ins themselves ----------------------------------------------------------------------------------------


def test_standing_in_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "module_of_test.py").write_text("import no_such_d\nfrom os import no_such_name\nX = no_such_d.x\n")
    finders = list(sys.meta_path)
    with standing_in(target="module_of_test") as used:
        assert used.supply(ImportError("cannot import name 'no_such_name' from 'os' (somewhere)"))
        assert not used.supply(ImportError("cannot import name 'path' from 'os' (somewhere)"))
        module = importlib.import_module("module_of_test")
    assert used.names() == ["no_such_d", "os.no_such_name"]
    assert sys.meta_path == finders
    assert not hasattr(sys.modules["os"], "no_such_name")
    with pytest.raises(ValueNeeded, match=r"value of no_such_d\.x is needed, but no_such_d is not installed") as needed:
        bool(module.X)
    assert needed.value.data["name"] == "no_such_d.x"
    for name in ("module_of_test", "no_such_d"):
        sys.modules.pop(name, None)


def test_sealed_stand_ins_refuse_every_value() -> None:
    owner = StandIns()
    owner.reasons["lib"] = "is not installed"
    value = owner.child("lib.value")
    assert isinstance(value, StandIn)
    owner.sealed = True
    for use in (bool, int, float, len, list, repr, str, lambda v: v == 1, lambda v: v < 2, lambda v: 1 in v):
        with pytest.raises(ValueNeeded, match=r"lib\.value"):
            use(value)
    assert value == value and value.a.b is not None  # naming it further is not using it
    with pytest.raises(ValueNeeded, match=r"value of lib\.value\.a\(\) \+ 1 is needed, but lib is not installed"):
        int(value.a() + 1)


def test_a_chain_of_stand_ins_has_an_end() -> None:
    value: Any = StandIns().child("lib.value")
    with pytest.raises(AttributeError, match="stand-in"):
        for _ in range(1000):
            value = value.fn
    value = StandIns().child("lib.value")
    with pytest.raises(AttributeError, match="stand-in"):
        for _ in range(1000):
            value = value()


def test_what_pytorch_would_say_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_gpu, "_active", [SM120])
    with standing_in(hidden=["torch"]) as used:
        displaced = {n: sys.modules.pop(n) for n in list(sys.modules) if n.partition(".")[0] == "torch"}
        try:
            torch = importlib.import_module("torch")
            assert torch.cuda.is_available() is True
            assert torch.cuda.get_device_capability() == (12, 0)
            assert torch.cuda.get_device_properties(0).multi_processor_count == 188
            with pytest.raises(target_gpu.FigureUnknown, match="L2_cache_size"):  # no profile value goes there
                assert hasattr(torch.cuda.get_device_properties(0), "L2_cache_size")
            assert torch.version.hip is None and not hasattr(torch, "npu")
            assert torch.finfo(torch.float8_e4m3fn).max == 448.0
            # bfloat16: 8 bits of mantissa with the hidden one, largest exponent 127
            assert torch.finfo(torch.bfloat16).max == (2 - 2**-7) * 2.0**127
            assert torch.iinfo(torch.int32).max == 2**31 - 1 and torch.iinfo(torch.uint8).max == 255
            from packaging.version import parse  # the real one where it is installed, its numbers where not

            assert parse(torch.__version__) >= parse("2.4")
        finally:
            for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
                del sys.modules[name]
            sys.modules.update(displaced)
    assert used.names()[0] == "torch"


def test_versions_without_packaging() -> None:
    parse = StandIns().child("packaging.version.parse")
    assert parse("3.10.1") > parse("3.9") and parse("2.4") == parse("2.4.0") and parse("2.4rc1") < parse("2.4")
    assert (parse("v3.6.0+git1").major, parse("3.6.0+git1").minor) == (3, 6)


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_standard_library_keeps_its_own_answers(tmp_path: Path) -> None:
    # multiprocessing.connection imports _winapi, which is not there; it must not get a stand-in while one load is on.
    late = """
    import no_such_a
    @triton.heuristics({"BLOCK": lambda args: __import__("multiprocessing.connection") and 256})
    @triton.jit
    def plain(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
    """
    outcome = compiled(write(tmp_path, "late.py", late))
    assert outcome.ok, outcome.message
    assert outcome.notes[0] == "stand-ins for: no_such_a"
