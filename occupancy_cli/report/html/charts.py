"""The charts of a page, each with the sentence that says what it shows and the rows that it is drawn from.

A chart is made from parts of a Report and drawn for any width; `None` where the Report has nothing to draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from occupancy_cli.report.choice_parts import Choice, Recommendation, SurfacePoint, SweepPoint
from occupancy_cli.report.html.vega import BEST, BINDS, FAINT, HOVER_CHANNEL, IDLE, INK, NOW, PAPER, USE, hover
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.text import flips as flips_of
from occupancy_cli.report.terminal.text import pairs, split_columns, values_of

Row = dict[str, Any]
MOST_CONFIGS = 12
_MOST_WAVES_APART = 24
_WHOLE = "the whole of it"
NOW_LABEL, USE_LABEL, BEST_LABEL = "as set now", "one setting for all", "best of each batch"
_RESOURCES = {
    "shared": "shared memory",
    "registers": "registers",
    "warps": "warps",
    "ctas": "CTAs",
    "tmem": "tensor memory",
}


@dataclass(frozen=True)
class Chart:
    """`says` is its sentence, `rows` what it is drawn from, `draw` its specification at a width in pixels.

    `left_out` says what rows are not drawn, `of` what it is of where it stands alone.
    """

    name: str
    title: str
    says: str
    rows: list[Row]
    draw: Callable[[int], Mapping[str, Any]]
    left_out: str = ""
    of: str = ""

    @property
    def table_rows(self) -> list[Row]:
        """The rows without what only drawing needs."""
        return [{n: v for n, v in row.items() if n != "hover" and not n.startswith("_")} for row in self.rows]


def limits_chart(kernel: Kernel, number: int) -> Chart | None:
    """How much of what an SM has room for its CTAs take, each resource as if it were the only limit, by config."""
    fitting = [c for c in kernel.configs if c.occupancy is not None and c.fits]
    shown = fitting[:MOST_CONFIGS]
    if not shown:
        return None
    _, varying = split_columns(kernel.configs)
    rows = [row for config in shown for row in _limit_rows(config, varying)]
    best = max(shown, key=lambda c: c.occupancy.ctas_per_sm if c.occupancy else 0)
    assert best.occupancy is not None
    says = (
        f"An SM holds {_range([c.occupancy.ctas_per_sm for c in shown if c.occupancy])} CTAs, by config. The most, "
        f"{best.occupancy.ctas_per_sm}, at {label(best, varying)}, limited by {_names(best.occupancy.limited_by)}. "
        "A bar is what these CTAs take of all that the resource alone has room for."
    )

    def draw(width: int) -> Mapping[str, Any]:
        return {
            "data": {"values": rows},
            "facet": {
                "row": {
                    "field": "config", "type": "nominal", "sort": None, "title": None,
                    "header": {"labelAngle": 0, "labelAnchor": "start", "labelOrient": "top", "labelPadding": -10},
                }
            },
            "spacing": 16,
            "spec": {
                "width": width - 120,
                "height": {"step": 13},
                "mark": {"type": "bar", "height": 10},
                "encoding": {
                    "y": {"field": "resource", "type": "nominal", "sort": None, "title": None},
                    "x": {"field": "taken, %", "type": "quantitative", "title": "taken of the room for CTAs, %",
                          "scale": {"domain": [0, 100]}, "axis": {"values": [0, 25, 50, 75, 100]}},
                    "color": {"field": "binds", "type": "nominal", "title": None, "legend": {"columnPadding": 24},
                              "scale": {"domain": ["binds", "leaves room"], "range": [BINDS, IDLE]}},
                    **HOVER_CHANNEL,
                },
            },
        }  # fmt: skip

    left = len(kernel.configs) - len(shown)
    return Chart(
        f"limits{number}", "What an SM has room for", says, rows, draw, counted(left, "config") if left else ""
    )


def _limit_rows(config: Config, varying: Sequence[str]) -> list[Row]:
    occupancy, resources = config.occupancy, config.resources
    assert occupancy is not None
    takes = {}
    if resources is not None:
        takes = {"shared": f"{resources.shared_bytes:,} bytes", "warps": f"{resources.num_warps} warps"}
        if resources.registers_per_thread is not None:
            takes["registers"] = f"{resources.registers_per_thread} registers per thread"
    rows: list[Row] = []
    for resource, ctas in occupancy.limits.items():
        if ctas:
            name, held = _RESOURCES.get(resource, resource), occupancy.ctas_per_sm
            said = f"{name}: {held} of room for {counted(ctas, 'CTA')}"
            said += f", a CTA takes {takes[resource]}" if resource in takes else ""
            rows.append({
                "config": label(config, varying), "resource": name, "CTAs held": held, "room for CTAs": ctas,
                "taken, %": round(100 * held / ctas, 1), "hover": hover(said),
                "binds": "binds" if resource in occupancy.limited_by else "leaves room",
            })  # fmt: skip
    return rows


def label(config: Config, varying: Sequence[str]) -> str:
    """A config by the values that tell it from the others."""
    values = values_of(config)
    return pairs({n: values[n] for n in varying if n in values}) or "the config"


def _names(resources: Sequence[str]) -> str:
    return " and ".join(_RESOURCES.get(r, r) for r in resources) or "nothing"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def memory_chart(config: Config, number: int) -> Chart | None:
    """The buffers of shared memory by address, over the program: which live together, and where each comes from."""
    found = config.shared_map
    if found is None or not found.buffers:
        return None
    rows: list[Row] = []
    for each in found.buffers:
        shape = "x".join(map(str, each.shape))
        name = f"{each.value or each.purpose} {shape} {each.dtype}".strip()
        line = (
            f"{PurePath(each.source.file).name}:{each.source.line}: {each.source.text.strip()}" if each.source else ""
        )
        copies = f", {each.copies} copies" if each.copies > 1 else ""
        rows.append({
            "buffer": name, "from byte": each.offset, "to byte": each.offset + each.bytes, "bytes": each.bytes,
            "lives from": each.live_from, "lives to": each.live_to, "_end": each.live_to + 1,
            "at the peak": "lives at the peak" if each.at_peak else "shares its address",
            "purpose": each.purpose, "copies": each.copies, "source": line,
            "hover": hover(f"{name}: {each.bytes:,} bytes{copies}, {each.purpose}. {line}"),
        })  # fmt: skip
    most = max((b for b in found.buffers if b.at_peak), key=lambda b: b.bytes, default=found.buffers[0])
    says = (
        f"{found.total_bytes:,} bytes, all in use at operation {found.peak_at} of {found.operations}. The largest part, "
        f"{most.bytes:,} bytes, is {most.value or most.purpose}"
        + (f" (line {most.source.line})." if most.source else ".")
    )
    if found.peak_unused_bytes:
        says += f" {found.peak_unused_bytes:,} bytes lie unused then."

    def draw(width: int) -> Mapping[str, Any]:
        at: dict[str, Any] = {
            "x": {"field": "lives from", "type": "quantitative", "title": "operation of the program, in its order",
                  "scale": {"domain": [0, found.operations]}},
            "x2": {"field": "_end"},
            "y": {"field": "from byte", "type": "quantitative", "title": "address, bytes",
                  "scale": {"domain": [0, found.total_bytes]}},
            "y2": {"field": "to byte"},
        }  # fmt: skip
        label = {
            "x": {**at["x"], "bandPosition": 0}, "y": {"field": "_middle", "type": "quantitative"},
            "text": {"field": "buffer"},
        }  # fmt: skip
        large = f"datum.bytes > {found.total_bytes / 14} && datum['lives to'] - datum['lives from'] > {found.operations / 5}"
        return {
            "data": {"values": [{**row, "_middle": row["from byte"] + row["bytes"] / 2} for row in rows]},
            "width": width - 90,
            "height": 260,
            "layer": [
                {"mark": {"type": "rect", "stroke": INK, "strokeWidth": 0.6, "opacity": 0.85},
                 "encoding": {**at, "color": {"field": "at the peak", "type": "nominal", "title": None,
                                              "legend": {"columnPadding": 24},
                                              "scale": {"domain": ["lives at the peak", "shares its address"], "range": [USE, IDLE]}},
                              **HOVER_CHANNEL}},
                {"mark": {"type": "text", "align": "left", "dx": 5, "baseline": "middle", "color": PAPER, "fontSize": 11,
                          "limit": width - 130},
                 "transform": [{"filter": f"datum['at the peak'] == 'lives at the peak' && {large}"}], "encoding": label},
            ],
        }  # fmt: skip

    return Chart(f"memory{number}", "Where shared memory goes", says, rows, draw)


def waves_chart(found: Recommendation) -> Chart | None:
    """The slots of the machine over the waves of a launch: which work, and which have nothing left to do."""
    sides = _sides(found)
    rows: list[Row] = []
    for label, choice in sides:
        rows += _wave_rows(label, choice)
    if not rows:
        return None
    said = []
    for label, choice in sides:
        if (launch := choice.launch) is not None and launch.waves is not None and launch.slots:
            said.append(f"{label}: {launch.ctas:,} CTAs on {launch.slots:,} slots, {launch.waves:.2f} waves")
            if launch.tail_ctas:
                said[-1] += f", {launch.slots - launch.tail_ctas:,} slots idle in the last"
    order = [label for label, _ in sides]
    last = max(row["to wave"] for row in rows)

    def draw(width: int) -> Mapping[str, Any]:
        return {
            "data": {"values": rows},
            "facet": {"row": {"field": "setting", "type": "nominal", "sort": order, "title": None,
                              "header": {"labelAngle": 0, "labelAnchor": "start", "labelOrient": "top", "labelPadding": -10}}},
            "spec": {
                "width": width - 70,
                "height": 90,
                "mark": {"type": "rect", "stroke": PAPER, "strokeWidth": 1},
                "encoding": {
                    "x": {"field": "from wave", "type": "quantitative", "title": "waves", "axis": {"values": list(range(last + 1)), "format": "d"} if last <= _MOST_WAVES_APART else {}},
                    "x2": {"field": "to wave"},
                    "y": {"field": "_low", "type": "quantitative", "title": "slots, %", "scale": {"domain": [0, 100]},
                          "axis": {"values": [0, 50, 100]}},
                    "y2": {"field": "_high"},
                    "color": {"field": "slots are", "type": "nominal", "title": None, "legend": {"columnPadding": 24},
                              "scale": {"domain": ["busy", "idle"], "range": [USE, IDLE]}},
                    **HOVER_CHANNEL,
                },
            },
        }  # fmt: skip

    return Chart(f"waves{found.batch}", f"Waves at batch {found.batch}", _sentence("; ".join(said)), rows, draw)


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}."


def _sides(found: Recommendation) -> list[tuple[str, Choice]]:
    sides = [(NOW_LABEL, found.default), ("recommended", found.chosen)]
    return [(label, choice) for label, choice in sides if choice is not None]


def _wave_rows(label: str, choice: Choice) -> list[Row]:
    launch = choice.launch
    if launch is None or not launch.slots or launch.waves is None:
        return []
    full, tail, slots = launch.full_waves or 0, launch.tail_ctas or 0, launch.slots
    whole = [(i, i + 1) for i in range(full)] if full <= _MOST_WAVES_APART else [(0, full)]
    spans = [(first, last, slots) for first, last in whole] + ([(full, full + 1, tail)] if tail else [])
    rows = []
    for first, last, busy in spans:
        for what, low, high in (("busy", 0, busy), ("idle", busy, slots)):
            if high > low:
                said = (
                    f"{label}, wave {first + 1}{f' to {last}' if last > first + 1 else ''}: {high - low:,} slots {what}"
                )
                rows.append({
                    "setting": label, "from wave": first, "to wave": last, "slots are": what, "slots": high - low,
                    "_low": 100 * low / slots, "_high": 100 * high / slots, "hover": hover(said),
                })  # fmt: skip
    return rows


def time_chart(swept: Sequence[SweepPoint]) -> Chart | None:
    """Predicted time over batch: as set now, with one setting for all, with each batch's own best."""
    rows: list[Row] = []
    for point in swept:
        error = point.model_error_percent
        for label, side in ((NOW_LABEL, point.default), (USE_LABEL, point.recommended), (BEST_LABEL, point.best)):
            if side is not None:
                us = side.predicted_time_us
                band = {} if error is None else {"least us": us * (1 - error / 100), "most us": us * (1 + error / 100)}
                shown = f"batch {point.batch}, {label}: {us:,.1f} us" + (f" ± {error:.1f} %" if error else "")
                said = f"{shown}, {pairs({**side.knobs, **side.config})}"
                rows.append({"batch": point.batch, "setting": label, "us": us, **band, "hover": hover(said)})
    if len(swept) < 2:
        return None
    first, last = swept[0], swept[-1]
    says = f"Batch {first.batch} to {last.batch}."
    for label, name in ((NOW_LABEL, "default"), (USE_LABEL, "recommended")):
        ends = [getattr(point, name) for point in (first, last)]
        if all(ends):
            one = "" if name == "default" else f" ({pairs({**ends[0].knobs, **ends[0].config})})"
            says += f" {label[0].upper()}{label[1:]}{one}: {ends[0].predicted_time_us:,.1f} to {ends[1].predicted_time_us:,.1f} us."
    flips = flips_of([(p.batch, {**p.best.knobs, **p.best.config}) for p in swept])
    if flips:
        says += f" The best setting is another from batch {', '.join(map(str, flips))} on (dashed lines)."
    says += " Bands are the recorded error of such a comparison."
    labels = [NOW_LABEL, USE_LABEL, BEST_LABEL]
    color = {
        "field": "setting",
        "type": "nominal",
        "title": None,
        "scale": {"domain": labels, "range": [NOW, USE, BEST]},
    }
    x: dict[str, Any] = {
        "field": "batch",
        "type": "quantitative",
        "title": "batch",
        "scale": {"zero": False, "nice": False},
    }
    if len(swept) <= 24:
        x["axis"] = {"values": [point.batch for point in swept], "labelOverlap": True}

    def draw(width: int) -> Mapping[str, Any]:
        legend = {"legend": {"columns": 1 if width < 500 else 3, "columnPadding": 24, "symbolOpacity": 1}}
        return {
            "data": {"values": rows},
            "width": width - 70,
            "height": 260,
            "layer": [
                {"data": {"values": [{"batch": batch} for batch in flips]},
                 "mark": {"type": "rule", "color": FAINT, "strokeDash": [2, 3]}, "encoding": {"x": x}},
                {"mark": {"type": "area", "opacity": 0.16},
                 "transform": [{"filter": f"datum.setting != '{BEST_LABEL}' && isValid(datum['least us'])"}],
                 "encoding": {"x": x, "y": {"field": "least us", "type": "quantitative", "title": "predicted us"},
                              "y2": {"field": "most us"}, "color": {**color, **legend}}},
                {"mark": {"type": "line", "strokeWidth": 2},
                 "encoding": {"x": x, "y": {"field": "us", "type": "quantitative"}, "color": color,
                              "strokeDash": {"condition": {"test": f"datum.setting == '{BEST_LABEL}'", "value": [4, 3]},
                                             "value": [1, 0]}}},
                {"mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
                 "encoding": {"x": x, "y": {"field": "us", "type": "quantitative"}, "color": color, **HOVER_CHANNEL}},
            ],
        }  # fmt: skip

    return Chart("time", "Predicted time over batch", says, rows, draw)


