"""`plot`: one chart, from the answer of the question that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.answers.page import explained_configs, surface_of
from occupancy_cli.answers.recommend import recommend
from occupancy_cli.answers.sweep import sweep
from occupancy_cli.answers.workload import Workload
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.report.html import charts
from occupancy_cli.report.html.charts import Chart
from occupancy_cli.report.terminal.text import pairs
from occupancy_cli.report.visible_report import visible_part
from occupancy_cli.spec.kernel_spec import ConfigTable
from occupancy_cli.spec.settings import Setting

_WHY_NOT = {
    "limits": "no config of it can launch",
    "map": "it uses no shared memory",
    "waves": "its waves are not known",
    "roofline": "what an iteration takes of each unit is not known",
    "sweep": "a line needs two batches or more: --sweep 8:128:8",
    "surface": "its spec derives no `nsplit` of several values over two batches or more",
}


def drawing(
    what: str,
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    batches: Sequence[int],
    swept: Sequence[int],
    cold: bool,
) -> Chart:
    """The chart of that name, titled with the kernel and the GPU. `InputError` where there is nothing to draw."""
    if isinstance(given.spec.configs, ConfigTable):
        raise InputError("a picture is of a kernel's configs, not of config tables", where=given.source)
    at_batch = {**sets, **({"batch": Setting(tuple(batches[:1]), "--batch")} if batches else {})}
    asked, over = Workload(tuple(batches[:1]), cold=cold), Workload(tuple(swept), cold=cold)
    about = ""
    found: Chart | None
    if what == "limits":
        found = charts.limits_chart(visible_part(analyze(given, gpu, service, at_batch)).kernels[0], 0)
    elif what == "map":
        first = recommend(given, gpu, service, sets, asked).recommendations[0]
        knobs = {n: Setting((v,), "recommended") for n, v in first.knobs.items() if n not in sets}
        named = {**first.knobs, **first.config}
        [config] = explained_configs(
            given, gpu, service, {**at_batch, **knobs}, ",".join(f"{n}={v}" for n, v in named.items())
        )
        found = charts.memory_chart(visible_part(config), 0)
        about = f", {pairs({n: v for n, v in named.items() if (n, v) != ('num_ctas', 1)})}"
    elif what in ("waves", "roofline"):
        first = visible_part(recommend(given, gpu, service, sets, asked).recommendations[0])
        found = charts.waves_chart(first) if what == "waves" else charts.terms_chart(first)
    else:
        points = sweep(given, gpu, service, sets, over).sweep
        found = (
            charts.time_chart(visible_part(points))
            if what == "sweep"
            else charts.surface_chart(visible_part(surface_of(given, gpu, service, sets, over, points)))
        )
    if found is None:
        raise InputError(f"there is nothing to draw: {_WHY_NOT[what]}", where=f"plot {what} {given.source}")
    name = visible_part(f"{given.name} on {gpu.name}")
    return replace(found, of=f"{name}{about}")
