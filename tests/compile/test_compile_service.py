"""Compiles: equal to Triton's own, early figures equal to late ones, and each way a compile can fail costs itself only.

All of this depends on the Triton version, so these tests run on every supported one (`make compile-tests`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from occupancy_cli.answers.analyze import compile_points, time_on
from occupancy_cli.compile.compile_service import CompileService, perform, triton_version
from occupancy_cli.compile.request import (
    ArgumentValue,
    CompileRequest,
    KernelSource,
    Target,
    integer_class,
    specialization_class,
)
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.typed_json import to_json, to_plain
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.compile.worker_messages import AskHealth, Health
from occupancy_cli.errors import CompileError, InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import DEFAULTS
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.points import points
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.spec.settings import parse_settings

pytestmark = pytest.mark.compiles

SM120 = Target(120, 101_376, 188, 65_536)
QUICK = Limits(60.0, 8 << 30)


def request(
    path: Path, *, n: int = 4096, stop_above: int | None = None, block: int = 64, **options: int
) -> CompileRequest:
    return CompileRequest(
        KernelSource("plain", str(path)),
        SM120,
        (ArgumentValue("x_ptr", "*fp32"), ArgumentValue("n", "i32", n)),
        (("BLOCK", block),),
        tuple(sorted(options.items())),
        stop_above,
    )


def shipped(service: CompileService, *sets: str) -> tuple[Kernel, object]:
    gpu = load_gpu("rtx-pro-6000")
    return prepare(read_kernel_input(None), gpu, service.describe, parse_settings(sets), {}), gpu


def plain_triton(requests: list[CompileRequest]) -> list[dict[str, int]]:
    """Resources of each request by Triton alone, in a process of its own: a driver, a warmup, no watching.

    Registers and local memory are read by NVIDIA's cuobjdump where this Triton has it, by nobody else's code.
    """
    script = textwrap.dedent(
        """
        import json, re, subprocess, sys, tempfile, os
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
        from pathlib import Path
        from occupancy_cli.compile import triton_front
        from occupancy_cli.compile import compiled_kernels, loaded_kernels
        from occupancy_cli.compile.request import CompileRequest
        from occupancy_cli.compile.typed_json import from_plain
        from occupancy_cli.loading import outside_reads
        outside_reads.install()
        tool = Path(triton_front.LOCATION) / "backends/nvidia/bin/cuobjdump"
        for message in json.load(sys.stdin):
            request = from_plain(CompileRequest, message)
            triton_front.install_driver(triton_front.TargetGpu(**message["target"]))
            kernel = loaded_kernels.loaded_kernel(request.source)
            values = {a.name: compiled_kernels.stand_in(a) for a in request.arguments if not a.heuristic}
            values = triton_front.with_heuristics(kernel, values | dict(request.constexprs), dict(request.options))
            _, jit = triton_front.layers(kernel)
            compiled = jit.warmup(grid=(1,), **values)
            found = {"shared_bytes": compiled.metadata.shared, "num_warps": compiled.metadata.num_warps}
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(compiled.asm["cubin"]); file.flush()
                said = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True).stdout
            found["registers_per_thread"] = int(re.search(r"REG:(\\d+)", said)[1])
            found["spill_bytes"] = int(re.search(r"STACK:(\\d+)", said)[1])
            print(json.dumps(found))
        """
    )
    messages = json.dumps([to_plain(r) for r in requests])
    done = subprocess.run([sys.executable, "-c", script], input=messages, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_shipped_configs_equal_triton_alone_and_their_own_early_figures() -> None:
    with CompileService(limits=QUICK) as service:
        kernel, gpu = shipped(service, "BLOCK_H=32", "nsplit=2,32")
        # Half of the product: each tile with 4 warps at 2 splits (16 tiles a split) and with 8 at 32 (one, a constant).
        half = {(4, 2), (8, 32)}
        chosen = [p for p in points(kernel, gpu, None) if (p.config["num_warps"], p.names["nsplit"]) in half]
        assert len(chosen) == 6
        analyzed = compile_points(kernel, gpu, service, chosen)
        requests = [p.main.request for p in chosen]
        early = service.compile_all([dataclasses.replace(r, stop_above=-1) for r in requests])
    for each, expected, first in zip(analyzed, plain_triton(requests), early, strict=True):
        resources = each.outcomes[0].resources
        assert resources is not None and first.resources is not None
        assert {name: getattr(resources, name) for name in expected} == expected
        assert first.resources.shared_bytes == expected["shared_bytes"]
        assert first.resources.registers_per_thread is None  # it did end early
        assert resources.threads_per_cta == 32 * expected["num_warps"]


@pytest.mark.one_triton
def test_some_shipped_config_is_over_the_cap_and_some_fits() -> None:
    with CompileService(limits=QUICK) as service:
        kernel, gpu = shipped(service, "BLOCK_H=32")
        outcomes = [a.outcomes[0] for a in compile_points(kernel, gpu, service, points(kernel, gpu, -1))]
    sizes = [o.resources.shared_bytes for o in outcomes if o.resources]
    assert min(sizes) <= 101_376 < max(sizes)


def test_a_config_over_the_cap_is_not_taken_to_ptxas(kernel_file: Path) -> None:
    with CompileService(limits=QUICK) as service:
        kernel, gpu = shipped(service, "BLOCK_H=32", "BLOCK_T=64")
        stopped, *_ = compile_points(kernel, gpu, service, points(kernel, gpu, 101_376))
        whole, *_ = compile_points(kernel, gpu, service, points(kernel, gpu, None))
    assert stopped.outcomes[0].resources.registers_per_thread is None
    assert whole.outcomes[0].resources.registers_per_thread > 0
    assert stopped.outcomes[0].resources.shared_bytes == whole.outcomes[0].resources.shared_bytes > 101_376


def test_default_options_are_tritons() -> None:
    code = (
        "from triton.backends.nvidia.compiler import CUDAOptions as O; import json;"
        "print(json.dumps({n: O.__dataclass_fields__[n].default for n in ('num_warps','num_stages','num_ctas')}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == dict(DEFAULTS)


def test_no_internal_of_triton_has_moved() -> None:
    answer = perform(AskHealth(120), QUICK).answer
    assert isinstance(answer, Health)
    assert answer.missing_internals == ()
    assert answer.supported is True
    assert answer.triton == triton_version()


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        ("CUDABackend.make_llir = lambda self, a: None", "has another make_llir"),
        ("CUDABackend.make_llir = lambda self, *, module: None", "has another make_llir"),
        (
            # The allocation pass by another name.
            "text = textwrap.dedent(inspect.getsource(CUDABackend.make_llir))\n"
            "name = re.search(r'(nvidia[.])?passes[.]ttgpuir[.]add_allocate_shared_memory(_nv)?', text)[0]\n"
            "compiler.renamed = eval(name, vars(compiler))\n"
            "exec(text.replace(name + '(', 'renamed('), vars(compiler))\n"
            "CUDABackend.make_llir = compiler.make_llir",
            "has no shared-memory allocation pass",
        ),
    ],
)
def test_a_triton_that_cannot_be_stopped_early_is_said_to_be(kernel_file: Path, moved: str, says: str) -> None:
    script = textwrap.dedent(
        """
        import inspect, json, os, re, sys, tempfile, textwrap
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
        from occupancy_cli.compile import triton_front
        from occupancy_cli.compile import compiled_kernels, loaded_kernels
        from occupancy_cli.compile.request import CompileRequest
        from occupancy_cli.compile.typed_json import from_json
        from occupancy_cli.loading import outside_reads
        from triton.backends.nvidia import compiler
        from triton.backends.nvidia.compiler import CUDABackend
        outside_reads.install()
        asked = from_json(CompileRequest, sys.stdin.read())
        triton_front.install_driver(asked.target)
        kernel = loaded_kernels.loaded_kernel(asked.source)
        values = {"x_ptr": triton_front.TensorStandIn("fp32", 16), "n": 4096, "BLOCK": 64}
        """
    )
    script += moved + textwrap.dedent(
        """
        try:
            triton_front.compile_launch(kernel, values, stop_above=None)
        except triton_front.EarlyStopUnavailable as why:
            print(why)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=to_json(request(kernel_file)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert says in done.stdout, done.stderr[-2000:]


def test_triton_hashes_its_installation_only_for_what_is_kept() -> None:
    from triton.compiler import compiler
    from triton.runtime import cache

    from occupancy_cli.compile import triton_front

    home = cache if hasattr(cache, "triton_key") else compiler  # Triton 3.4 has it in the compiler
    original = home.triton_key
    with triton_front.unhashed_installation():
        assert home.triton_key() == triton_front.VERSION
    assert home.triton_key is original


def test_what_is_kept_is_found_by_a_launch(kernel_file: Path, tmp_path: Path) -> None:
    one = request(kernel_file)
    with CompileService(limits=QUICK, jobs=1) as service:
        assert service.compile_all([one])[0].ok  # the same worker then keeps what it compiles
        kept = service.compile_all([one], keep_in=tmp_path)[0]
    assert kept.binary is not None and Path(kept.binary[0]).read_bytes()[:4] == b"\x7fELF"
    entries = sorted(p.name for p in (tmp_path / "triton").iterdir())
    script = textwrap.dedent(
        """
        import sys
        from occupancy_cli.compile import triton_front
        from occupancy_cli.compile import compiled_kernels, loaded_kernels
        from occupancy_cli.compile.request import CompileRequest
        from occupancy_cli.compile.typed_json import from_json
        from occupancy_cli.loading import outside_reads
        outside_reads.install()
        request = from_json(CompileRequest, sys.stdin.read())
        triton_front.install_driver(request.target)
        _, jit = triton_front.layers(loaded_kernels.loaded_kernel(request.source))
        values = {a.name: compiled_kernels.stand_in(a) for a in request.arguments}
        jit.warmup(grid=(1,), **values, **dict(request.constexprs), **dict(request.options))
        """
    )
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_DEFAULT_FP_FUSION": "1"}
    subprocess.run([sys.executable, "-c", script], input=to_json(one), text=True, check=True, env=env)
    assert entries and sorted(p.name for p in (tmp_path / "triton").iterdir()) == entries


def test_values_of_one_class_specialize_alike_in_this_triton(kernel_file: Path) -> None:
    """The class in a request's key is finer than Triton's own: asked of Triton itself, value by value."""
    values = [0, 1, 2, 3, 15, 16, 17, 32, 48, 64, 100, 1024, 4100, 2**31 - 1, 2**31, 2**31 + 16, 2**40, 2**40 + 1, -1]
    values += [-16, -17, 2**62, 2**63 - 1, -(2**31), -(2**31) - 1, -(2**40)]
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(kernel_file.parent)!r})
        from occupancy_cli.compile import triton_front as front
        import small
        front.install_driver(front.TargetGpu(120, 101376, 188, 65536))
        for value in {values}:
            print(front.specialization_key(small.plain, dict(x_ptr=front.TensorStandIn("fp32", 16), n=value, BLOCK=32)))
        """
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    by_class: dict[str, set[str]] = {}
    for value, key in zip(values, said.splitlines(), strict=True):
        by_class.setdefault(integer_class(value), set()).add(key)
    assert {c: len(keys) for c, keys in by_class.items()} == dict.fromkeys(by_class, 1)
    assert len(by_class) > 6


@pytest.mark.parametrize(("align", "expected"), [(16, "align16"), (64, "align16"), (8, "align8"), (4, "align4")])
def test_alignment_counts_up_to_16(align: int, expected: str) -> None:
    assert specialization_class(ArgumentValue("p", "*bf16", align=align)) == expected


def test_alignment_and_divisibility_change_what_is_compiled(kernel_file: Path) -> None:
    with CompileService(limits=QUICK) as service:
        aligned, odd = service.compile_all([request(kernel_file, n=4096), request(kernel_file, n=4100)])
    assert aligned.ok and odd.ok
    assert service.compiled == 2


# --- failures cost only themselves ---


def broken(tmp_path: Path, body: str, name: str = "bad.py") -> Path:
    path = tmp_path / name
    start = "import triton, os, sys, time\nimport triton.language as tl\n"
    path.write_text(start + textwrap.dedent(body))
    return path


KERNEL = """
@triton.jit
def plain(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("before", "kind", "says"),
    [
        ("sys.exit(3)", "import", "SystemExit: 3"),
        ("os._exit(7)", "crash", "ended by itself with exit code 7"),
        ("os.abort()", "crash", "ended by SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "crash", "ended by SIGSEGV"),
        ("if os.fork() == 0: time.sleep(60)\nos._exit(7)", "crash", "ended by itself with exit code 7"),
        (
            # Not the descriptors that programs have: the channel itself, looked for in all of them.
            "for f in range(3, 1024):\n    if os.path.exists(f'/proc/self/fd/{f}'):\n"
            "        try: os.write(f, b'{\"Warmed\": {}}\\n')\n        except OSError: pass",
            "crash",
            "bad.py:plain loads writes to the compiler process's answers",
        ),
        (
            "class E(Exception):\n    def __str__(self): raise ValueError\nsys.exit(E())",
            "compile",
            "text raises ValueError",
        ),
        ("raise RuntimeError('no device')", "import", "RuntimeError: no device"),
        ("import nothing_of_that_name; int(nothing_of_that_name.x)", "import", "nothing_of_that_name"),
        ("time.sleep(60)", "timeout", "not done after 12 s"),
        ("while True: pass", "timeout", "not done after 12 s"),
        ("def (", "import", "SyntaxError"),
    ],
)
def test_a_kernel_file_that_misbehaves_costs_only_its_own_result(
    tmp_path: Path, kernel_file: Path, before: str, kind: str, says: str
) -> None:
    bad = broken(tmp_path, before + KERNEL)
    with CompileService(limits=Limits(12.0 if kind == "timeout" else 60.0, 8 << 30), jobs=1) as service:
        wrong, right = service.compile_all([request(bad), request(kernel_file)])
        again = service.compile_all([request(kernel_file, block=128)])[0]
    assert (wrong.kind, right.ok, again.ok) == (kind, True, True)
    assert says in wrong.message


@pytest.mark.one_triton
def test_what_a_kernel_file_prints_and_starts_stays_with_it(tmp_path: Path) -> None:
    body = """
    print("from python"); sys.stdout.flush()
    os.write(1, b"from below\\n")
    import subprocess
    subprocess.Popen(["sleep", "300"])
    open(os.environ["CHILD_FILE"], "w").write(str(os.getpgid(0)))
    """
    os.environ["CHILD_FILE"] = str(tmp_path / "group")
    try:
        with CompileService(limits=QUICK, jobs=1) as service:
            outcome = service.compile_all([request(broken(tmp_path, textwrap.dedent(body) + KERNEL))])[0]
    finally:
        del os.environ["CHILD_FILE"]
    assert outcome.ok
    assert "from python" in outcome.output and "from below" in outcome.output
    group = int((tmp_path / "group").read_text())
    time.sleep(0.2)
    alive = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False).stdout.split()
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in alive]
    assert [s for s in states if s != "Z"] == []


