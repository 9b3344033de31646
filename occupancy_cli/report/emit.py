"""A recommendation in the forms that people paste: exports, Triton configs, a pruning function, a lookup table.

What is emitted is static text: nothing in it tunes, measures or imports this tool at run time, so it is safe under
CUDA-graph capture.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import InputError
from occupancy_cli.report.visible_text import visible

if TYPE_CHECKING:
    from occupancy_cli.report.choice_parts import Recommendation
    from occupancy_cli.report.report import Report

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def emitted(form: str, report: Report) -> str:
    """The recommendation as text of one of `FORMS`, ending in a newline."""
    if not report.recommendations:
        raise InputError("there is no recommendation", where="--emit")
    return FORMS[form](report)


def _header(report: Report) -> str:
    gpu, tools = report.gpu.name if report.gpu else "unknown GPU", report.toolchain
    return visible(f"# From `occupancy recommend`: {gpu}, Triton {tools.triton}, tool {tools.occupancy}.") + "\n"


def _exports(report: Report) -> str:
    lines = report.single_setting.exports if report.single_setting else report.recommendations[0].exports
    if not lines:
        raise InputError("no knob of this kernel is an environment variable", where="--emit exports")
    return "\n".join(lines) + "\n"


def _launchable(report: Report) -> list[dict[str, Any]]:
    """Every config that can launch at some batch, with its constexpr knobs, each once."""
    found: list[dict[str, Any]] = []
    for recommendation in report.recommendations:
        found += [c for c in recommendation.launchable if c not in found]
    return found


def _config_text(config: Mapping[str, Any]) -> str:
    constexprs = {n: v for n, v in config.items() if n not in _OPTIONS}
    options = [f"{n}={config[n]!r}" for n in _OPTIONS if n in config and (n, config[n]) != ("num_ctas", 1)]
    return f"triton.Config({constexprs!r}, {', '.join(options)})"


def _configs(report: Report) -> str:
    """The configs that can launch at the knobs recommended, the fastest predicted ones of the first batch first."""
    first = report.recommendations[0]
    knobs = report.single_setting.knobs if report.single_setting else first.knobs
    chosen = {n: knobs[n] for n in first.constexpr_knobs}
    lines = []
    for config in _launchable(report):
        if all(config[n] == v for n, v in chosen.items()):
            lines.append(f"    {_config_text({n: v for n, v in config.items() if n not in chosen})},")
    at = visible(", ".join(f"{n} {v}" for n, v in chosen.items()))
    return _header(report) + (f"# At {at}.\n" if at else "") + "CONFIGS = [\n" + "\n".join(lines) + "\n]\n"


def _prune(report: Report) -> str:
    keep = [sorted(config.items()) for config in _launchable(report)]
    rows = "".join(f"    {tuple(map(tuple, row))!r},\n" for row in keep)
    knobs = tuple(report.recommendations[0].constexpr_knobs)
    return (
        _header(report) + "# @triton.autotune(..., prune_configs_by={'early_config_prune': prune_configs})\n"
        f"_CAN_LAUNCH = frozenset((\n{rows}))\n\n\n"
        "def prune_configs(configs, named_args, **kwargs):\n"
        '    """The configs that can launch on that GPU; all of them when none is known."""\n'
        f"    options = {_OPTIONS[:3]!r}\n"
        "    given = dict(named_args, **kwargs)\n"
        f"    knobs = {{name: given[name] for name in {knobs!r} if name in given}}\n\n"
        "    def key(config):\n"
        "        values = dict(knobs, **config.kwargs)\n"
        "        values.update((name, getattr(config, name)) for name in options)\n"
        "        return tuple(sorted(values.items()))\n\n"
        "    return [config for config in configs if key(config) in _CAN_LAUNCH] or configs\n"
    )


def _setting(found: Recommendation) -> dict[str, Any]:
    extra = {} if found.nsplit is None else {"nsplit": found.nsplit}
    return {**found.knobs, **found.config, **extra}


def _rows(report: Report) -> dict[int, dict[str, Any]]:
    return {r.batch: _setting(r) for r in sorted(report.recommendations, key=lambda r: r.batch)}


def _table(report: Report) -> str:
    table = {
        "schema": "occupancy/lookup/1",
        "gpu": report.gpu.id if report.gpu else None,
        "triton": report.toolchain.triton,
        "batches": {str(batch): setting for batch, setting in _rows(report).items()},
    }
    return json.dumps(table, indent=2) + "\n"


def _function(report: Report) -> str:
    rows = _rows(report)
    text = "".join(f"    {batch}: {setting!r},\n" for batch, setting in rows.items())
    return (
        _header(report) + f"_SETTINGS = {{\n{text}}}\n_BATCHES = {tuple(rows)!r}\n\n\n"
        "def setting_for(batch):\n"
        '    """The setting of the least batch listed that is not below `batch`, the last one beyond them."""\n'
        "    for known in _BATCHES:\n"
        "        if batch <= known:\n"
        "            return _SETTINGS[known]\n"
        "    return _SETTINGS[_BATCHES[-1]]\n"
    )


FORMS: Mapping[str, Callable[[Report], str]] = {
    "exports": _exports,
    "configs": _configs,
    "prune": _prune,
    "table": _table,
    "function": _function,
}
