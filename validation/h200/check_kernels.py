"""Do the kernels compute the right thing on a real GPU, and what did the driver give each launch?

    python3 validation/h200/check_kernels.py --out DIR

Runs every config of the shipped kernels (sparse MLA decode, MoE grouped GEMM) and of the GQA decode kernel of
`validation/kernels`, in several integer specializations, on random inputs against a float64 reference on the same GPU.
Writes `DIR/kernels.jsonl`: a row for the environment, one a launch and a summary at the end. A launch's row has its
config, its integer arguments (what Triton specialized on), `relative_error` (norm of the difference / norm of the
reference) of the whole output, `worst_request_error` of a single request or token, and the resources that the loaded
binary reported: dynamic shared bytes, registers and spills per thread (`n_spills` is local bytes / 4), the most threads
it can run with, and the driver's own CTAs per SM. Those rows are what a compile without a GPU has to reproduce.

Every section is a process of its own and says beforehand how many launches it will make; a missing one, an error over
the gate or a launch that failed for another reason than too little shared memory makes the exit code 1.
Takes about three minutes on one H200. Needs torch and Triton.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
GATE = 6.7e-3
DEVICE = "cuda"
SECTION_TIMEOUT_S = 400

Row = dict[str, Any]
Case = tuple[str, Callable[[], Row]]


def load(path: str) -> ModuleType:
    file = REPOSITORY / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def driver_ctas_per_sm(compiled: Any) -> int | None:
    """cuOccupancyMaxActiveBlocksPerMultiprocessor for a loaded kernel; None where the driver library is not found."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    found = ctypes.c_int()
    code = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(found),
        ctypes.c_void_p(compiled.function),
        ctypes.c_int(compiled.metadata.num_warps * 32),
        ctypes.c_size_t(compiled.metadata.shared),
    )
    if code:
        raise RuntimeError(f"cuOccupancyMaxActiveBlocksPerMultiprocessor: error {code}")
    return found.value


def resources(compiled: Any) -> Row:
    return {
        "shared_bytes": compiled.metadata.shared,
        "n_regs": compiled.n_regs,
        "n_spills": compiled.n_spills,
        "n_max_threads": compiled.n_max_threads,
        "num_warps": compiled.metadata.num_warps,
        "num_stages": compiled.metadata.num_stages,
        "ctas_per_sm": driver_ctas_per_sm(compiled),
    }


def accuracy(out: Any, expected: Any) -> Row:
    """Errors over the whole output and of the worst request (or token), whose own norm may be small; both are gated."""
    import torch

    difference, size = (out.double() - expected).flatten(1).norm(dim=1), expected.flatten(1).norm(dim=1)
    error = float(difference.norm() / size.norm())
    worst = float((difference / size.clamp(min=1e-30)).max())  # a request with no token: 0 / 1e-30, or not 0 and huge
    finite = bool(torch.isfinite(out).all())
    status = "ok" if finite and max(error, worst) <= GATE else "inaccurate"
    return {"relative_error": error, "worst_request_error": worst, "finite": finite, "status": status}


def config_values(config: Any) -> Row:
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}


def label(config: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in config_values(config).items())


# Sparse MLA decode


