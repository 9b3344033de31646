"""What Nsight Compute says of every memory access of small kernels, kept for checking what `occupancy` reads of them.

    OUT=folder python3 validation/h200/ncu_kernels.py --run       # on the GPU machine, two to four minutes
    OUT=folder python3 validation/h200/ncu_kernels.py --run --large    # launches that fill the GPU, for samples by line
    python3 validation/h200/ncu_kernels.py --self-test            # no GPU: compiles every kernel for sm_90
    python3 validation/h200/ncu_kernels.py --list

Three groups of launches: Triton kernels of one kind of access each (`access_kernels.py`), the kernels of
`validation/kernels` and the shipped ones at small shapes, and single accesses with known offsets
(`access_patterns.py`, CUDA C++ through CuPy). All run first without the profiler, several processes beside one another,
so that everything is compiled; then once under

    ncu --clock-control none --section SourceCounters

of which `--page source --print-source sass --csv` gives, for each SASS instruction, how often it ran, its wavefronts of
shared memory and its sectors. OUT gets `summary.txt` and `ncu.tar.gz`: the CSV, and of each launch its cubin, TTGIR and
arguments (numbers, and addresses of tensors). Needs torch, Triton, CuPy, ncu; a step that fails is noted and the rest
runs.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY), str(HERE)]

import access_patterns  # noqa: E402

NCU_LIMIT_S = 330
WARM_PROCESSES = 12

# (kernel, shape): kernels of validation/kernels at shapes small enough for a profiler that runs them again and again.
# The first and the last config of each is run.
KIND_SHAPES: tuple[tuple[str, dict[str, int]], ...] = (
    ("vector_gelu", {"n": 262_141}),
    ("rms_norm", {"rows": 64, "columns": 1000}),
    ("rms_norm_looped", {"rows": 16, "columns": 3001}),
    ("attention_causal", {"batch": 1, "heads": 2, "group": 2, "tokens": 300}),
    ("transposed_copy", {"rows": 256, "columns": 200}),
    ("gemm", {"m": 256, "n": 512, "k": 512}),
    ("gemm_fp8_blocks", {"m": 64, "n": 512, "k": 512}),
    ("gemm_int4", {"m": 64, "n": 512, "k": 512}),
    ("swiglu", {"rows": 64, "columns": 1001}),
    ("cross_entropy", {"rows": 32, "columns": 5000}),
    ("embedding_gather", {}),
    ("row_scan", {}),
    ("softmax", {}),
    ("rotary", {}),
    ("convolution_1d", {}),
    ("linear_attention", {}),
    ("layer_norm_backward", {}),
    ("scatter_add", {}),
    ("paged_decode_fp8", {}),
    ("group_quantize", {}),
    ("histogram", {}),
)
# The same at shapes that fill the GPU, for samples of warp states by line; the first config of each is run.
LARGE_SHAPES: tuple[tuple[str, dict[str, int]], ...] = (
    ("vector_gelu", {"n": 16_777_216}),
    ("rms_norm", {"rows": 8192, "columns": 4096}),
    ("rms_norm_looped", {"rows": 4096, "columns": 16384}),
    ("attention_causal", {"batch": 1, "heads": 16, "group": 8, "tokens": 2048}),
    ("transposed_copy", {"rows": 4096, "columns": 4096}),
    ("gemm", {"m": 1024, "n": 1024, "k": 8192}),
    ("gemm_fp8_blocks", {"m": 128, "n": 7168, "k": 2048}),
    ("gemm_int4", {"m": 64, "n": 4096, "k": 4096}),
    ("gemm_split_k", {"m": 16, "n": 2048, "k": 16384}),
    ("swiglu", {"rows": 4096, "columns": 4096}),
    ("cross_entropy", {"rows": 2048, "vocabulary": 32000}),
    ("embedding_gather", {"tokens": 16384, "words": 32000, "columns": 4096}),
    ("rotary", {"tokens": 8192, "heads": 32}),
    ("convolution_1d", {"batch": 4, "time": 4096, "channels": 4096}),
)
LARGE_SHIPPED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("sparse_mla_decode", {"batch": 80}, {"BLOCK_T": 16, "num_warps": 4, "num_stages": 2}),
    ("sparse_mla_decode", {"batch": 80, "BLOCK_H": 16}, {"BLOCK_T": 32, "num_warps": 8, "num_stages": 2}),
)
SHIPPED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("sparse_mla_decode", {"batch": 2, "topk": 99, "TARGET_CTAS": 8}, {"BLOCK_T": 32, "num_warps": 4, "num_stages": 2}),
    ("sparse_mla_decode", {"batch": 2, "topk": 100, "BLOCK_H": 16}, {"BLOCK_T": 16, "num_warps": 8, "num_stages": 2}),
    (
        "moe_grouped_gemm", {"batch": 16, "topk": 2, "experts": 4, "N": 256, "K": 512},
        {"BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 1, "num_warps": 4, "num_stages": 3},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A launch about to be made: `go` makes it and returns what Triton compiled, `arguments` what it passes."""

    name: str
    kind: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constexprs: Mapping[str, Any]
    kernel: Any

    def go(self) -> Any:
        return self.kernel[self.grid](**self.arguments, **self.constexprs)