def surface_chart(points: Sequence[SurfacePoint]) -> Chart | None:
    """How much slower each number of splits is than the batch's best, with the splits that are chosen and set now."""
    if len({p.nsplit for p in points}) < 2 or len({p.batch for p in points}) < 2:
        return None
    best = {b: min(p.predicted_time_us for p in points if p.batch == b) for b in {p.batch for p in points}}
    rows: list[Row] = []
    for point in points:
        over = 100 * (point.predicted_time_us / best[point.batch] - 1)
        marks = [m for m, there in ((USE_LABEL, point.recommended), (NOW_LABEL, point.default)) if there]
        said = (
            f"batch {point.batch}, nsplit {point.nsplit}: {point.predicted_time_us:,.1f} us, {over:.0f} % over the best"
        )
        said += f" ({pairs({**point.knobs, **point.config})})" + (f"; {' and '.join(marks)}" if marks else "")
        rows.append({
            "batch": point.batch, "nsplit": point.nsplit, "us": point.predicted_time_us,
            "slower than best, %": round(over, 1), "setting": " and ".join(marks), "hover": hover(said),
        })  # fmt: skip
    marked = [
        {"batch": p.batch, "nsplit": p.nsplit, "what": what}
        for p in points
        for what, there in ((USE_LABEL, p.recommended), (NOW_LABEL, p.default))
        if there
    ]
    flips = _flips([p for p in points if p.recommended])
    says = (
        "Colour: how much longer the fastest setting with that many splits takes than the batch's best. Circles: the "
        f"setting for all batches; squares: as set now. {flips}"
    )

    def draw(width: int) -> Mapping[str, Any]:
        legend = {"direction": "horizontal", "gradientLength": min(200, width - 140)}
        at = {"x": {"field": "batch", "type": "ordinal", "title": "batch"},
              "y": {"field": "nsplit", "type": "ordinal", "sort": "descending", "title": "nsplit"}}  # fmt: skip
        return {
            "width": width - 60,
            "height": {"step": 16},
            "layer": [
                {"data": {"values": rows}, "mark": "rect",
                 "encoding": {**at, "color": {"field": "slower than best, %", "type": "quantitative", "legend": legend,
                                              "scale": {"scheme": "cividis", "reverse": True, "domain": [0, 100], "clamp": True}},
                              **HOVER_CHANNEL}},
                {"data": {"values": marked},
                 "mark": {"type": "point", "size": 60, "filled": True, "fill": "#fff", "stroke": "#000", "strokeWidth": 1.2},
                 "encoding": {**at, "shape": {"field": "what", "type": "nominal", "legend": None,
                                              "scale": {"domain": [USE_LABEL, NOW_LABEL], "range": ["circle", "square"]}}}},
            ],
        }  # fmt: skip

    return Chart("splits", "Splits over batch", says, rows, draw)