def sparse_mla() -> Iterator[Case]:
    import torch
    import triton

    kernel = load("kernels/sparse_mla_decode.py")
    scale = 0.0417

    def inputs(batch: int, heads: int, topk: int, ragged: bool, seed: int) -> tuple[Any, ...]:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        tokens = 4000
        random = {"generator": generator, "device": DEVICE}
        magnitude = 16.0 ** (2 * torch.rand(tokens, 8, **random) - 1)
        cache = kernel.pack_cache(torch.randn(tokens, 512, **random) * magnitude.repeat_interleave(64, dim=1))
        query = torch.randn(batch, heads, 512, **random).bfloat16()
        indices = torch.randint(0, tokens, (batch, topk), dtype=torch.int32, **random)
        lengths = torch.full((batch,), topk, dtype=torch.int32, device=DEVICE)
        if ragged:
            lengths = torch.randint(0, topk + 50, (batch,), dtype=torch.int32, **random)
            lengths[0], lengths[1] = 0, 1
            indices[torch.rand(batch, topk, **random) < 0.2] = -1
            indices[2] = -1
        return query, cache, indices, lengths

    # (name, batch, heads, topk, ragged): heads and topk of 16's multiples and not, so that both hints are compiled.
    shapes = [("full", 5, 16, 512, False), ("ragged, 20 heads, topk 500", 37, 20, 500, True)]
    prepared = {}
    for name, *shape in shapes:
        given = inputs(*shape, seed=11)
        prepared[name] = (given, kernel.reference(*given, scale))

    for block_h in (16, 32):
        for config in kernel.SPLIT_CONFIGS:
            block_t = config.kwargs["BLOCK_T"]
            for name, (given, expected) in prepared.items():
                topk = given[2].shape[1]
                tiles = triton.cdiv(topk, block_t)
                for nsplit in (1, 3, tiles) if name == "full" else (3, tiles + 5):

                    def run(
                        block_h: int = block_h,
                        config: Any = config,
                        given: Any = given,
                        expected: Any = expected,
                        nsplit: int = nsplit,
                        tiles: int = tiles,
                    ) -> Row:
                        ran = kernel.launch(*given, scale, block_h=block_h, nsplit=nsplit, config=config)
                        query, cache, indices, _ = given
                        arguments = {
                            "heads": query.shape[1],
                            "topk": indices.shape[1],
                            "topk_rounded": triton.next_power_of_2(indices.shape[1]),
                            "nsplit": nsplit,
                            "tiles_per_split": triton.cdiv(tiles, nsplit),
                            "stride_query_batch": query.stride(0),
                            "stride_query_head": query.stride(1),
                            "stride_indices": indices.stride(0),
                            "stride_page": cache.stride(0) // 8,
                        }
                        return {
                            "config": {"BLOCK_H": block_h, **config_values(config)},
                            "arguments": arguments,
                            **resources(ran.split),
                            "combine": resources(ran.combine),
                            **accuracy(ran.out, expected),
                        }

                    yield f"{name}, BLOCK_H={block_h} {label(config)}, nsplit {nsplit}", run

    def beyond_2_gib() -> Row:
        """Tokens in the last pages of a cache of 2.3 GB: page offsets need 64 bits."""
        query, cache, indices, lengths = inputs(4, 16, 512, False, seed=5)
        large = torch.zeros((61_000, cache.shape[1]), dtype=torch.uint8, device=DEVICE)
        first_page = large.shape[0] - cache.shape[0]
        large[first_page:] = cache
        moved = indices + first_page * kernel.PAGE_TOKENS
        ran = kernel.launch(query, large, moved, lengths, scale, block_h=16, nsplit=4, config=kernel.SPLIT_CONFIGS[0])
        expected = kernel.reference(query, cache, indices, lengths, scale)
        return {"config": config_values(kernel.SPLIT_CONFIGS[0]), **accuracy(ran.out, expected)}

    yield "cache beyond 2 GiB", beyond_2_gib

    def all_empty() -> Row:
        query, cache, indices, lengths = inputs(3, 16, 512, False, seed=5)
        out = kernel.launch(
            query, cache, indices, lengths * 0, scale, block_h=16, nsplit=4, config=kernel.SPLIT_CONFIGS[0]
        ).out
        zero = bool((out == 0).all())
        return {"config": config_values(kernel.SPLIT_CONFIGS[0]), "status": "ok" if zero else "inaccurate"}

    yield "every length 0 gives zeros", all_empty


# MoE grouped GEMM


