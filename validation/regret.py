"""How good are recommendations? Regret of the model and of the rules people use, on measured surfaces.

    python validation/regret.py [FOLDER...] [--write]

Regret is the time of what a rule chooses over the best that was measured, minus 1. Two questions: which split for a
given config and batch, and which config and split for a given batch. Prints Markdown; `--write` puts it into
`validation/regret.md`. Every surface of the folders takes part (see `surfaces.py`).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import math
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import numpy as np  # noqa: E402
from surfaces import GIVEN, MEASURED, Key, Surface, read_surface  # noqa: E402

from occupancy_cli.model.calibration import Calibration, MeasuredPoint, fit  # noqa: E402
from occupancy_cli.model.launch_batch import estimates  # noqa: E402
from occupancy_cli.model.split_rules import SPLIT_RULES, Rule  # noqa: E402

Row = Mapping[str, Any]
POINTS_PER_CONFIG = 8


# ---- The rules people use: `occupancy_cli.model.split_rules`.


def _on(rule: Rule) -> Callable[[Sequence[Row], Surface], Row]:
    return lambda rows, surface: rule(rows, surface.gpu.sm_count or 1)


RULES = {name: _on(rule) for name, rule in SPLIT_RULES.items()}


# ---- The model.


def predicted_us(surface: Surface, rows: Sequence[Row], calibration: Calibration | None = None) -> dict[int, float]:
    """The predicted time of each point by its id: its launches one after the other."""
    each = [surface.launches(row) for row in rows]
    follows = [number > 0 for launches in each for number in range(len(launches))]
    flat = [launch for launches in each for launch in launches]
    found = iter(estimates(surface.gpu, flat, follows, calibration.of if calibration else None))
    times = ((row, [next(found).time_us for _ in launches]) for row, launches in zip(rows, each, strict=True))
    return {id(row): sum(math.inf if us is None else us for us in together) for row, together in times}


def calibration_points(surface: Surface, rows: Sequence[Row]) -> list[Row]:
    """At most 8 points of one config, chosen without looking at times: the smallest case, the one whose CTAs come
    nearest the SMs, and the largest, each with the fewest, a middle and the most splits that leave no CTA idle."""
    cases = sorted({surface.case(row) for row in rows}, key=lambda case: case[0][1])
    sms = surface.gpu.sm_count or 1
    by_case: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        by_case[surface.case(row)].append(row)
    near = min(cases, key=lambda case: abs(int(np.prod(by_case[case][0]["grid"])) - sms))
    chosen: list[Row] = []
    for case in dict.fromkeys((cases[0], near, cases[-1])):
        idle = {id(row): _idle(surface, row) for row in by_case[case]}
        busy = [row for row in by_case[case] if idle[id(row)] == min(idle.values())]
        points = sorted(busy, key=lambda row: int(np.prod(row["grid"])))
        chosen += [points[i] for i in dict.fromkeys((0, len(points) // 3, len(points) - 1))]
    return chosen[:POINTS_PER_CONFIG]


def _idle(surface: Surface, row: Row) -> int:
    """CTAs of a point's first launch that have nothing to do."""
    return sum(count for count, iterations in surface.launches(row)[0].shape.runs if not iterations)


def _both(surface: Surface, row: Row) -> list[MeasuredPoint]:
    """A measured point: its first kernel alone, which is timed too, and all of its launches."""
    launches = surface.launches(row)
    both = [MeasuredPoint(launches[:1], float(row["us_split"]))] if len(launches) > 1 and "us_split" in row else []
    return [*both, MeasuredPoint(launches, surface.time_us(row))]


def calibrate(surface: Surface) -> Calibration:
    """A calibration of all kernels of a surface from at most 8 points a config."""
    points = [
        point
        for rows in _grouped(surface.rows, surface.config).values()
        for row in calibration_points(surface, rows)
        for point in _both(surface, row)
    ]
    return fit(surface.gpu, points)


# ---- Regret.


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def regrets(
    surface: Surface, choose: Callable[[Sequence[Row], Surface], Row], key: Callable[[Row], Any]
) -> dict[Any, float]:
    """Regret of `choose` for each group of points that share `key`."""
    found = {}
    for group, rows in _grouped(surface.rows, key).items():
        best = min(surface.time_us(row) for row in rows)
        found[group] = surface.time_us(choose(rows, surface)) / best - 1
    return found


def line(name: str, found: Mapping[Any, float]) -> str:
    """A row of the table."""
    values = 100 * np.array(sorted(found.values()))
    within = 100 * np.mean(values <= 5)
    return f"| {name} | {values.mean():.2f} | {np.percentile(values, 90):.1f} | {values.max():.1f} | {within:.0f} |"


HEAD = ["| rule | mean % | p90 % | worst % | within 5 %, % |", "|---|---|---|---|---|"]


