"""Are the resources compiled on a machine without a GPU those that launches on an H200 reported?

    python validation/h200/compare_offline.py [validation/h200/results/kernels.jsonl]

Reads the rows that `check_kernels.py` recorded on an H200 (Triton 3.6.0), compiles the same kernels with the same
integer arguments for sm90 here, and compares shared bytes, registers, local bytes and CTAs/SM, row by row. Needs the
Triton of the recording; exits 1 on any difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from occupancy_cli import load_gpu, occupancy
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results" / "kernels.jsonl"
KERNELS = {
    "sparse_mla_decode": (ROOT / "kernels" / "sparse_mla_decode.py", "split_kernel"),
    "moe_grouped_gemm": (ROOT / "kernels" / "moe_grouped_gemm.py", "moe_grouped_gemm_kernel"),
    "gqa_decode": (ROOT / "validation" / "kernels" / "gqa_decode.py", "split_kernel"),
}
POINTERS = {
    "sparse_mla_decode": {
        "query_ptr": "*bf16", "kv_fp8_ptr": "*fp8e4nv", "kv_scale_ptr": "*i64", "kv_rope_ptr": "*bf16",
        "indices_ptr": "*i32", "topk_length_ptr": "*i32", "part_max_ptr": "*fp32", "part_sum_ptr": "*fp32",
        "part_acc_ptr": "*fp32", "scale_log2e": "fp32",
    },
    "gqa_decode": {
        "query_ptr": "*bf16", "key_ptr": "*bf16", "value_ptr": "*bf16", "table_ptr": "*i32", "length_ptr": "*i32",
        "part_max_ptr": "*fp32", "part_sum_ptr": "*fp32", "part_acc_ptr": "*fp32", "scale_log2e": "fp32",
    },
    "moe_grouped_gemm": {
        "c_ptr": "*bf16", "a_scale_ptr": "*fp32", "b_scale_ptr": "*fp32", "topk_weight_ptr": "*fp32",
        "sorted_id_ptr": "*i32", "expert_id_ptr": "*i32", "padded_count_ptr": "*i32",
    },
}  # fmt: skip
MOE_TYPES = {"bf16": ("*bf16", "*bf16"), "fp8": ("*fp8e4nv", "*fp8e4nv"), "w8a16": ("*bf16", "*fp8e4nv")}


def request_of(service: CompileService, row: dict[str, Any]) -> CompileRequest:
    """The launch of a recorded row, as a compile for the H200."""
    gpu = load_gpu("h200")
    path, name = KERNELS[row["section"]]
    source = KernelSource(name, str(path))
    description = service.describe(source, target_of(gpu))
    pointers = dict(POINTERS[row["section"]])
    if row["section"] == "moe_grouped_gemm":
        pointers["a_ptr"], pointers["b_ptr"] = MOE_TYPES[row["dtype"]]
    values = row["arguments"] | row["config"]
    arguments = []
    for param in description.params:
        if param.constexpr:
            continue
        heuristic = param.name in description.heuristics
        kind = pointers.get(param.name, "i32")
        value = None if param.name in pointers else values[param.name]
        arguments.append(ArgumentValue(param.name, kind, value, 16, heuristic, param.specializes))
    constexprs = tuple(
        (p, values[p]) for p in description.constexprs if p in values and p not in description.heuristics
    )
    options = tuple(sorted((o, values[o]) for o in LAUNCH_OPTIONS if o in row["config"]))
    return CompileRequest(source, target_of(gpu), tuple(arguments), constexprs, options)


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    recorded = rows[0]["triton"]
    launches = [r for r in rows if r.get("kind") == "launch" and "shared_bytes" in r]
    gpu = load_gpu("h200")
    with CompileService() as service:
        if service.triton != recorded:
            print(f"recorded with Triton {recorded}, this is {service.triton}: not comparable")
            return 2
        outcomes = service.compile_all([request_of(service, row) for row in launches])
        compiled = service.compiled
    different = 0
    for row, outcome in zip(launches, outcomes, strict=True):
        found = outcome.resources
        if found is None:
            print(f"{row['section']} {row['case']}: {outcome.kind}: {outcome.message}")
            different += 1
            continue
        occ = occupancy(
            gpu,
            threads_per_cta=found.threads_per_cta,
            registers_per_thread=found.registers_per_thread,
            shared_bytes=found.shared_bytes,
        )
        here = (found.shared_bytes, found.registers_per_thread, found.spill_bytes, occ.ctas_per_sm)
        there = (row["shared_bytes"], row["n_regs"], 4 * row["n_spills"], row["ctas_per_sm"])
        if here != there:
            print(f"{row['section']} {row['case']}: compiled {here}, launched {there}")
            different += 1
    print(f"{len(launches)} launches on {rows[0]['gpu']}, {compiled} compiles here: {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