def moe() -> Iterator[Case]:
    import torch

    kernel = load("kernels/moe_grouped_gemm.py")
    element = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}

    def inputs(kind: str, tokens: int, top_k: int, experts: int, n: int, k: int) -> tuple[Any, Row]:
        random = {"generator": torch.Generator(DEVICE).manual_seed(2), "device": DEVICE}
        a_kind, b_kind = {"bf16": ("bf16", "bf16"), "fp8": ("fp8", "fp8"), "w8a16": ("bf16", "fp8")}[kind]
        a = torch.randn(tokens, k, **random).to(element[a_kind])
        b = torch.randn(experts, n, k, **random).to(element[b_kind])
        topk_ids = torch.randint(0, experts, (tokens, top_k), **random)
        options: Row = {"topk_weights": torch.rand(tokens, top_k, **random)}
        if kind != "bf16":
            options["a_scale"] = torch.rand(tokens, **random) + 0.5
            options["b_scale"] = torch.rand(experts, n, **random) + 0.5
        return (a, b, topk_ids), options

    def case(kind: str, block_m: int, config: Any, given: Any, options: Row, expected: Any) -> Callable[[], Row]:
        def run() -> Row:
            ran = kernel.launch(*given, block_m=block_m, config=config, **options)
            a, b, topk_ids = given
            arguments = {
                "pairs": topk_ids.numel(),
                "N": b.shape[1],
                "K": b.shape[2],
                "stride_a": a.stride(0),
                "stride_b_expert": b.stride(0),
                "stride_b": b.stride(1),
                "stride_c": b.shape[1],
                "TOP_K": topk_ids.shape[1],
                "HAS_SCALES": "a_scale" in options,
                "WEIGHTED": True,
                "EVEN_K": b.shape[2] % config.kwargs["BLOCK_K"] == 0,
            }
            return {
                "dtype": kind,
                "config": {"BLOCK_M": block_m, **config_values(config)},
                "arguments": arguments,
                **resources(ran.kernel),
                **accuracy(ran.out, expected),
            }

        return run

    # Even sizes for every config, then sizes that divide by 16 but by no tile, then an odd K for a few.
    for kind in ("bf16", "fp8", "w8a16"):
        given, options = inputs(kind, 80, 8, 32, 1024, 1024)
        expected = kernel.reference(*given, **options)
        for block_m in (16, 64, 128):
            for config in kernel.CONFIGS:
                yield (
                    f"{kind}, BLOCK_M={block_m} {label(config)}",
                    case(kind, block_m, config, given, options, expected),
                )
        given, options = inputs(kind, 33, 6, 7, 1040, 720)
        expected = kernel.reference(*given, **options)
        for config in kernel.CONFIGS[::2]:
            yield f"{kind}, uneven, BLOCK_M=32 {label(config)}", case(kind, 32, config, given, options, expected)
        given, options = inputs(kind, 5, 2, 3, 77, 501)
        expected = kernel.reference(*given, **options)
        yield f"{kind}, odd K, BLOCK_M 16", case(kind, 16, kernel.CONFIGS[0], given, options, expected)

    def beyond_2_gib() -> Row:
        """The last of 300 experts' weights start beyond 2^31 elements."""
        given, options = inputs("fp8", 16, 2, 2, 4096, 2048)
        a, b, topk_ids = given
        large = torch.zeros((300, *b.shape[1:]), dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn)
        large.view(torch.uint8)[298:] = b.view(torch.uint8)
        scale = torch.ones((300, b.shape[1]), device=DEVICE)
        scale[298:] = options["b_scale"]
        out = kernel.launch(
            a, large, topk_ids + 298, block_m=16, config=kernel.CONFIGS[0], **{**options, "b_scale": scale}
        ).out
        return {"config": config_values(kernel.CONFIGS[0]), **accuracy(out, kernel.reference(*given, **options))}

    yield "weights beyond 2^31 elements", beyond_2_gib


# GQA decode


