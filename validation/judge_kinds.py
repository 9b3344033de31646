"""How good is the model on every kind of kernel? Its choices and its times, beside an H200's (`h200/kinds`).

    python validation/judge_kinds.py                        # every kind: a compile for each binary, minutes to hours
    python validation/judge_kinds.py --kinds gemm,softmax   # these
    python validation/judge_kinds.py --write                # the tables into validation/kinds.md
    python validation/judge_kinds.py FOLDER                 # times of another run of `h200/measure_kinds.py --split`
    python validation/judge_kinds.py --hw-profiles DIR      # by the profile there, such as one that was measured

Regret is the measured time of what is chosen over the best that was measured at the same shapes, minus 1. Predictions
are those of `occupancy compare`: each point is compiled for the GPU and timed by the model, with no figure from a
measurement. The other ways to choose are the rules that people use, worked out from the same compiled kernels:

- first config: the first of the list, with the knobs' defaults;
- most warps: the most warps at work on an SM, which the grid may leave short of what would fit;
- most occupancy: the most warps that fit an SM, as an occupancy calculator says; also with the fastest of its ties, as
  measured, which nobody knows beforehand;
- roofline: all that is loaded at the memory bandwidth or all products at the tensor peak, whichever takes longer;
- waves: full waves of CTAs, each as long as its bytes or products take at an SM's share of the same two rates;
- autotuning: the best, at the price of timing every config on the device as Triton's `do_bench` does.

Where a way to choose cannot tell points apart, its time is the mean of theirs: what a blind pick costs on average.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import math
import multiprocessing
import os
import platform
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from kind_code import RecordedService

from occupancy_cli.answers.measured_points import MeasuredRow, measured_kernel, point_of
from occupancy_cli.answers.times_file import Times, TimesHeader, read_times
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.intervals import kind_of
from occupancy_cli.model.launch_time import KernelLaunch
from occupancy_cli.model.ranking import Scored, Untimed, time_candidates
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.prepared_kernel import Kernel, prepare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RECORDED = HERE / "h200" / "kinds"
KINDS = HERE / "h200" / "kinds.yaml"
RESULT = HERE / "kinds.md"

Key = tuple[tuple[str, Any], ...]

# Triton's `do_bench`: six calls to learn how long one takes, then so long a warm-up and so long a measurement.
CALLS_BEFORE, WARM_UP_US, MEASURED_US = 6, 25e3, 100e3


@dataclass(frozen=True)
class Judged:
    """A measured point with what each way to choose goes by.

    `role`: "fit", or "held" where no constant of the model may have been chosen by it. `default`: its knobs are at
    their defaults. `place`: where its config stands in the list. `fitting_warps` are the warps that fit an SM,
    `busy_warps` those that the grid puts on the fullest one. `interval_us` is the model's own, where it states one, and
    `class_of_errors` the kind of kernel that it goes by.
    """

    kind: str
    l2: str
    role: str
    case: Key
    knobs: Key
    config: Key
    place: int
    default: bool
    measured_us: float
    throttled: bool
    predicted_us: float | None
    interval_us: tuple[float, float] | None
    why: str
    roofline_us: float | None
    waves_us: float | None
    fitting_warps: int
    busy_warps: int
    class_of_errors: str = ""


# ---- Reading what was measured, and what the model says of it.


def roles(kinds: Mapping[str, Any], kind: str) -> Callable[[Mapping[str, Any]], str]:
    """ "fit" or "held" for a row of a kind, by the shapes that `kinds.yaml` lists."""
    about = kinds[kind]

    def role(row: Mapping[str, Any]) -> str:
        for name in ("fit", "held"):
            if any(all(row.get(n) == v for n, v in shape.items()) for shape in about.get(name, ())):
                return name
        raise SystemExit(f"{kind}: no shape of {KINDS.name} has the row {dict(row)}")

    return role


def judge(times: Times, gpu: GpuProfile, service: CompileService) -> tuple[list[Judged], list[str]]:
    """Every point of a file of times beside what the model and the rules say of it, and what is to be said of it.

    Points whose clock was held down are judged too: it is as a user gets them. Their times are not used to judge the
    model's absolute ones (`throttled`).
    """
    held_down = {m.line for m in times.rows if m.figures.throttled}
    whole = replace(times, rows=tuple(replace(m, figures=replace(m.figures, throttled=())) for m in times.rows))
    spec = ROOT / times.header.kernel
    kind = spec.stem
    given = read_kernel_input(str(spec))
    role = roles(yaml.safe_load(KINDS.read_text(encoding="utf-8")), kind)
    notes: list[str] = []
    try:
        measured = measured_kernel(whole, given, gpu, service, same_triton=False)
        kernel, rows, notes = measured.kernel, measured.rows, list(measured.notes)
    except InputError as bad:  # the model has no answer for this kernel
        kernel = prepare(given, gpu, service.describe, {}, {})
        rows = tuple(MeasuredRow(m, point_of(kernel, gpu, m.row), None, bad.problem) for m in whole.usable()[0])
    timed = predicted(gpu, rows, times.header.cold)
    found = [
        _judged(kind, times.header, kernel, each, one, gpu, role(each.row), each.measurement.line in held_down)
        for each, one in zip(rows, timed, strict=True)
    ]
    if held_down:
        notes.append(f"{len(held_down)} of {len(found)} points with the clock held down: of these, choices count alone")
    return found, notes


def _judged(
    kind: str,
    header: TimesHeader,
    kernel: Kernel,
    each: MeasuredRow,
    timed: Scored | Untimed | None,
    gpu: GpuProfile,
    role: str,
    throttled: bool,
) -> Judged:
    spec, row = kernel.given.spec, each.row
    scored = timed if isinstance(timed, Scored) else None
    launches = () if each.candidate is None else each.candidate.launches
    warps = int(each.point.config.get("num_warps", 4))
    fitting = int(row.get("ctas_per_sm") or 0)
    working = math.ceil(math.prod(row["grid"]) / (gpu.sm_count or 1))
    configs = [{n: v for n, v in c.items() if n not in spec.knobs} for c in kernel.configs]
    config = {n: v for n, v in each.point.config.items() if n not in spec.knobs}
    return Judged(
        kind=kind,
        l2="cold" if header.cold else "warm",
        role=role,
        case=_key(row, spec.shapes),
        knobs=_key(row, spec.knobs),
        config=tuple(config.items()),
        place=configs.index(config) if config in configs else len(configs),
        default=all(row.get(n) == knob.default for n, knob in spec.knobs.items()),
        measured_us=float(row["us_total"]),
        throttled=throttled,
        predicted_us=None if scored is None else scored.time_us,
        interval_us=None if scored is None else getattr(scored, "interval_us", None),
        why=timed.why if isinstance(timed, Untimed) else each.problem,
        roofline_us=total(roofline_us(gpu, launch) for launch in launches),
        waves_us=total(waves_us(gpu, launch) for launch in launches),
        fitting_warps=warps * fitting,
        busy_warps=warps * min(fitting, working),
        class_of_errors=kind_of(launches[0].work) if launches else "",
    )


def predicted(gpu: GpuProfile, rows: Sequence[MeasuredRow], cold: bool) -> list[Scored | Untimed | None]:
    """What `occupancy compare` and `recommend` go by: the time of each point by the model, or why it has none; None for
    what cannot launch."""
    timed = iter(time_candidates(gpu, [r.candidate for r in rows if r.candidate is not None], None, cold))
    return [None if row.candidate is None else next(timed) for row in rows]


def _key(row: Mapping[str, Any], names: Iterable[str]) -> Key:
    return tuple((n, row[n]) for n in names if n in row)


def total(parts: Iterable[float | None]) -> float | None:
    """The sum; None for no part, or one that is not known."""
    known = list(parts)
    return None if not known or None in known else math.fsum(p for p in known if p is not None)


# ---- The rules that are not the model: bytes and products alone.


def needs_us(gpu: GpuProfile, launch: KernelLaunch, iterations: float, ctas: float) -> float | None:
    """How long bytes, or products, of so many iterations and CTAs take at the whole GPU's rates; None: not known."""
    work = launch.work
    around = (work.prologue_bytes or 0.0) + (work.epilogue_bytes or 0.0)
    if work.bytes_per_iteration is None and iterations:
        return None
    moved = iterations * (work.bytes_per_iteration or 0.0) + ctas * around
    if not gpu.memory_bandwidth_gbps:
        return None
    longest = moved / (gpu.memory_bandwidth_gbps * 1e3)
    for dtype, flops in work.tensor_flops_per_iteration or ():
        peak = gpu.fp8_dense_tflops if dtype in ("fp8", "int8") else gpu.fp16_dense_tflops
        if peak:
            longest = max(longest, iterations * flops / (peak * 1e6))
    return longest


