"""Does the spec that `occupancy init` draws up run as it is written? Asked of kernels of packages nobody here wrote.

    python -m pip download --no-deps -d wheels fla-core==0.6.0 liger-kernel==0.8.5
    python validation/init_specs.py wheels/*.whl --limit 60 -o validation/init_specs

Of each kernel a spec is drawn up from its source, and its first config analyzed up to shared-memory allocation. Three
counts a package: answered, refused (with a reason), unclear (a failure that does not say why).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from third_party import chosen, is_clear, unpacked

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.spec_skeleton import write_skeleton
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.points import points
from occupancy_cli.plan.prepared_kernel import prepare
from occupancy_cli.source.source_knobs import KernelKnobs

OTHER_MAKERS = re.compile(r"ascend|npu|xpu|cambricon|mthreads|metax|kunlunxin|iluvatar|hygon|_hip|amd")
"""Folders of kernels that are for other makers' GPUs, in the packages that have some."""


@dataclass(frozen=True)
class Result:
    """What became of one kernel: `answered`, `refused` or `unclear`, and why."""

    package: str
    kernel: str
    outcome: str
    why: str = ""


def ask(
    service: CompileService, root: Path, package: str, kernel: KernelKnobs, gpu: GpuProfile, folder: Path
) -> Result:
    """Draw up the spec of one kernel and analyze the first of its configs."""
    path = root / kernel.place.file
    name = f"{kernel.place}:{kernel.name}"
    try:
        spec = folder / "k.yaml"
        spec.write_text(write_skeleton(path, kernel.qualname, lambda found: f"{path}:{found}").text)
        prepared = prepare(read_kernel_input(str(spec)), gpu, service.describe, {}, {})
        (analyzed, *_) = compile_points(prepared, gpu, service, points(prepared, gpu, -1)[:1])
    except OccupancyError as bad:
        kind = str(bad.data.get("kind") or "input")
        why = " ".join([bad.problem, *bad.hint.split("\n")]).strip()
        return Result(package, name, "refused" if is_clear(kind, why) else "unclear", why)
    outcome = analyzed.outcomes[0]
    if outcome.resources is not None:
        return Result(package, name, "answered")
    clear = is_clear(outcome.kind or "", outcome.message)
    return Result(package, name, "refused" if clear else "unclear", f"{outcome.kind}: {outcome.message}")


def main() -> int:
    """Run over the wheels given and write OUT.md; the exit code is 1 when a failure was unclear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path, help="wheel files, or folders that hold an unpacked one")
    parser.add_argument("--limit", type=int, default=60, help="kernels of each package, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", default="rtx-pro-6000")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("-o", "--out", type=Path, default=None)
    given = parser.parse_args()
    gpu = load_gpu(given.gpu)
    results: list[Result] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for package, root in unpacked(given.wheels, Path(folder)):
            kernels = [k for k in chosen(root, 0, given.seed)[0] if k.role == "kernel"]
            kernels = [k for k in kernels if not OTHER_MAKERS.search(k.place.file)]
            step = max(1, len(kernels) // given.limit) if given.limit else 1
            with CompileService(limits=Limits(given.timeout, 8 << 30), jobs=1) as service:
                for kernel in kernels[::step]:
                    results.append(ask(service, root, package, kernel, gpu, Path(folder)))
                    if results[-1].outcome != "answered":
                        print(f"{results[-1].outcome} {results[-1].kernel} {results[-1].why}", flush=True)
                triton = service.triton
            print(f"{package}: {dict(Counter(r.outcome for r in results if r.package == package))}", flush=True)
            if given.out is not None:
                given.out.with_suffix(".md").write_text(report(results, triton, given, time.monotonic() - started))
    return 1 if any(r.outcome == "unclear" for r in results) else 0


def report(results: list[Result], triton: str, given: argparse.Namespace, seconds: float) -> str:
    """The record of a run, in Markdown."""
    lines = [
        "# Specs that init draws up, analyzed as they are written",
        "",
        f"Triton {triton}, target {given.gpu}, {seconds / 60:.0f} minutes, {given.limit or 'all'} kernels a package:",
        "",
        f"    python validation/init_specs.py WHEELS --limit {given.limit} --gpu {given.gpu}",
        "",
        "| package | kernels tried | answered | refused | unclear |",
        "|---|---|---|---|---|",
    ]
    for package in (*dict.fromkeys(r.package for r in results), "all"):
        count = Counter(r.outcome for r in results if package in (r.package, "all"))
        share = 100 * count["answered"] / count.total()
        answered = f"{count['answered']} ({share:.0f} %)"
        lines.append(f"| {package} | {count.total()} | {answered} | {count['refused']} | {count['unclear']} |")
    lines += ["", "## Not answered", ""]
    lines += [f"- {r.kernel}: {r.why[:200]}" for r in results if r.outcome != "answered"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