def inner_kernel(kernel: Any) -> Any:
    """The JIT function inside Triton's decorators: the case names every value that those would choose."""
    from triton.runtime.jit import JITFunction

    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def preparations(large: bool = False) -> Iterator[tuple[str, Callable[[str], list[Prepared]]]]:
    """Every Triton case by name, with what makes its launches on a device; with `large` those that fill the GPU."""
    from access_kernels import CASES, Case

    if large:
        for name, shape in LARGE_SHAPES:
            yield f"{name}_large", lambda device, n=name, s=shape: of_kind(n, s, "first", device)
        for i, (name, values, config) in enumerate(LARGE_SHIPPED):
            label = f"{name}_large_{i}"
            yield label, lambda device, t=label, n=name, v=values, c=config: of_shipped(t, n, v, c, device)
        return

    def of_case(case: Case) -> Callable[[str], list[Prepared]]:
        return lambda device: [
            Prepared(case.name, case.kind, case.grid, case.make(device), case.values, inner_kernel(case.kernel))
        ]

    for case in CASES:
        yield case.name, of_case(case)
    for name, shape in KIND_SHAPES:
        for which in ("first", "last"):
            yield f"{name}_{which}", lambda device, n=name, s=shape, w=which: of_kind(n, s, w, device)
    for i, (name, values, config) in enumerate(SHIPPED):
        yield f"{name}_{i}", lambda device, i=i, n=name, v=values, c=config: of_shipped(f"{n}_{i}", n, v, c, device)


def of_kind(name: str, shape: Mapping[str, int], which: str, device: str) -> list[Prepared]:
    """The launches of a kernel of validation/kernels with its first or its last config."""
    import measure_kinds

    kind = measure_kinds.read_kinds([name])[0]
    points = kind.points_of("fit", shape or kind.about["tiny"])
    if which == "last" and len(points) == 1:
        return []
    point = points[0 if which == "first" else -1]
    return _prepared(f"{name}_{which}", "kernel", kind, point, device)


def of_shipped(
    name: str, kernel: str, values: Mapping[str, Any], config: Mapping[str, Any], device: str
) -> list[Prepared]:
    """The launches of a shipped kernel with one config."""
    import measure_kinds
    import yaml

    kind = measure_kinds.Kind("vector_gelu", {})
    folder = os.path.relpath(REPOSITORY / "kernels", measure_kinds.KERNELS)
    spec = yaml.safe_load((REPOSITORY / "kernels" / f"{kernel}.yaml").read_text(encoding="utf-8"))
    for about in (spec, *spec.get("followed_by", ())):
        about["kernel"] = f"{folder}/{about['kernel']}"
    spec["inputs"] = f"{folder}/{spec['inputs']}"
    spec["configs"] = [dict(config)]
    for knob, about in spec.get("knobs", {}).items():
        about["values"] = [values.get(knob, about["default"])]
    # What the function `splits` of the spec sets at run time has no place here; a point needs the values alone.
    kind.name, kind.spec = kernel, spec
    point = kind.points_of("fit", {n: v for n, v in values.items() if n not in spec.get("knobs", {})})[0]
    return _prepared(name, "shipped", kind, point, device)


def _prepared(name: str, group: str, kind: Any, point: Any, device: str) -> list[Prepared]:
    import measure_kinds

    tensors = kind.inputs(point.values, device)
    made = []
    for i, launch in enumerate(point.launches):
        numbers = dict(launch.numbers)
        arguments = {n: numbers[n] if n in numbers else tensors.get(n, 0.5) for n, _ in launch.types}
        kernel = inner_kernel(measure_kinds.kernel_object(launch.kernel))
        label = name if i == 0 else f"{name}_{i + 1}"
        # Knobs and derived values that go by the name of a parameter, as the spec reader takes them.
        missing = [p.name for p in kernel.params if p.name not in arguments and p.name in point.values]
        constexprs = {**{n: point.values[n] for n in missing}, **dict(launch.constexprs)}
        made.append(Prepared(label, group, launch.grid, arguments, constexprs, kernel))
    return made