def _flips(chosen: Sequence[SurfacePoint]) -> str:
    ordered = sorted(chosen, key=lambda p: p.batch)
    changes = [f"{b.nsplit} from batch {b.batch}" for a, b in itertools.pairwise(ordered) if a.nsplit != b.nsplit]
    if not ordered:
        return ""
    return f"The setting for all has nsplit {ordered[0].nsplit}" + (
        f", {', '.join(changes)}." if changes else " throughout."
    )


def terms_chart(found: Recommendation) -> Chart | None:
    """What the time of one iteration of a CTA is made of: each unit's time as if it were alone."""
    rows: list[Row] = []
    for label, choice in _sides(found):
        for name, us in choice.terms.items():
            term = name.removeprefix("iteration_").removesuffix("us").removesuffix("_").replace("_", " ") or _WHOLE
            if name.startswith("iteration_") and name.endswith("_us") and term != "alone" and us > 0:
                said = f"{label}: {term} {us:.2f} us an iteration"
                rows.append({"term": term, "setting": label, "us": us, "hover": hover(said)})
    if not rows:
        return None
    bound = "; ".join(f"{label}: bound by {choice.binding}" for label, choice in _sides(found) if choice.binding)
    order = list(dict.fromkeys(r["term"] for r in sorted(rows, key=lambda r: -r["us"])))
    labels = [label for label, _ in _sides(found)]

    def draw(width: int) -> Mapping[str, Any]:
        return {
            "data": {"values": rows},
            "width": width - 180,
            "height": {"step": 11},
            "mark": {"type": "bar"},
            "encoding": {
                "y": {"field": "term", "type": "nominal", "sort": order, "title": None},
                "yOffset": {"field": "setting", "sort": labels},
                "x": {"field": "us", "type": "quantitative", "title": "us per iteration of a CTA"},
                "color": {"field": "setting", "type": "nominal", "title": None, "legend": {"columnPadding": 24},
                          "scale": {"domain": labels, "range": [NOW, USE][-len(labels):]}},
                **HOVER_CHANNEL,
            },
        }  # fmt: skip

    title = f"What the time is made of, batch {found.batch}"
    return Chart(f"terms{found.batch}", title, _sentence(bound) if bound else "", rows, draw)