def report(surface: Surface, summary: list[str]) -> list[str]:
    """The surface's part of the document; adds its line to `summary`."""
    by_split = lambda row: (surface.config(row), surface.case(row))  # noqa: E731
    text = [f"## {surface.name}", ""]
    text.append(
        f"{surface.gpu.name}, {len(surface.rows)} points, {len(_grouped(surface.rows, surface.config))} configs, "
        f"{len(_grouped(surface.rows, surface.case))} cases.{_clocks(surface)}"
    )
    splits = surface.about["choice"] == ["nsplit"]
    started = time.perf_counter()
    predictions = predicted_us(surface, surface.rows) if surface.code else {}
    seconds = time.perf_counter() - started
    calibrated: dict[int, float] = {}
    calibration = None
    if surface.code:
        calibration = calibrate(surface)
        calibrated = predicted_us(surface, surface.rows, calibration)

    def by(table: Mapping[int, float]) -> Callable[[Sequence[Row], Surface], Row]:
        return lambda rows, _s: min(rows, key=lambda row: table[id(row)])

    models = {"**model, nothing fitted**": predictions} if surface.code else {}
    if calibration is not None:
        models[f"**model, calibrated with {POINTS_PER_CONFIG} points a config**"] = calibrated
    if surface.about["choice"]:
        text += ["", "Choosing the split, for each config and case:", "", *HEAD]
        if splits:
            text += [line(name, regrets(surface, rule, by_split)) for name, rule in RULES.items()]
        text += [line(name, regrets(surface, by(table), by_split)) for name, table in models.items()]
    text += ["", "Choosing config and split together, for each case:", "", *HEAD]
    if splits:
        text += [line(f"{name}, first config", _first_config(surface, rule)) for name, rule in list(RULES.items())[:2]]
        warps = _most_warps(surface)
        text.append(line("most warps/SM, best split", regrets(surface, warps, surface.case)))
    text += [line(name, regrets(surface, by(table), surface.case)) for name, table in models.items()]
    if not surface.code:
        return text
    summary.append(_summary(surface, (predictions, calibrated), by, by_split))
    text += ["", *_errors(surface, predictions, calibrated), ""]
    assert calibration is not None
    text.append(
        f"Calibration: {calibration.points} points, {calibration.fit_error_percent:.1f} % left after the fit; "
        f"{len(calibration.undetermined)} of {3 * len(calibration.factors)} factors not determined by them."
    )
    text.append(f"Predicting all points took {seconds:.1f} s, simulation included.")
    # Of splits where there are any to choose, else of configs.
    fixed, free = (by_split, surface.choice) if surface.about["choice"] else (surface.case, surface.config)
    worst = sorted(regrets(surface, by(predictions), fixed).items(), key=lambda item: -item[1])[:5]
    text += ["", "Worst choices of the unfitted model:", ""]
    for group, value in worst:
        rows = [r for r in surface.rows if fixed(r) == group]
        chose = min(rows, key=lambda row: predictions[id(row)])
        best = min(rows, key=surface.time_us)
        about = (
            f"{_text(surface.config(chose))}, {_text(surface.case(chose))}" if free == surface.choice else _text(group)
        )
        text.append(
            f"- {about}: {100 * value:.1f} %: chose {_text(free(chose))} "
            f"(measured {surface.time_us(chose):.1f}, predicted {predictions[id(chose)]:.1f} us), best "
            f"{_text(free(best))} ({surface.time_us(best):.1f}, {predictions[id(best)]:.1f} us)"
        )
    return text


SUMMARY = [
    "| surface | split, nothing fitted | split, calibrated | config and split, nothing fitted "
    "| config and split, calibrated |",
    "|---|---|---|---|---|",
]


def _summary(
    surface: Surface,
    tables: Sequence[Mapping[int, float]],
    by: Callable[[Mapping[int, float]], Callable[[Sequence[Row], Surface], Row]],
    by_split: Callable[[Row], Any],
) -> str:
    cells = []
    for key in (by_split, surface.case):
        for table in tables:
            found = 100 * np.array(list(regrets(surface, by(table), key).values()))
            chosen = key is not by_split or surface.about["choice"]
            cells.append(f"{found.mean():.2f} / {found.max():.1f}" if chosen else "-")
    return f"| {surface.name} | {' | '.join(cells)} |"


def _clocks(surface: Surface) -> str:
    full = surface.gpu.boost_clock_mhz
    low = [row["sm_clock_mhz"] for row in surface.rows if row.get("sm_clock_mhz", full) < 0.95 * (full or 0.0)]
    return f" {len(low)} points ran below 95 % of the boost clock, at {min(low)} MHz and more." if low else ""


def _first_config(surface: Surface, rule: Callable[[Sequence[Row], Surface], Row]) -> dict[Any, float]:
    """Regret against the best of all configs when the first config is kept and `rule` chooses the split."""
    first = surface.config(surface.rows[0])
    found = {}
    for case, rows in _grouped(surface.rows, surface.case).items():
        best = min(surface.time_us(row) for row in rows)
        found[case] = surface.time_us(rule([r for r in rows if surface.config(r) == first], surface)) / best - 1
    return found


