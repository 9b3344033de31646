"""A Report as one page of HTML: the answer first, then the pictures and their numbers, then what could be wrong.

One file without scripts; nothing in it asks for another (its Content-Security-Policy says so to the browser too). Every
text of the Report passes `visible_part` and then `markup`, as with every renderer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from occupancy_cli.report.choice_parts import Choice, Recommendation
from occupancy_cli.report.html import charts
from occupancy_cli.report.html.charts import Chart
from occupancy_cli.report.html.markup import Html, tag
from occupancy_cli.report.html.style import STYLE
from occupancy_cli.report.html.tables import table
from occupancy_cli.report.html.vega import svg
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.provenance import Provenance
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal.text import gain, headline, open_names, pairs, split_columns, sureness, waves
from occupancy_cli.report.visible_report import visible_part

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_WIDE, _NARROW = 720, 330
_RECOMMENDED = "recommended"


def render_page(reports: Sequence[Report], made: Provenance) -> str:
    """The page; several Reports stand one after the other. `MissingDependencyError` where charts cannot be drawn."""
    shown = [visible_part(report) for report in reports]
    made = visible_part(made)
    title = f"{', '.join(_name(report) for report in shown)}: occupancy"
    body = [tag("main", [_report(report, f"k{i}-") for i, report in enumerate(shown)]), _footer(shown, made)]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        STYLE,
    ]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _name(report: Report) -> str:
    return report.kernels[0].name if report.kernels else report.command


def _report(report: Report, prefix: str) -> Html:
    now = report.kernels[0] if report.kernels else None
    parts: list[Any] = [tag("h1", headline(_name(report), report.gpu, report.toolchain))]
    if now is not None:
        origins = {n: o for n, o in now.settings.items() if o != "spec default"}
        said = f"{now.kernel}" + (f"; {', '.join(f'{n} by {o}' for n, o in origins.items())}" if origins else "")
        parts.append(tag("p", said, class_="soft"))
        parts.append(_answers(report, now))
    parts += [_what_to_set(report, found) for found in report.recommendations]
    if report.single_setting is not None:
        parts.append(_single(report))
    parts += _pictures(report, prefix)
    parts += [_all_configs(report), _doubts(report), _assumptions(report)]
    return tag("article", parts)


# --- the answer ----------------------------------------------------------------------------------------------------


def _answers(report: Report, now: Kernel) -> Html:
    first = report.recommendations[0] if report.recommendations else None
    cards = [("Does it fit?", *_fits(report, now)), ("How full is the GPU?", *_how_full(report, first))]
    cards.append(("What to set?", *_set(first)))
    made = [
        tag("section", tag("h2", title), tag("p", big, class_="big"), [tag("p", line) for line in lines])
        for title, big, lines in cards
    ]
    return tag("div", made, class_="answers")


def _fits(report: Report, now: Kernel) -> tuple[str, list[str]]:
    fit, failed = sum(c.fits is True for c in now.configs), [c for c in now.configs if c.status == "failed"]
    over = [c for c in now.configs if c.status == "over_cap"]
    count = len(now.configs)
    big = f"Yes, all {count} configs" if fit == count > 1 else "Yes" if fit == count else f"{fit} of {count} configs"
    if not fit:
        big = "No" if not failed else "Cannot tell"
    alike: dict[str, list[str]] = {}
    for config in over:
        alike.setdefault(config.reason, []).append(charts.label(config, split_columns(now.configs)[1]))
    lines = [f"Not {'; nor '.join(names[:4])}: {reason}." for reason, names in list(alike.items())[:2]]
    lines += [f"{len(failed)} did not compile: {failed[0].reason}"] if failed else []
    if len(report.kernels) > 1:
        then = report.kernels[1].configs
        fitting = f"{sum(c.fits is True for c in then)} of {len(then)} fit"
        lines.append(f"That is with the knobs as set now; with those recommended {fitting}.")
    return big, lines


def _how_full(report: Report, first: Recommendation | None) -> tuple[str, list[str]]:
    if first is None:
        fitting = [c for k in report.kernels[:1] for c in k.configs if c.occupancy is not None and c.fits]
        if not fitting:
            return "Not at all", ["No config can launch."]
        best = max(fitting, key=lambda c: c.occupancy.warps_per_sm if c.occupancy else 0)
        return _ctas(best), [_listed(best.config), *_why(best)]
    lines = [f"recommended: {_filled(first.chosen)}"]
    if first.default is not None:
        lines.append(f"as set now: {_filled(first.default)}")
    config = _config_of(report, first.chosen)
    return f"{first.chosen.ctas_per_sm} CTA/SM" if config is None else _ctas(config), [*lines, *_why(config)]


def _ctas(config: Config) -> str:
    occupancy = config.occupancy
    assert occupancy is not None
    return (
        f"{occupancy.ctas_per_sm} CTA{'s' * (occupancy.ctas_per_sm != 1)} per SM, "
        f"{occupancy.warps_per_sm} of {occupancy.max_warps_per_sm} warps"
    )


def _filled(choice: Choice) -> str:
    return f"{waves(choice.launch)} waves, last one {choice.launch.tail_percent:.0f} % full" if (
        choice.launch is not None and choice.launch.tail_percent is not None
    ) else f"{choice.ctas_per_sm} CTAs/SM"  # fmt: skip


def _why(config: Config | None) -> list[str]:
    """What holds the next CTA back, in the case's own numbers."""
    if config is None or config.occupancy is None or config.resources is None:
        return []
    following, taken = config.occupancy.next_cta, config.resources
    needs = []
    if "shared" in following.binding and following.shared_bytes is not None:
        needs.append(f"at most {following.shared_bytes:,} bytes of shared memory, it takes {taken.shared_bytes:,}")
    if "registers" in following.binding and following.registers_per_thread is not None:
        needs.append(
            f"at most {following.registers_per_thread} registers per thread, it has {taken.registers_per_thread}"
        )
    if "warps" in following.binding and following.warps_per_cta is not None:
        needs.append(f"at most {following.warps_per_cta} warps, it has {taken.num_warps}")
    return [f"{following.ctas_per_sm} CTAs per SM need {' and '.join(needs)}."] if needs else []