@pytest.mark.one_triton
@pytest.mark.parametrize(
    "before",
    [
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close(); sys.stderr.close()",
        "import threading\nfor _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()",
        "sys.stderr.write('x' * 30_000_000)",
    ],
)
def test_a_kernel_file_that_only_makes_a_mess_gets_its_result(tmp_path: Path, before: str) -> None:
    with CompileService(limits=QUICK, jobs=1) as service:
        outcome = service.compile_all([request(broken(tmp_path, before + KERNEL))])[0]
    assert outcome.ok, outcome
    assert len(outcome.output) <= 4_000


@pytest.mark.one_triton
def test_a_copy_of_the_worker_that_a_kernel_file_forks_answers_nothing(tmp_path: Path) -> None:
    """Both would read requests and answer them, and a request get the answer to another: the loads of a block of 32 to
    256 elements in 4 warps take different registers."""
    forks = "@triton.heuristics({'ONE': lambda args: os.fork() * 0 + 1})"
    body = """
    @triton.jit
    def plain(x_ptr, n, BLOCK: tl.constexpr, ONE: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.cumsum(tl.load(x_ptr + at, mask=at < n)) * ONE, mask=at < n)
    """
    requests = []
    for name, heuristic in (("forks.py", forks), ("does_not.py", forks.replace("os.fork() * 0 + ", ""))):
        path = broken(tmp_path, heuristic + textwrap.dedent(body), name)
        requests.append([request(path, block=block) for block in (32, 256, 1024)])
    with CompileService(limits=QUICK, jobs=1) as service:
        forked, plain = (service.compile_all(r) for r in requests)
    assert [o.resources for o in forked] == [o.resources for o in plain]
    assert len({o.resources for o in plain}) == 3