def gqa() -> Iterator[Case]:
    import torch
    import triton

    kernel = load("validation/kernels/gqa_decode.py")
    random = {"generator": torch.Generator(DEVICE).manual_seed(4), "device": DEVICE}
    batch, kv_heads, group, dim, page, longest = 6, 4, 8, 128, 64, 2048
    pages = batch * longest // page
    query = torch.randn(batch, kv_heads * group, dim, **random).bfloat16()
    key = torch.randn(pages, page, kv_heads, dim, **random).bfloat16()
    value = torch.randn(pages, page, kv_heads, dim, **random).bfloat16()
    table = torch.randperm(pages, **random).reshape(batch, -1).int()
    length = torch.tensor([longest, longest - 7, 65, 1, 0, 1000], dtype=torch.int32, device=DEVICE)
    given = (query, key, value, table, length, dim**-0.5)
    expected = kernel.reference(*given)
    for config in kernel.CONFIGS:
        tiles = triton.cdiv(longest, config.kwargs["BLOCK_N"])
        for nsplit in (1, 3, tiles):

            def run(config: Any = config, nsplit: int = nsplit, tiles: int = tiles) -> Row:
                ran = kernel.launch(*given, nsplit=nsplit, max_length=longest, config=config)
                arguments = {
                    "group": group,
                    "max_length": longest,
                    "nsplit": nsplit,
                    "tiles_per_split": triton.cdiv(tiles, nsplit),
                    "stride_query": query.stride(0),
                    "stride_page": key.stride(0),
                    "stride_token": key.stride(1),
                    "stride_table": table.stride(0),
                    "DIM": dim,
                    "PAGE": page,
                    "BLOCK_G": 16,
                }
                return {
                    "config": config_values(config),
                    "arguments": arguments,
                    **resources(ran.split),
                    "combine": resources(ran.combine),
                    **accuracy(ran.out, expected),
                }

            yield f"{label(config)}, nsplit {nsplit}", run


# The autotuners, as a server would use them: alone on the GPU, because they time.


def autotuned() -> Iterator[Case]:
    import torch

    mla = load("kernels/sparse_mla_decode.py")
    moe_kernel = load("kernels/moe_grouped_gemm.py")
    random = {"generator": torch.Generator(DEVICE).manual_seed(9), "device": DEVICE}

    def tuned_mla() -> Row:
        query = torch.randn(80, 16, 512, **random).bfloat16()
        cache = mla.pack_cache(torch.randn(40_000, 512, **random))
        indices = torch.randint(0, 40_000, (80, 512), dtype=torch.int32, **random)
        lengths = torch.full((80,), 512, dtype=torch.int32, device=DEVICE)
        out = mla.sparse_mla_decode(query, cache, indices, lengths, 0.0417)
        best = config_values(mla.split_kernel.best_config)
        return {"config": best, **accuracy(out, mla.reference(query, cache, indices, lengths, 0.0417))}

    def tuned_moe() -> Row:
        a = torch.randn(80, 1024, **random).to(torch.float8_e4m3fn)
        b = torch.randn(32, 1024, 1024, **random).to(torch.float8_e4m3fn)
        topk_ids = torch.randint(0, 32, (80, 8), **random)
        scales = {"a_scale": torch.rand(80, **random), "b_scale": torch.rand(32, 1024, **random)}
        out = moe_kernel.moe_grouped_gemm(a, b, topk_ids, **scales)
        best = config_values(moe_kernel.moe_grouped_gemm_kernel.best_config)
        return {"config": best, **accuracy(out, moe_kernel.reference(a, b, topk_ids, **scales))}

    yield "sparse MLA at batch 80, tuned", tuned_mla
    yield "MoE at batch 80, tuned", tuned_moe


SECTIONS: dict[str, Callable[[], Iterator[Case]]] = {
    "sparse_mla_decode": sparse_mla,
    "moe_grouped_gemm": moe,
    "gqa_decode": gqa,
    "autotuned": autotuned,
}
TIMED = ("autotuned",)