def roofline_us(gpu: GpuProfile, launch: KernelLaunch) -> float | None:
    """A launch by what it loads and multiplies in all."""
    return needs_us(gpu, launch, launch.shape.total_iterations, launch.shape.programs)


def waves_us(gpu: GpuProfile, launch: KernelLaunch) -> float | None:
    """A launch by its waves: as often as its slots are filled, the time of so many CTAs on every SM."""
    slots = (gpu.sm_count or 1) * launch.occupancy.ctas_per_sm
    each = launch.shape.total_iterations / launch.shape.programs
    wave = needs_us(gpu, launch, each * slots, slots)
    return None if wave is None else math.ceil(launch.shape.programs / slots) * wave


# ---- Ways to choose: the less the better; None for a point that is not chosen.

Rule = Callable[[Judged], Any]

MODEL = "model"
RULES: dict[str, Rule] = {
    MODEL: lambda p: p.predicted_us,
    "first config": lambda p: (not p.default, p.place),
    "most warps": lambda p: -p.busy_warps,
    "most occupancy": lambda p: -p.fitting_warps,
    "the same, best of ties": lambda p: (-p.fitting_warps, p.measured_us),
    "roofline": lambda p: p.roofline_us,
    "waves": lambda p: p.waves_us,
}


def choices(points: Sequence[Judged], rule: Rule) -> list[Judged]:
    """What a rule chooses: one point, or those that it cannot tell apart; none where it knows nothing."""
    known = [(value, p) for p in points if (value := rule(p)) is not None]
    least = min((value for value, _ in known), default=None)
    return [p for value, p in known if value == least]