@pytest.mark.one_triton
def test_what_a_kernel_file_forks_into_a_session_of_its_own_ends_with_it(tmp_path: Path) -> None:
    body = """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(os.environ["CHILD_FILE"], "w").write(str(os.getpid()))
            time.sleep(300)
        time.sleep(300)
    while not os.path.exists(os.environ["CHILD_FILE"]) or not open(os.environ["CHILD_FILE"]).read():
        time.sleep(0.01)
    """
    os.environ["CHILD_FILE"] = str(tmp_path / "child")
    try:
        with CompileService(limits=QUICK, jobs=1) as service:
            assert service.compile_all([request(broken(tmp_path, textwrap.dedent(body) + KERNEL))])[0].ok
    finally:
        del os.environ["CHILD_FILE"]
    child = Path(f"/proc/{int((tmp_path / 'child').read_text())}/stat")
    for _ in range(100):
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("it lives on")


def test_a_variable_that_triton_reads_decides_whether_a_result_is_known(
    kernel_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.6 on Triton reads them with C's getenv, where no Python sees it."""

    def known(*names: str) -> list[bool]:
        with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
            return [o.cached for o in service.compile_all([request(kernel_file, block=b) for b in (64, 128)])]

    assert known() == [False, False]
    assert known() == [True, True]
    for name in ("DISABLE_PTXAS_OPT", "DISABLE_LLVM_OPT", "TRITON_PTXAS_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "no-such-ptxas") if "PATH" in name else "1")
        assert known() == [False, False], name
        assert known() == [True, True], name
    (tmp_path / "no-such-ptxas").write_text("#!/bin/sh\nexit 1\n")  # now there is one
    assert known() == [False, False]
    for name in ("DISABLE_PTXAS_OPT", "DISABLE_LLVM_OPT", "TRITON_PTXAS_PATH"):
        monkeypatch.delenv(name)
    assert known() == [True, True]


def test_every_variable_that_triton_says_changes_a_binary_is_recorded() -> None:
    """Triton's `get_cache_invalidating_env_vars` gives those of its list that are set: all that could be are."""
    script = textwrap.dedent(
        """
        import json, os, re, sys
        from pathlib import Path
        import triton
        from triton._C.libtriton import get_cache_invalidating_env_vars
        from occupancy_cli.compile.triton_front import environment_names
        library = (Path(triton.__path__[0]) / "_C" / "libtriton.so").read_bytes()
        names = re.findall(rb"[A-Z][A-Z]+_[A-Za-z0-9_]{3,50}(?=\\0)", library)
        kin = ("TRITON_", "LLVM_", "MLIR_", "DISABLE_", "ENABLE_", "ALLOW_", "STORE_", "USE_", "NVPTX_", "PTXAS_")
        for name in {n.decode() for n in names}:
            if name.startswith(kin):
                os.environ[name] = "1"
        listed = {n for n in get_cache_invalidating_env_vars() if "_HIP_" not in n and n != "TRITON_DUMP_MIR"}
        print(json.dumps([sorted(listed), sorted(listed - environment_names())]))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    listed, unknown = json.loads(done.stdout)
    assert {"DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "TRITON_F32_DEFAULT", "USE_IR_LOC"} <= set(listed)
    assert unknown == []


def test_a_compile_error_says_what_triton_said(tmp_path: Path) -> None:
    bad = broken(tmp_path, KERNEL.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)"))
    with CompileService(limits=QUICK) as service:
        outcome = service.compile_all([request(bad)])[0]
    assert outcome.kind == "compile"
    assert "power of 2" in outcome.message


@pytest.mark.one_triton
def test_memory_is_limited(tmp_path: Path) -> None:
    bad = broken(tmp_path, "hoard = bytearray(3 << 30)" + KERNEL)
    with CompileService(limits=Limits(60.0, 2 << 30), jobs=1) as service:
        outcome = service.compile_all([request(bad)])[0]
    assert outcome.kind == "over_memory"


@pytest.mark.one_triton
def test_an_unknown_kernel_names_the_nearest(kernel_file: Path) -> None:
    with CompileService(limits=QUICK) as service, pytest.raises(InputError) as caught:
        service.describe(KernelSource("scail", str(kernel_file)), SM120)
    assert "unknown kernel 'scail'" in str(caught.value)
    assert "Did you mean scale?" in str(caught.value)


@pytest.mark.one_triton
def test_a_kernel_file_that_does_not_load_is_one_error(tmp_path: Path) -> None:
    bad = broken(tmp_path, "print('hello'); raise ValueError('as it is')" + KERNEL)
    with CompileService(limits=QUICK) as service, pytest.raises(CompileError) as caught:
        service.describe(KernelSource("plain", str(bad)), SM120)
    assert "ValueError: as it is" in str(caught.value)


def test_what_fails_around_the_kernel_is_said_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "around.py"
    file.write_text(
        "import triton\nimport triton.language as tl\n"
        "@triton.heuristics({'EVEN': lambda args: args['N'] % args['SPLIT_K'] == 0})\n@triton.jit\n"
        "def reads(x_ptr, N, EVEN: tl.constexpr):\n    tl.store(x_ptr, N)\n"
        "@triton.heuristics({'TILE': lambda args: 3})\n@triton.jit\n"
        "def sets(x_ptr, N):\n    tl.store(x_ptr, N)\n"
        "@triton.heuristics({'OTHER': lambda args: 1 // 0})\n@triton.jit\n"
        "def divides(x_ptr, N, OTHER: tl.constexpr):\n    tl.store(x_ptr, N)\n",
        encoding="utf-8",
    )

    values = (ArgumentValue("x_ptr", "*i32"), ArgumentValue("N", "i32", 64))
    with CompileService(limits=QUICK, jobs=1) as service:
        reads, sets, divides = service.compile_all(
            [
                CompileRequest(KernelSource(kernel, str(file)), SM120, values, (), (), None)
                for kernel in ("reads", "sets", "divides")
            ]
        )
    assert reads.kind == "input"
    assert reads.message.startswith("the heuristic that sets EVEN reads SPLIT_K, which has no value")
    assert sets.message.startswith("TILE is set, but is neither a parameter of sets nor a launch option of Triton")
    assert divides.message.startswith("ZeroDivisionError: ")
    assert divides.message.endswith("@triton.heuristics({'OTHER': lambda args: 1 // 0}) (around.py:11)")


def test_describe_lists_params_configs_and_heuristics(kernel_file: Path) -> None:
    with CompileService(limits=QUICK) as service:
        found = service.describe(KernelSource("scale", str(kernel_file)), SM120)
    assert found.arguments == ("x_ptr", "y_ptr", "n", "factor")
    assert found.constexprs == ("BLOCK", "EVEN")
    assert found.heuristics == ("EVEN",)
    assert [c["BLOCK"] for c in found.autotune.configs] == [64, 64, 128, 128]
    assert found.autotune.key == ("n",)


@pytest.mark.one_triton
def test_other_workers_start_while_one_describes_and_end_with_the_service(tmp_path: Path) -> None:
    def workers() -> set[int]:
        named = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False).stdout
        lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in named.split()}
        return {int(p) for p, file in lines.items() if file.exists() and b"compile.worker" in file.read_bytes()}

    before = workers()
    with CompileService(limits=QUICK, jobs=2) as service:
        with pytest.raises(CompileError):
            service.describe(KernelSource("plain", str(broken(tmp_path, "1 / 0" + KERNEL))), SM120)
        deadline = time.monotonic() + 30
        while len(workers() - before) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(workers() - before) == 2
    assert workers() <= before


# --- the cache, with real compiles ---


def test_a_warm_run_needs_neither_triton_nor_the_kernel_file_loaded(kernel_file: Path, tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    with CompileService(limits=QUICK, cache=cache) as service:
        cold = service.compile_all([request(kernel_file)])[0]
        assert service.compiled == 1
    with CompileService(limits=QUICK, cache=ResultCache(tmp_path / "cache")) as service:
        warm = service.compile_all([request(kernel_file)])[0]
        assert service.compiled == 0
    assert warm.cached and warm.resources == cold.resources


@pytest.mark.one_triton
def test_a_warm_analyze_imports_neither_triton_nor_numpy_nor_starts_a_worker(kernel_file: Path, tmp_path: Path) -> None:
    flags = ["--arg", "x_ptr=*fp32", "--arg", "n=i32=4096", "--set", "num_warps=4"]
    code = (
        "import sys; from occupancy_cli.cli.app import app;"
        "from occupancy_cli.compile import worker_client as client; client.WorkerClient.ask = None;"
        f"app(['analyze', {str(kernel_file) + ':plain'!r}, *{flags}], standalone_mode=False);"
        "print([m for m in ('triton', 'numpy', 'torch', 'small') if m in sys.modules])"
    )
    env = {**os.environ, "OCCUPANCY_CACHE_DIR": str(tmp_path / "cache")}
    cold = code.replace("client.WorkerClient.ask = None;", "")
    subprocess.run([sys.executable, "-c", cold], capture_output=True, check=True, env=env)
    warm = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert warm.stdout.splitlines()[-1] == "[]"


@pytest.mark.one_triton
def test_an_edit_of_the_kernel_or_of_what_it_imports_misses(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("SIZE = 64\n")
    bad = broken(tmp_path, "from helper import SIZE\nMODE = os.environ.get('KERNEL_MODE', 'a')\n" + KERNEL)

    def compiled() -> int:
        with CompileService(limits=QUICK, cache=ResultCache(tmp_path / "cache")) as service:
            assert service.compile_all([request(bad)])[0].ok
            return service.compiled

    assert [compiled(), compiled()] == [1, 0]
    (tmp_path / "helper.py").write_text("SIZE = 128\n")
    assert [compiled(), compiled()] == [1, 0]
    os.environ["KERNEL_MODE"] = "b"
    try:
        assert [compiled(), compiled()] == [1, 0]
    finally:
        del os.environ["KERNEL_MODE"]
    assert compiled() == 0  # the record made under the first environment still holds
    (tmp_path / "helper.py").write_text("SIZE = 64\n")
    assert compiled() == 0  # and the one of the first content


@pytest.mark.one_triton
def test_an_edit_of_what_the_kernel_file_reads_misses(tmp_path: Path) -> None:
    """Configs in a file beside the kernel, one that may appear, and what a pruning function opens."""
    reads = """
    import json
    from pathlib import Path
    HERE = Path(__file__).parent
    BLOCKS = [block for file in sorted(HERE.glob("configs/*.json")) for block in json.loads(file.read_text())]

    def prune(configs, named_args, **kwargs):
        most = HERE / "most.txt"
        try:
            return [c for c in configs if c.kwargs["BLOCK"] <= int(most.read_text())]
        except FileNotFoundError:
            return configs

    @triton.autotune([triton.Config({"BLOCK": b}) for b in BLOCKS], key=["n"],
                     prune_configs_by={"early_config_prune": prune})
    """
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "a.json").write_text("[64]")
    kernel = broken(tmp_path, textwrap.dedent(reads) + KERNEL.lstrip(), "reads.py")

    def blocks() -> tuple[list[int], list[int]]:
        """Of the configs described, and of those left by pruning."""
        call = dataclasses.replace(request(kernel), constexprs=())
        with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
            described = service.describe(call.source, SM120)
            assert described.autotune is not None
            left = service.pruned_configs(call)
        return [c["BLOCK"] for c in described.autotune.configs], [c["BLOCK"] for c in left]

    assert blocks() == ([64], [64])
    (folder / "a.json").write_text("[64, 128]")
    assert blocks() == ([64, 128], [64, 128])
    (folder / "b.json").write_text("[256]")
    assert blocks() == ([64, 128, 256], [64, 128, 256])
    (tmp_path / "most.txt").write_text("128")
    assert blocks() == ([64, 128, 256], [64, 128])


@pytest.mark.one_triton
def test_files_beside_the_kernel_named_as_the_standard_librarys_take_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when the working directory has them nor in a compile that loads numpy late, to read a time."""
    kernel = broken(tmp_path, KERNEL, "kernel.py")
    for name in ("random", "secrets", "queue", "heapq", "fractions", "statistics", "tempfile", "yaml", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    gpu = load_gpu("rtx-pro-6000")
    one = dataclasses.replace(request(kernel), time_on=time_on(gpu))
    # A module is looked for in the working directory, as Python does.
    named = dataclasses.replace(one, source=KernelSource("plain", module="kernel"))
    with CompileService(limits=QUICK, jobs=1) as service:
        for outcome in service.compile_all([one, named]):
            assert outcome.ok, outcome.message
            assert outcome.times


@pytest.mark.one_triton
def test_a_file_that_changes_while_it_is_read_is_not_remembered(tmp_path: Path) -> None:
    path = broken(tmp_path, "open(__file__, 'a').write('\\n')" + KERNEL)
    for _ in range(2):
        with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
            outcome = service.compile_all([request(path)])[0]
            assert outcome.ok and not outcome.cached


@pytest.mark.one_triton
def test_an_executor_that_outlives_a_run_loads_an_edited_kernel_anew(tmp_path: Path) -> None:
    loaded = "tl.load(x_ptr + at, mask=at < n)"
    sums = KERNEL.replace(loaded, f"tl.sum({loaded}, 0)")  # over the warps, by shared memory
    with ThreadPoolExecutor(1) as executor:
        for body, shared in ((KERNEL, False), (sums, True), (KERNEL, False)):
            path = broken(tmp_path, body)
            with CompileService(limits=QUICK, executor=executor, cache=ResultCache(tmp_path / "cache")) as service:
                resources = service.compile_all([request(path)])[0].resources
                assert resources is not None and (resources.shared_bytes > 0) == shared


@pytest.mark.one_triton
def test_what_another_kernel_had_loaded_counts_for_this_one_too(tmp_path: Path) -> None:
    """A module that two kernel files import reads its environment once in a worker: both depend on it."""
    (tmp_path / "helper.py").write_text("import os\nMODE = os.environ.get('HELPER_MODE', 'a')\n")
    files = [broken(tmp_path, "import helper\n" + KERNEL, name) for name in ("first.py", "second.py")]

    def compiled() -> int:
        with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
            assert all(outcome.ok for outcome in service.compile_all([request(file) for file in files]))
            return service.compiled

    assert [compiled(), compiled()] == [2, 0]
    os.environ["HELPER_MODE"] = "b"
    try:
        assert [compiled(), compiled()] == [2, 0]
    finally:
        del os.environ["HELPER_MODE"]


@pytest.mark.one_triton
def test_what_a_kernel_asked_its_gpu_holds_for_such_gpus_alone(tmp_path: Path) -> None:
    """An RTX 5090 (170 SMs) and an RTX PRO 6000 (188) run the same binaries, unless the kernel's file counts SMs."""
    asks = """
    import torch
    from triton.runtime import driver
    SMS = torch.cuda.get_device_properties(0).multi_processor_count
    assert driver.active.utils.get_device_properties(0)["multiprocessor_count"] == SMS

    def prune(configs, named_args, **kwargs):
        return configs if os.environ.get("KEEP_ALL", "1") == "1" else configs[:1]

    @triton.autotune([triton.Config({"PROGRAMS": SMS * i}) for i in (1, 2)], key=["n"],
                     prune_configs_by={"early_config_prune": prune})
    @triton.jit
    def counts(x_ptr, n, PROGRAMS: tl.constexpr):
        for at in range(tl.program_id(0), n, PROGRAMS):
            tl.store(x_ptr + at, PROGRAMS)
    """
    asking = broken(tmp_path, textwrap.dedent(asks), "asking.py")
    # In a folder of its own: files of one folder may import each other, so that what one asked counts for all.
    (tmp_path / "silent").mkdir()
    silent = broken(tmp_path / "silent", KERNEL, "silent.py")
    targets = [target_of(load_gpu(name)) for name in ("5090", "rtx-pro-6000")]
    arguments = (ArgumentValue("x_ptr", "*i32"), ArgumentValue("n", "i32", 4096))

    def seen() -> tuple[list[int], int, int]:
        """The programs that the configs ask for on each GPU, configs that are tried there, and compiles."""
        programs, tried = [], 0
        with CompileService(limits=QUICK, jobs=1, cache=ResultCache(tmp_path / "cache")) as service:
            for target in targets:
                source = KernelSource("counts", str(asking))
                described = service.describe(source, target)
                assert described.autotune is not None
                programs += [config["PROGRAMS"] for config in described.autotune.configs]
                call = CompileRequest(source, target, arguments, (), ())
                tried += len(service.pruned_configs(call))
                of_both = dataclasses.replace(request(silent), target=target)
                of_each = dataclasses.replace(call, constexprs=(("PROGRAMS", 128),))
                assert all(outcome.ok for one in (of_both, of_each) for outcome in service.compile_all([one]))
            return programs, tried, service.compiled

    # The silent kernel is compiled for one GPU and known for the other.
    expected = [170, 340, 188, 376]
    assert seen() == (expected, 4, 3)
    assert seen() == (expected, 4, 0)
    os.environ["KEEP_ALL"] = "0"
    try:
        # What pruning read counts for later compiles of the same process too: the kernel may have kept it.
        assert seen() == (expected, 2, 2)
    finally:
        del os.environ["KEEP_ALL"]


def test_the_target_decides_the_binary(kernel_file: Path) -> None:
    """JITFunction keeps its backend per device index: two targets in one worker must not share one."""
    h200 = dataclasses.replace(request(kernel_file), target=target_of(load_gpu("h200")))
    with CompileService(limits=QUICK, jobs=1) as service:
        first, second, third = service.compile_all([request(kernel_file), h200, request(kernel_file, block=128)])
    assert first.ok and second.ok and third.ok
    assert service.compiled == 3