def candidates_chart(found: Recommendation) -> Chart | None:
    """Time against memory for partial results, of the candidates that no other beats in both."""
    points = [c for c in found.pareto if c.partials_bytes is not None and c.predicted_time_us is not None]
    if len(points) < 3:
        return None
    rows: list[Row] = [
        {
            "partials, MB": round((c.partials_bytes or 0) / 1e6, 2), "us": c.predicted_time_us,
            "setting": pairs({**c.knobs, **c.config}), "nsplit": c.nsplit,
            "hover": hover(f"{c.predicted_time_us:,.1f} us, {c.partials_bytes:,} bytes: {pairs({**c.knobs, **c.config})}"),
        }
        for c in points
    ]  # fmt: skip
    says = f"{len(rows)} settings: none is beaten in both time and memory. The left ones need less, the lower ones are faster."

    def draw(width: int) -> Mapping[str, Any]:
        at = {"x": {"field": "partials, MB", "type": "quantitative"},
              "y": {"field": "us", "type": "quantitative", "title": "predicted us", "scale": {"zero": False}}}  # fmt: skip
        return {
            "data": {"values": rows}, "width": width - 70, "height": 180,
            "layer": [
                {"mark": {"type": "line", "interpolate": "step-after", "color": FAINT}, "encoding": at},
                {"mark": {"type": "point", "filled": True, "size": 60, "color": USE, "opacity": 1},
                 "encoding": {**at, **HOVER_CHANNEL}},
            ],
        }  # fmt: skip

    return Chart(f"pareto{found.batch}", f"Time against memory, batch {found.batch}", says, rows, draw)