def described(made: Prepared, compiled: Any) -> dict[str, Any]:
    """What a reader needs of a launch beside its cubin: addresses of tensors, numbers, grid."""
    arguments: dict[str, Any] = {}
    for name, value in made.arguments.items():
        if hasattr(value, "data_ptr"):
            arguments[name] = {"type": str(value.dtype), "address": value.data_ptr()}
        else:
            arguments[name] = value
    constexprs = {n: v if isinstance(v, (int, float, str, bool)) else repr(v) for n, v in made.constexprs.items()}
    return {
        "name": made.name,
        "kind": made.kind,
        "kernel": compiled.metadata.name,
        "grid": list(made.grid),
        "num_warps": compiled.metadata.num_warps,
        "shared_bytes": compiled.metadata.shared,
        "arguments": arguments,
        "constexprs": constexprs,
        "ttgir": compiled.asm["ttgir"],
        "cubin": base64.b64encode(compiled.asm["cubin"]).decode(),
    }


def note(line: str, file: Path | None = None) -> None:
    print(line, flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


# On the GPU


def launch(share: str, out: Path, patterns: bool, large: bool) -> int:
    """Make the launches of every n-th case (`share` is i/n), each between the profiler's start and stop."""
    import torch
    import triton

    triton.set_allocator(lambda size, _alignment, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    index, _, of = share.partition("/")
    torch.manual_seed(1)
    runtime = torch.cuda.cudart()
    bad = 0
    for i, (name, prepare) in enumerate(preparations(large)):
        if i % int(of) != int(index):
            continue
        try:
            for made in prepare("cuda"):
                torch.cuda.synchronize()
                runtime.cudaProfilerStart()
                compiled = made.go()
                torch.cuda.synchronize()
                runtime.cudaProfilerStop()
                with (out / "launches.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(described(made, compiled)) + "\n")
        except Exception as failed:  # noqa: BLE001 (one case's fault is noted and the rest runs)
            runtime.cudaProfilerStop()
            bad += 1
            note(f"{name}: {type(failed).__name__}: {(str(failed).strip().splitlines() or [''])[0][:200]}")
    if patterns:
        try:
            launch_patterns(out, runtime)
        except Exception as failed:  # noqa: BLE001 (what ran before counts)
            bad += 1
            note(f"patterns: {type(failed).__name__}: {str(failed)[:300]}")
    return 1 if bad else 0


def launch_patterns(out: Path, runtime: Any) -> None:
    """The single accesses, in the order of `access_patterns.kernels()`."""
    import cupy
    import numpy
    import torch

    module = cupy.RawModule(code=access_patterns.source(), options=("-std=c++17",))
    buffer = torch.zeros(1 << 20, dtype=torch.int8, device="cuda")
    result = torch.zeros(64, dtype=torch.int32, device="cuda")
    for name in access_patterns.kernels():
        offsets = torch.tensor(access_patterns.table(name), dtype=torch.int32, device="cuda").reshape(-1)
        function = module.get_function(name)
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        function((1,), (32,), tuple(numpy.uint64(t.data_ptr()) for t in (offsets, buffer, result)))
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()
        with (out / "launches.jsonl").open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({"name": name, "kind": "pattern", "kernel": name, "address": buffer.data_ptr()}) + "\n"
            )


def run(out: Path, large: bool) -> int:
    """Everything, in at most nine minutes; or the large launches."""
    out.mkdir(parents=True, exist_ok=True)
    summary, started = out / "summary.txt", time.monotonic()
    work = Path(tempfile.mkdtemp())
    environment = {**os.environ, "TRITON_CACHE_DIR": str(work / "triton"), "TRITON_DEFAULT_FP_FUSION": "1"}
    (work / "warm").mkdir()
    me = [sys.executable, str(Path(__file__).resolve()), *(["--large"] if large else []), "--launch"]
    patterns = [] if large else ["--patterns"]

    def say(line: str) -> None:
        note(f"[{time.monotonic() - started:.0f} s] {line}", summary)

    processes = []
    for i in range(WARM_PROCESSES):
        log = (work / f"warm{i}.log").open("w")
        command = [*me, f"{i}/{WARM_PROCESSES}", "--out", str(work / "warm"), *(patterns if i == 0 else [])]
        processes.append((subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=REPOSITORY), i))
    for process, i in processes:
        try:
            code = process.wait(max(1.0, 150 - (time.monotonic() - started)))
        except subprocess.TimeoutExpired:
            process.kill()
            code = -9
        if code:
            tail = (work / f"warm{i}.log").read_text(errors="replace").strip().splitlines()[-4:]
            say(f"warm-up {i}: exit {code}: {' | '.join(tail)}")
    say("warm-up done")
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    say(subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout.strip().splitlines()[-1])
    (work / "ncu").mkdir()
    report = work / "accesses"
    with (work / "ncu.log").open("w") as log:
        process = subprocess.Popen(
            [ncu, "--clock-control", "none", "--section", "SourceCounters", "--profile-from-start", "off",
             "--export", str(report), "--force-overwrite", *me, "0/1", "--out", str(work / "ncu"), *patterns],
            env=environment, stdout=log, stderr=log, cwd=REPOSITORY,
        )  # fmt: skip
        try:
            say(f"ncu: exit {process.wait(NCU_LIMIT_S)}")
        except subprocess.TimeoutExpired:
            process.terminate()
            say(f"ncu: stopped after {NCU_LIMIT_S} s")
            process.wait(30)
    for line in (work / "ncu.log").read_text(errors="replace").splitlines():
        if "PROF" not in line or "rror" in line:
            note(line[:300], summary)
    launches = (work / "ncu" / "launches.jsonl").read_text().splitlines()
    say(f"{len(launches)} launches")
    files = [work / "ncu" / "launches.jsonl", work / "ncu.log"]
    printed = work / "source.csv"
    source_page = [ncu, "--import", f"{report}.ncu-rep", "--page", "source", "--print-source", "sass", "--csv"]
    with printed.open("w") as csv:
        code = subprocess.run(source_page, stdout=csv, stderr=subprocess.STDOUT, timeout=120).returncode
    tables = sum('"# Instructions Executed"' in line or "Instructions Executed" in line for line in printed.open())
    say(f"source page: exit {code}, {tables} tables, {printed.stat().st_size} bytes")
    files.append(printed)
    if tables < len(launches):
        say("one table a launch, by --launch-skip")
        for start in range(0, len(launches), 16):
            pages = []
            for i in range(start, min(start + 16, len(launches))):
                page = work / f"source{i}.csv"
                command = [*source_page, "--launch-skip", str(i), "--launch-count", "1"]
                pages.append((subprocess.Popen(command, stdout=page.open("w"), stderr=subprocess.STDOUT), page))
            for page_process, page in pages:
                page_process.wait(60)
                files.append(page)
    names = subprocess.run(
        [ncu, "--import", f"{report}.ncu-rep", "--page", "raw", "--csv", "--metrics", "launch__grid_size"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    (work / "launched.csv").write_text(names.stdout)
    files.append(work / "launched.csv")
    size = Path(f"{report}.ncu-rep").stat().st_size
    say(f"report: {size} bytes")
    if size < 24 << 20 and not large:
        files.append(Path(f"{report}.ncu-rep"))
    with tarfile.open(out / "ncu.tar.gz", "w:gz") as tar:
        for each in files:
            tar.add(each, each.name)
    say(f"ncu.tar.gz: {(out / 'ncu.tar.gz').stat().st_size} bytes")
    return 0


# Without a GPU


def self_test(only: str, out: Path | None, large: bool) -> int:
    """Compile every kernel for sm_90; with `out`, keep what a run would, but for the profiler's figures."""
    import measure_kinds

    bad = 0
    with tempfile.TemporaryDirectory() as cache:
        measure_kinds.prepare_compiler(cache)
        measure_kinds.install_driver()
        for name, prepare in preparations(large):
            if only and only not in name:
                continue
            try:
                for made in prepare("cpu"):
                    inner_kernel(made.kernel).device_caches.clear()
                    compiled = made.kernel.warmup(**made.arguments, **made.constexprs, grid=made.grid)
                    about = described(made, compiled)
                    print(f"{made.name:32}{compiled.metadata.shared:8} bytes of shared memory", flush=True)
                    if out is not None:
                        out.mkdir(parents=True, exist_ok=True)
                        (out / f"{made.name}.json").write_text(json.dumps(about))
            except Exception as failed:  # noqa: BLE001 (every case is tried, then the exit code says so)
                bad += 1
                print(f"{name:32}{type(failed).__name__}: {str(failed).strip()[:300]}", flush=True)
    print(f"{bad} problems")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--run", action="store_true", help="everything; results under $OUT")
    parser.add_argument("--launch", metavar="I/N", help="make the launches of every N-th case from the I-th on")
    parser.add_argument("--patterns", action="store_true", help="with --launch: the single accesses too")
    parser.add_argument("--large", action="store_true", help="launches that fill the GPU instead")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--only", default="", help="with --self-test: cases whose name contains this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        patterns = () if given.large else access_patterns.kernels()
        print("\n".join([*(name for name, _ in preparations(given.large)), *patterns]))
        return 0
    if given.self_test:
        return self_test(given.only, given.out, given.large)
    if given.launch:
        return launch(given.launch, given.out, given.patterns, given.large)
    if given.run:
        return run(Path(os.environ["OUT"]) if given.out is None else given.out, given.large)
    return parser.error("say --run, --self-test or --list")


if __name__ == "__main__":
    sys.exit(main())