def regret_percent(points: Sequence[Judged], rule: Rule) -> float | None:
    """Of the points of one case: by how much what a rule chooses is slower than the best; None: it chooses none."""
    chosen = choices(points, rule)
    if not chosen:
        return None
    best = min(p.measured_us for p in points)
    return 100 * (statistics.fmean(p.measured_us for p in chosen) / best - 1)


def autotuning_seconds(points: Sequence[Judged]) -> float:
    """What timing every point once costs on the device, as Triton's `do_bench` does it, compiles not counted."""

    def spent(us: float) -> float:
        calls = CALLS_BEFORE + max(1, int(WARM_UP_US / us)) + max(1, int(MEASURED_US / us))
        return calls * us / 1e6

    return sum(spent(p.measured_us) for p in points)


def grouped(points: Iterable[Judged], key: Callable[[Judged], Any]) -> dict[Any, list[Judged]]:
    groups: dict[Any, list[Judged]] = defaultdict(list)
    for each in points:
        groups[key(each)].append(each)
    return dict(groups)


def regrets(points: Iterable[Judged], rule: Rule, key: Callable[[Judged], Any]) -> list[float]:
    """The regret of a rule in every group of points in which there is something to choose, and it can."""
    groups = (g for g in grouped(points, key).values() if len(g) > 1)
    return [found for g in groups if (found := regret_percent(g, rule)) is not None]