def run_section(name: str) -> None:
    """Print the plan and one row a case. A case that fails is a row with its reason."""
    from triton.runtime.errors import OutOfResources

    cases = list(SECTIONS[name]())
    print(json.dumps({"kind": "plan", "section": name, "cases": len(cases)}), flush=True)
    for case, run in cases:
        row: Row = {"kind": "launch", "section": name, "case": case}
        try:
            row.update(run())
        except OutOfResources as error:
            row.update(status="over_cap", resource=error.name, required=error.required, limit=error.limit)
        except Exception as error:  # noqa: BLE001 - one case's failure must not hide the others; it is kept and counted
            row.update(status="failed", error=repr(error), traceback=traceback.format_exc()[-2000:])
        print(json.dumps(row), flush=True)


def environment() -> Row:
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "kind": "environment",
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "driver": smi.stdout.strip() or None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gate": GATE,
    }


def collect(names: list[str], out: Path, cache: str) -> tuple[list[Row], list[str]]:
    """Run sections side by side; (their rows, what went wrong with a section as a whole)."""
    started = {}
    for name in names:
        stdout, stderr = out / f"{name}.part", out / f"{name}.log"
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--section", name],
            stdout=stdout.open("w"),
            stderr=stderr.open("w"),
            env={**os.environ, "TRITON_CACHE_DIR": f"{cache}/{name}"},
        )
        started[name] = (process, stdout, stderr)
    rows, problems = [], []
    deadline = time.monotonic() + SECTION_TIMEOUT_S
    for name, (process, stdout, stderr) in started.items():
        try:
            code: int | str = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = f"killed after {SECTION_TIMEOUT_S} s"
        lines = [json.loads(line) for line in stdout.read_text().splitlines() if line.endswith("}")]
        plans = [line["cases"] for line in lines if line["kind"] == "plan"]
        launches = [line for line in lines if line["kind"] == "launch"]
        rows += launches
        if code != 0 or not plans or len(launches) != plans[0]:
            problems.append(
                f"{name}: {len(launches)} of {plans[0] if plans else 'an unknown number of'} launches, exit {code}\n"
                + stderr.read_text()[-3000:]
            )
        elif stderr.stat().st_size == 0:
            stderr.unlink()
        stdout.unlink()
    return rows, problems


def summarize(rows: list[Row], problems: list[str], seconds: float) -> Row:
    counts = collections.Counter((row["section"], row["status"]) for row in rows)
    sections = {
        name: {status: n for (section, status), n in sorted(counts.items()) if section == name} for name in SECTIONS
    }
    worst = {
        name: max((r["relative_error"] for r in rows if r["section"] == name and "relative_error" in r), default=None)
        for name in SECTIONS
    }
    bad = sum(n for (_, status), n in counts.items() if status not in ("ok", "over_cap"))
    return {
        "kind": "summary",
        "passed": not bad and not problems,
        "sections": sections,
        "worst_relative_error": worst,
        "problems": problems,
        "seconds": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for kernels.jsonl; made where it is not there")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        run_section(options.section)
        return 0
    if options.out is None:
        parser.error("--out DIR is needed")

    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [environment()]
    print(json.dumps(rows[0]), flush=True)
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as cache:
        for group in ([name for name in SECTIONS if name not in TIMED], list(TIMED)):
            found, wrong = collect(group, options.out, cache)
            rows += found
            problems += wrong
            summary = summarize(rows[1:], problems, time.monotonic() - began)
            # Written after each group, so that what was measured is kept whatever happens next.
            text = "".join(json.dumps(row) + "\n" for row in [*rows, summary])
            (options.out / "kernels.jsonl").write_text(text)

    for row in rows[1:]:
        if row["status"] == "over_cap":
            print(f"over cap   {row['section']}: {row['case']}: {row['required']} of {row['limit']} {row['resource']}")
        elif row["status"] != "ok":
            print(f"{row['status']:10} {row['section']}: {row['case']}: {row.get('error', row.get('relative_error'))}")
    for problem in problems:
        print(f"INCOMPLETE {problem}")
    print(json.dumps(summary))
    return 0 if summary["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