def _config_of(report: Report, choice: Choice) -> Config | None:
    """The config of the page that has a choice's values."""
    wanted = {**choice.knobs, **choice.config}
    for kernel in reversed(report.kernels):
        for config in kernel.configs:
            values = {**config.knobs, **config.config}
            if all(values.get(n) == v for n, v in wanted.items()):
                return config
    return None


def _set(first: Recommendation | None) -> tuple[str, list[str]]:
    if first is None:
        return "Not known", ["Its spec does not say enough to predict a time; see what could be wrong."]
    lines = [_gain(first), *filter(None, [sureness(first)])]
    if not lines[1:] and first.runner_up is not None and first.runner_up.predicted_time_us and first.predicted_time_us:
        behind = 100 * (first.runner_up.predicted_time_us / first.predicted_time_us - 1)
        sure = "closer than the model can tell" if behind < first.model_error_percent else "beyond the model's error"
        lines.append(f"The next best is {behind:.1f} % slower: {sure}.")
    return _setting(first.chosen), lines


def _setting(choice: Choice) -> str:
    return _listed({**choice.knobs, **choice.config})


def _listed(values: Mapping[str, Any]) -> str:
    """Names and values; one CTA a cluster is what every launch has unless it says otherwise."""
    return pairs({n: v for n, v in values.items() if v is not None and (n, v) != ("num_ctas", 1)})


def _gain(found: Recommendation) -> str:
    said = f"{gain(found)}."
    return f"{said[0].upper()}{said[1:]}"


def _what_to_set(report: Report, found: Recommendation) -> Html:
    parts: list[Any] = [tag("h2", f"Batch {found.batch}"), tag("p", _gain(found))]
    if found.exports:
        parts.append(tag("pre", "\n".join(found.exports), tabindex="0"))
    sides = [("as set now", found.default), ("recommended", found.chosen), ("next best", found.runner_up)]
    columns = {label: _side(choice) for label, choice in sides if choice is not None}
    names = dict.fromkeys(n for column in columns.values() for n in column)
    rows = [{"setting": n, **{label: column.get(n) for label, column in columns.items()}} for n in names]
    parts.append(table(rows, f"Settings at batch {found.batch}"))
    config = _config_of(report, found.chosen)
    lines = [*_why(config), *(found.why or found.reasons), *open_names(found)]
    parts.append(tag("ul", [tag("li", line) for line in dict.fromkeys(lines)]))
    if found.cannot_launch:
        parts.append(tag("p", "Cannot launch: ", "; ".join(found.cannot_launch), class_="warn"))
    return tag("section", parts)


def _side(choice: Choice) -> dict[str, Any]:
    launch = choice.launch
    found = {
        **{n: v for n, v in {**choice.knobs, **choice.config}.items() if (n, v) != ("num_ctas", 1)},
        "nsplit": choice.nsplit,
        "CTAs/SM": choice.ctas_per_sm,
        "warps/SM": choice.warps_per_sm,
        "waves": launch.waves if launch else None,
        "last wave full, %": launch.tail_percent if launch else None,
        "partials, bytes": choice.partials_bytes,
        "predicted us": choice.predicted_time_us,
        "bound by": choice.binding,
    }
    return {n: v for n, v in found.items() if v is not None}


def _single(report: Report) -> Html:
    single = report.single_setting
    assert single is not None
    batches = ", ".join(str(found.batch) for found in report.recommendations)
    cost = f"{(single.slowdown - 1) * 100:.1f} % over each batch's own best"
    parts: list[Any] = [tag("h2", f"One setting for batches {batches}")]
    parts.append(tag("p", f"{_listed({**single.knobs, **single.config})}: {cost}."))
    parts += [tag("pre", "\n".join(single.exports), tabindex="0")] if single.exports else []
    return tag("section", parts)


# --- pictures ------------------------------------------------------------------------------------------------------