def _most_warps(surface: Surface) -> Callable[[Sequence[Row], Surface], Row]:
    def choose(rows: Sequence[Row], _surface: Surface) -> Row:
        most = max(int(row["ctas_per_sm"]) * int(row["num_warps"]) for row in rows)
        held = [row for row in rows if int(row["ctas_per_sm"]) * int(row["num_warps"]) == most]
        return min(held, key=surface.time_us)

    return choose


def _text(key: Key) -> str:
    return " ".join(f"{name} {value}" for name, value in key)


def near_errors(surface: Surface, table: Mapping[int, float], same_config: bool) -> np.ndarray:
    """Sizes of the log error in the ratio of the predicted best and each candidate predicted within 20 % of it: within
    one config, or between the best and other configs."""
    key = (lambda row: (surface.config(row), surface.case(row))) if same_config else surface.case
    errors = []
    for rows in _grouped(surface.rows, key).values():
        best = min(rows, key=lambda row: table[id(row)])
        for row in rows:
            near = row is not best and table[id(row)] < 1.2 * table[id(best)]
            if near and (same_config or surface.config(row) != surface.config(best)):
                predicted = table[id(row)] / table[id(best)]
                errors.append(abs(math.log(predicted * surface.time_us(best) / surface.time_us(row))))
    return np.array(errors)


def _errors(surface: Surface, predictions: Mapping[int, float], calibrated: Mapping[int, float]) -> list[str]:
    text = [
        "Errors of the predictions. Near candidates: the model's choice against those predicted within 20 % of it; "
        "median error of the predicted ratio of times.",
        "",
        "| prediction | predicted / measured, median | spread of it (1 sd) % | near candidates of the config, error % "
        "| near candidates of other configs, error % |",
        "|---|---|---|---|---|",
    ]
    for name, table in (("nothing fitted", predictions), ("calibrated", calibrated)):
        logs = np.array([math.log(table[id(r)] / surface.time_us(r)) for r in surface.rows])
        near = [
            f"{100 * np.median(found):.1f}" if len(found := near_errors(surface, table, same)) else "-"
            for same in (True, False)
        ]
        text.append(f"| {name} | {math.exp(np.median(logs)):.2f} | {100 * logs.std():.1f} | {near[0]} | {near[1]} |")
    return text


INTRODUCTION = """# Regret of recommendations on measured surfaces

Made by `python validation/regret.py --write` from the surfaces in `validation/given/` (given, see its README) and in
`validation/h200/surfaces/` (measured with `occupancy measure`). Regret: time of what a rule chooses / best measured
time - 1. A choice that was not measured is taken down to the nearest measured split.

The model's numbers come from the kernels' own TTGIR and SASS (recorded beside each surface), the GPU's profile in
`hw_profiles/`, and an H200's instruction rates, latencies and launch costs timed by `validation/sm_constants.cu`
(`sm_constants_h200.json`). No number was fitted to the times of a surface for the rows "nothing fitted".

What is optimistic: the form of the model was developed with `sparse_mla_decode_h200`, `gqa_decode`, `sparse_mla_decode`
and `moe_grouped_gemm` at hand. That the lines of a gather, the path to and from the L2, spills that outgrow the L1, the
place of the data in the L2, short runs of bytes in memory and tiles that CTAs share are modelled at all was decided by
looking at where simpler models chose wrongly on them. The constants of these effects were then taken from the device,
not from a surface; how firmly a calibration holds its factors was chosen on these four. The points of a calibration are
part of the surface that is judged. The overhead of 2 tiles and the merge cost of a tenth of a tile in FlashInfer's form
are this table's, not FlashInfer's.

What is not: `gqa_decode_8_heads`, `moe_grouped_gemm_64_experts` and `sparse_mla_decode_64_heads` (other shapes of the
kernels, other batches) were measured when the model was done and have decided nothing since.

Points that ran beside other processes are left out. Those whose clock the GPU's power cap held down are in, since that
is how users get them; the model knows one clock. The grouped GEMM has no splits to choose.

What the data does not tell: how the indices of the sparse kernel lie in memory. The model takes each gathered row to
lie in a line of its own, which on `sparse_mla_decode_h200` makes the wide tiles 1.4 times too slow.
"""


def judged(path: Path) -> tuple[str, list[str]]:
    """The part of a surface, and its line of the summary."""
    summary: list[str] = []
    return "\n".join(report(read_surface(path), summary)) + "\n", summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[GIVEN, MEASURED], help="of surfaces")
    parser.add_argument("--write", action="store_true", help="put the text into validation/regret.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="surfaces at once")
    arguments = parser.parse_args()
    folders: list[Path] = arguments.folders
    known = [path for folder in folders for path in sorted(folder.glob("*.jsonl.gz"))]
    parts, summary = [], [*SUMMARY]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, context) as pool:
        for part, lines in pool.map(judged, known):
            parts.append(part)
            summary += lines
    head = f"{INTRODUCTION}\nRegret of the model, mean / worst %:\n\n" + "\n".join(summary) + "\n"
    text = "\n".join([head, *parts])
    print(text)
    if arguments.write:
        (Path(__file__).resolve().parent / "regret.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