# ---- Tables.


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def mean_worst(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.1f} / {max(values):.0f}" if values else "-"


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between neighbours."""
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def in_case(p: Judged) -> Key:
    return p.case


def regret_table(points: Sequence[Judged]) -> str:
    """Mean and worst regret of every way to choose, a row a kind; the model's is bold where a rule has a lower mean."""
    rows = []
    of_kinds: dict[str, list[list[float]]] = defaultdict(list)
    for kind, mine in grouped(points, lambda p: p.kind).items():
        found = {name: regrets(mine, rule, in_case) for name, rule in RULES.items()}
        for name, values in found.items():
            if values:
                of_kinds[name].append(values)
        cells = {name: mean_worst(values) for name, values in found.items()}
        ahead = [n for n, v in found.items() if n != MODEL and v and is_behind(found[MODEL], v)]
        if ahead:
            cells[MODEL] = f"**{cells[MODEL]}**"
        cases = grouped(mine, in_case).values()
        seconds = statistics.fmean(autotuning_seconds(c) for c in cases)
        rows.append([kind, f"{len(cases)} x {len(mine) / len(cases):.0f}", *cells.values(), f"{seconds:.1f}"])
    if len(rows) > 1:
        both = (
            f"{statistics.fmean(statistics.fmean(v) for v in kinds):.1f} / {max(map(max, kinds)):.0f}" if kinds else "-"
            for kinds in (of_kinds[name] for name in RULES)
        )
        cases = grouped(points, lambda p: (p.kind, p.case)).values()
        seconds = sum(autotuning_seconds(c) for c in cases)
        rows.append(["mean of kinds / worst", f"{len(cases)}", *both, f"{seconds:.0f} in all"])
    return table(["kind", "cases x points", *RULES, "autotuning, s a case"], rows)


def is_behind(model: Sequence[float], rule: Sequence[float]) -> bool:
    """Whether a rule's mean regret is below the model's, by more than times repeat (0.05 %)."""
    return not model or statistics.fmean(rule) < statistics.fmean(model) - 0.05


def given_config_table(points: Sequence[Judged]) -> str:
    """Regret of the knobs' values alone, for each config and case, of the kinds that have knobs."""
    rows = []
    for kind, mine in grouped((p for p in points if p.knobs), lambda p: p.kind).items():
        cells = []
        for l2 in ("warm", "cold"):
            for role in ("fit", "held"):
                part = [p for p in mine if (p.l2, p.role) == (l2, role)]
                cells.append(mean_worst(regrets(part, RULES[MODEL], lambda p: (p.case, p.config))))
        if any(cell != "-" for cell in cells):
            rows.append([kind, *cells])
    return table(["kind", "warm, fit", "warm, held", "cold, fit", "cold, held"], rows)


def ratios(points: Iterable[Judged]) -> list[float]:
    """Predicted over measured, of points that have both and whose clock was not held down."""
    return [p.predicted_us / p.measured_us for p in points if p.predicted_us is not None and not p.throttled]


def covered(points: Iterable[Judged]) -> tuple[float, float] | None:
    """Of points with an interval: the share of times within it, in percent, and its median half width over the
    prediction, in percent; None without any."""
    known = [
        (*p.interval_us, p.predicted_us, p.measured_us)
        for p in points
        if p.interval_us is not None and p.predicted_us is not None and not p.throttled
    ]
    if not known:
        return None
    inside = statistics.fmean(low <= us <= high for low, high, _, us in known)
    return 100 * inside, 100 * statistics.median((high - low) / 2 / predicted for low, high, predicted, _ in known)


QUANTILES = (5.0, 4.0, 3.0, 2.0)


