"""Predictions for consumer Blackwell beside what others published of it: a check of order where no GPU can be had.

    python validation/published.py            # about 30 compiles for compute capability 12.0
    python validation/published.py --write    # into validation/published.md

Decode: the shipped sparse MLA kernel, its best config for so many splits. GEMM: the best config of `kernels/gemm.yaml`
beside BF16 products of cuBLAS, which a Triton kernel need not reach.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from judge_kinds import table

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.measured_points import point_of
from occupancy_cli.answers.workload import candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.ranking import Scored, Untimed, time_candidates
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.prepared_kernel import prepare

HERE = Path(__file__).resolve().parent
PUBLISHED, RESULT = HERE / "published.yaml", HERE / "published.md"
DECODE = HERE.parent / "kernels" / "sparse_mla_decode.yaml"
GEMM = HERE / "kernels" / "gemm.yaml"


def least_us(
    spec: Path, gpu: GpuProfile, rows: Sequence[Mapping[str, Any]], service: CompileService
) -> list[str | float]:
    """Of each row, the predicted time of the kernel's fastest config that agrees with it, or why there is none."""
    kernel = prepare(read_kernel_input(str(spec)), gpu, service.describe, {}, {})
    places, points = [], []
    for number, row in enumerate(rows):
        for config in kernel.configs:
            if all(row.get(n, v) == v for n, v in config.items()):
                places.append(number)
                points.append(point_of(kernel, gpu, {**config, **row}))
    found = []
    for place, each in zip(places, compile_points(kernel, gpu, service, points, timed=True), strict=True):
        candidate, _ = candidate_of(kernel, gpu, 1, each)
        if candidate is not None:
            found.append((place, candidate))
    times: dict[int, float] = {}
    timed = time_candidates(gpu, [candidate for _, candidate in found], None, False)
    for (place, _), one in zip(found, timed, strict=True):
        if isinstance(one, Scored):
            times[place] = min(one.time_us, times.get(place, one.time_us))
    why = next((one.why for one in timed if isinstance(one, Untimed)), "nothing launches")
    return [times.get(number, why) for number in range(len(rows))]


def line(gpu: GpuProfile, what: str, published_us: float, predicted: str | float) -> list[str]:
    """A row of the table."""
    if isinstance(predicted, str):
        return [gpu.name, what, f"{published_us:.1f} us", predicted, "-"]
    return [gpu.name, what, f"{published_us:.1f} us", f"{predicted:.1f} us", f"{predicted / published_us:.2f}"]


def decode_rows(published: Mapping[str, Any], service: CompileService) -> list[list[str]]:
    lines = []
    for about in published["decode"]:
        gpu, counts = load_gpu(about["gpu"]), list(about["published_us"])
        # A launch that aims at as many CTAs as there are splits, of one request and one group of heads.
        rows = [{**about["row"], "TARGET_CTAS": splits} for splits in counts]
        for splits, us in zip(counts, least_us(DECODE, gpu, rows, service), strict=True):
            lines.append(line(gpu, f"{about['what']}; {splits}", float(about["published_us"][splits]), us))
    return lines


def gemm_rows(published: Mapping[str, Any], service: CompileService) -> list[list[str]]:
    lines = []
    for about in published["gemm"]:
        gpu, sizes = load_gpu(about["gpu"]), list(about["tflops"])
        found = least_us(GEMM, gpu, [{"m": s, "n": s, "k": s} for s in sizes], service)
        for size, us in zip(sizes, found, strict=True):
            lines.append(line(gpu, f"BF16 {size}^3", 2 * size**3 / about["tflops"][size] / 1e6, us))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the text into {RESULT.name}")
    given = parser.parse_args()
    published = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    with CompileService(limits=Limits(120, 8 << 30), cache=ResultCache()) as service:
        rows = [*decode_rows(published, service), *gemm_rows(published, service)]
        today = datetime.datetime.now(datetime.timezone.utc).date()
        whence = f"Triton {service.triton}, no GPU, {today}. Where each was published: `{PUBLISHED.name}`."
    assert __doc__ is not None
    head = ["GPU", "what", "published", "predicted", "predicted / published"]
    text = (
        f"# Consumer Blackwell, as published and as predicted\n\n{__doc__.strip()}\n\n{whence}\n\n{table(head, rows)}\n"
    )
    print(text)
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