def _pictures(report: Report, prefix: str) -> Iterator[Html]:
    made: list[Chart | None] = []
    for number, kernel in enumerate(report.kernels):
        made.append(_titled(charts.limits_chart(kernel, number), kernel))
        maps = [charts.memory_chart(c, number) for c in kernel.configs if c.shared_map is not None]
        which = [_listed(c.config) for c in kernel.configs if c.shared_map is not None]
        made += [m and replace(m, title=f"{m.title}: {w}") for m, w in zip(maps, which, strict=True)]
    for found in report.recommendations:
        made += [charts.waves_chart(found), charts.terms_chart(found), charts.candidates_chart(found)]
    made += [charts.time_chart(report.sweep), charts.surface_chart(report.surface)]
    drawn = [chart for chart in made if chart is not None]
    if drawn:
        yield tag("h2", "Pictures")
    yield from (_figure(chart, prefix) for chart in drawn)


def _titled(chart: Chart | None, kernel: Kernel) -> Chart | None:
    if chart is None:
        return None
    which = _RECOMMENDED if _RECOMMENDED in kernel.settings.values() else "as set now"
    knobs = kernel.configs[0].knobs
    return replace(chart, title=f"{chart.title}, knobs {which}" + (f" ({pairs(knobs)})" if knobs else ""))


def _figure(chart: Chart, prefix: str) -> Html:
    name = prefix + chart.name
    wide = tag("div", svg(chart.draw(_WIDE), f"{name}-w", f"{chart.title}. {chart.says}"), class_="wide")
    narrow = tag("div", svg(chart.draw(_NARROW), f"{name}-n", f"{chart.title}. {chart.says}"), class_="narrow")
    caption = tag("figcaption", tag("h3", chart.title), tag("p", chart.says, class_="soft"))
    left = (
        tag("p", f"Not drawn: {chart.left_out}; the table of configs has them.", class_="soft")
        if chart.left_out
        else None
    )
    numbers = tag("details", tag("summary", "Its numbers"), table(chart.table_rows, chart.title))
    return tag("figure", caption, wide, narrow, left, numbers)


# --- what it is made of --------------------------------------------------------------------------------------------


def _all_configs(report: Report) -> Html | None:
    if not report.kernels:
        return None
    rows = report.rows()
    same = {n: v for n, v in rows[0].items() if len(rows) > 1 and all(row[n] == v for row in rows)}
    caption = f"Every config that was looked at; all: {_listed({n: v for n, v in same.items() if v not in ('', True)})}"
    varying = [{n: v for n, v in row.items() if n not in same} for row in rows]
    return tag(
        "section", tag("h2", "All configs"), table(varying, caption if same else "Every config that was looked at")
    )


def _doubts(report: Report) -> Html:
    """What could be wrong with the answer, the most telling first."""
    lines: list[str] = []
    lines += [f"not read: {text}" for k in report.kernels for text in k.not_read]
    if report.recommendations:
        worst = max(found.model_error_percent for found in report.recommendations)
        lines.append(
            "Times are predicted, not measured. Half of the recorded ratios of two such predictions were off by at "
            f"most {worst:.1f} %; `occupancy measure` and `calibrate` on the GPU itself narrow that."
        )
        lines.append(
            "What is set now is taken with the config that is predicted fastest for it, as an autotuner would find."
        )
    if report.gpu is not None and report.gpu.assumed:
        lines.append(f"Assumed for this GPU, without a document that states it: {', '.join(report.gpu.assumed)}.")
    lines += report.gpu.notes if report.gpu is not None else []
    lines += report.notes
    lines += [n for k in report.kernels for n in k.notes]
    lines += [n for k in report.kernels for c in k.configs for n in c.notes]
    if report.interrupted:
        lines.insert(0, "The run was interrupted: what was not reached is missing.")
    found = list(dict.fromkeys(line for line in lines if line))
    return tag("section", tag("h2", "What could be wrong"), tag("ul", [tag("li", line) for line in found]))


def _assumptions(report: Report) -> Html | None:
    rows = [
        {
            "value": name,
            "is": f"{sourced.value:,}" if isinstance(sourced.value, (int, float)) else str(sourced.value),
            "status": sourced.status,
            "sources": "; ".join(sourced.sources),
            "note": sourced.note,
        }
        for gpu in report.gpus
        for name, sourced in {**gpu.values, **gpu.limits}.items()
    ]
    if not rows:
        return None
    rows.sort(key=lambda row: ("assumed", "measured", "documented").index(row["status"]))
    label = f"{len(rows)} values of the GPU, with status and source"
    return tag("section", tag("h2", "The GPU"), tag("details", tag("summary", label), table(rows, label)))


def _footer(reports: Sequence[Report], made: Provenance) -> Html:
    tools = reports[0].toolchain if reports else None
    built = (
        ""
        if tools is None
        else f"occupancy {tools.occupancy}, Triton {tools.triton or '-'}, ptxas {tools.ptxas or '-'}"
    )
    return tag("footer", tag("p", f"{built}, {made.date}"), tag("pre", made.command, tabindex="0"))