def interval_table(points: Sequence[Judged]) -> str:
    """Quantiles of predicted / measured over the points that may be fitted, for `occupancy_cli.model.intervals`, a row
    for each class of kernels and quantile: every kernel counts once, and "left out" is what the quantiles of the others
    hold of a kernel's points, on average over the kernels."""
    rows = []
    fitted = [p for p in points if p.role == "fit"]
    for name, mine in grouped(fitted, lambda p: p.class_of_errors).items():
        found = {kind: ratios(part) for kind, part in grouped(mine, lambda p: p.kind).items()}
        found = {kind: values for kind, values in found.items() if values}
        if len(found) < 2:
            continue
        even = {kind: [percentile(values, (i + 0.5) / 2) for i in range(200)] for kind, values in found.items()}

        def bounds(kinds: Iterable[str], q: float, even: Mapping[str, list[float]] = even) -> tuple[float, float]:
            pooled = [value for kind in kinds for value in even[kind]]
            return percentile(pooled, q), percentile(pooled, 100 - q)

        for q in QUANTILES:
            held = []
            for kind, values in found.items():
                low, high = bounds([k for k in found if k != kind], q)
                held.append(statistics.fmean(low <= value <= high for value in values))
            low, high = bounds(found, q)
            rows.append([name, f"{len(found)}", f"{q:g}", f"{low:.3f}", f"{high:.3f}", f"{statistics.fmean(held):.1%}"])
    return table(["class", "kernels", "quantile, %", "least", "most", "left out"], rows)


def time_table(points: Sequence[Judged]) -> str:
    """p10, p50 and p90 of predicted / measured, and what the stated intervals cover, a row a kind."""

    def cells(part: Sequence[Judged]) -> list[str]:
        found = ratios(part)
        spread = " / ".join(f"{percentile(found, q):.2f}" for q in (10, 50, 90)) if found else "-"
        interval = covered(part)
        return [spread, "-" if interval is None else f"{interval[0]:.0f} (± {interval[1]:.0f})"]

    halves = [(l2, role) for l2 in ("warm", "cold") for role in ("fit", "held")]
    rows = []
    for kind, mine in [*grouped(points, lambda p: p.kind).items(), ("all", list(points))]:
        row = [kind]
        for half in halves:
            row += cells([p for p in mine if (p.l2, p.role) == half])
        rows.append(row)
    head = [text for l2, role in halves for text in (f"{l2}, {role}", "covered %")]
    return table(["kind", *head], rows)


def missed_table(points: Sequence[Judged], most: int = 20) -> str:
    """The model's worst choices: predicted and measured time of what it chose, and of what was best."""
    found: list[tuple[float, list[str]]] = []
    for (kind, l2, role, case), mine in grouped(points, lambda p: (p.kind, p.l2, p.role, p.case)).items():
        value = regret_percent(mine, RULES[MODEL])
        if value is None or len(mine) < 2:
            continue
        chosen = choices(mine, RULES[MODEL])[0]
        best = min(mine, key=lambda p: p.measured_us)
        row = [kind, f"{l2}, {role}", words(case), f"{value:.0f}"]
        found.append((value, [*row, *(words((*p.knobs, *p.config)) + " " + both(p) for p in (chosen, best))]))
    worst = sorted(found, key=lambda item: -item[0])[:most]
    return table(["kind", "half", "case", "regret %", "chosen: predicted, measured us", "best"], [r for _, r in worst])


def both(p: Judged) -> str:
    return f"({'none' if p.predicted_us is None else f'{p.predicted_us:.1f}'}, {p.measured_us:.1f})"


def words(key: Key) -> str:
    return " ".join(f"{n} {v}" for n, v in key if (n, v) != ("num_ctas", 1))


def without_time(points: Iterable[Judged]) -> list[str]:
    """How many points of a kind the model has no time for, and why."""
    reasons = Counter((p.kind, p.why) for p in points if p.predicted_us is None)
    return [f"- {kind}: {count} points without a predicted time: {why}" for (kind, why), count in reasons.items()]


def tables(points: Sequence[Judged]) -> str:
    """Everything that is printed of points."""
    parts = []
    for l2 in ("warm", "cold"):
        for role, meaning in (("fit", "shapes that constants may be fitted to"), ("held", "kept out of fitting")):
            part = [p for p in points if (p.l2, p.role) == (l2, role)]
            if part:
                parts.append(f"## Regret, mean / worst %: {l2} L2, {role} ({meaning})\n\n{regret_table(part)}")
    if len({p.knobs for p in points}) > 1:
        parts.append(f"## Regret of the knobs for a given config, mean / worst %\n\n{given_config_table(points)}")
    parts.append(f"## Predicted / measured time, p10 / p50 / p90\n\n{time_table(points)}")
    parts.append(f"## Bounds of the intervals, from fit points alone\n\n{interval_table(points)}")
    parts.append(f"## The model's worst choices\n\n{missed_table(points)}")
    missing = without_time(points)
    if missing:
        parts.append("## Without a time\n\n" + "\n".join(missing))
    return "\n\n".join(parts) + "\n"


# ---- The command.


def provenance(headers: Sequence[TimesHeader], triton: str) -> str:
    """What was measured where, and where the predictions are from."""
    measured = sorted({(h.device, h.triton, h.torch, h.ptxas, h.date) for h in headers})
    on = "; ".join(f"{d}, Triton {t}, torch {p}, ptxas {x}, {date}" for d, t, p, x, date in measured)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return f"Measured: {on}. Predicted: {platform.machine()} without a GPU, Triton {triton}, {today}."


@dataclass(frozen=True)
class JudgedKind:
    """The points of a kind, the headers of its files, what is to be said, and the Triton that compiled for it."""

    points: tuple[Judged, ...]
    headers: tuple[TimesHeader, ...]
    notes: tuple[str, ...]
    triton: str


def judge_kind(folder: Path, kind: str, anew: bool, profiles: Sequence[Path]) -> JudgedKind | None:
    """A kind by its files of times in a folder; None where it has none. `anew`: by what the installed Triton compiles,
    also where the binaries that were timed are recorded. `profiles`: folders of profiles before the shipped ones."""
    files = [path for l2 in ("warm", "cold") if (path := folder / f"{kind}.{l2}.jsonl.gz").is_file()]
    if not files:
        return None
    points: list[Judged] = []
    headers, notes = [], []
    with CompileService(limits=Limits(120, 8 << 30), jobs=1, cache=ResultCache()) as service:
        code = folder / f"{kind}.code.json.xz"
        answers: Any = RecordedService.read(code, service) if code.is_file() and not anew else service
        for path in files:
            times = read_times(path)
            found, said = judge(times, load_gpu(times.header.gpu, profiles), answers)
            points += found
            headers.append(times.header)
            notes += [f"- {path.name}: {text}" for text in said]
    print(f"{kind}: {len(points)} points", file=sys.stderr, flush=True)
    return JudgedKind(tuple(points), tuple(headers), tuple(notes), str(answers.triton))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=RECORDED, help="of files of times")
    parser.add_argument("--kinds", default="", help="only these, separated by commas")
    parser.add_argument("--compile", action="store_true", help="with the installed Triton, not the recorded binaries")
    parser.add_argument(
        "--hw-profiles", type=Path, action="append", default=[], help="a folder with a profile of the GPU"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kinds at once")
    parser.add_argument("--write", action="store_true", help=f"put the text into {RESULT.relative_to(ROOT)}")
    given = parser.parse_args()
    known = list(yaml.safe_load(KINDS.read_text(encoding="utf-8")))
    kinds = [k for k in given.kinds.split(",") if k] or known
    unknown = [k for k in kinds if k not in known]
    if unknown:
        sys.exit(f"--kinds: {', '.join(unknown)} not in {KINDS.name}; it has {', '.join(known)}")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.jobs, context) as pool:
        asked = [pool.submit(judge_kind, given.folder, kind, given.compile, given.hw_profiles) for kind in kinds]
        found = [judged for each in asked if (judged := each.result()) is not None]
    if not found:
        print(f"{given.folder}: no file of times of these kinds", file=sys.stderr)
        return 2
    notes = [text for judged in found for text in judged.notes]
    tritons = dict.fromkeys(judged.triton for judged in found)
    whence = provenance([h for judged in found for h in judged.headers], " and ".join(tritons))
    head = f"# How the model does on kinds of kernels\n\n{__doc__.strip()}\n\n{whence}\n"
    text = f"{head}\n{tables([p for judged in found for p in judged.points])}"
    if notes:
        text += "\n## What else is to be said\n\n" + "\n".join(notes) + "\n"
    print(text)
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
