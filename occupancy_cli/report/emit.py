"""A recommendation in the forms that people paste: exports, Triton configs, a pruning function, a lookup table.

What is emitted is static text: nothing in it tunes, measures or imports this tool at run time, so it is safe under
CUDA-graph capture. It begins with what it was made from:

    # Written by `occupancy recommend`; whether it still holds: occupancy recommend --check-emitted FILE
    # kernel: sparse_mla_decode
    # sha256: 1f0c... of its files and spec
    # gpu: H200 SXM (h200-sxm), warm L2
    # tools: Triton 3.9.0, ptxas 13.4, occupancy 0.1.0
    # error: ±9.2 %: half of the recorded ratios of two such predictions were off by at most that
    # command: occupancy recommend --batch 80,96 --gpu h200 --emit configs
    # date: 2026-01-02

JSON has the same under `made_from`. `checked` reads that head again and compares what stands below it.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import InputError
from occupancy_cli.report.choice_parts import EmittedFile
from occupancy_cli.report.visible_text import visible

if TYPE_CHECKING:
    from occupancy_cli.report.choice_parts import Recommendation
    from occupancy_cli.report.provenance import Provenance
    from occupancy_cli.report.report import Report

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


_TITLE = "# Written by `occupancy recommend`; whether it still holds: occupancy recommend --check-emitted FILE"
_MOST_CHANGED_LINES = 20


def emitted(form: str, report: Report, made: Provenance) -> str:
    """The recommendation as text of one of `FORMS`, ending in a newline; `made` stands in its head."""
    if not report.recommendations:
        raise InputError("there is no recommendation", where="--emit")
    from_what = made_from(report, made)
    body = FORMS[form](report)
    if form == "table":
        return json.dumps({**json.loads(body), "made_from": from_what}, indent=2) + "\n"
    return "\n".join([_TITLE, *(f"# {name}: {value}" for name, value in from_what.items()), body])


def made_from(report: Report, made: Provenance) -> dict[str, str]:
    """What stands at the head of all that is emitted."""
    gpu, tools, about = report.gpu, report.toolchain, report.subject
    built = [f"{name} {version}" for name, version in (("Triton", tools.triton), ("ptxas", tools.ptxas)) if version]
    error = max(found.model_error_percent for found in report.recommendations)
    said = {
        "kernel": about.kernel if about else "unknown",
        "sha256": f"{about.sha256} of its files and spec" if about and about.sha256 else "unknown: it lies in a module",
        "gpu": (f"{gpu.name} ({gpu.id})" if gpu else "unknown") + (f", {about.l2} L2" if about else ""),
        "tools": ", ".join([*built, f"occupancy {tools.occupancy}"]),
        "error": f"±{error:.1f} %: half of the recorded ratios of two such predictions were off by at most that",
        "command": made.command,
        "date": made.date,
    }
    return {name: visible(value) for name, value in said.items()}


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
    return (f"# At {at}.\n" if at else "") + "import triton\n\nCONFIGS = [\n" + "\n".join(lines) + "\n]\n"


def _prune(report: Report) -> str:
    keep = [sorted(config.items()) for config in _launchable(report)]
    rows = "".join(f"    {tuple(map(tuple, row))!r},\n" for row in keep)
    knobs = tuple(report.recommendations[0].constexpr_knobs)
    return (
        "# @triton.autotune(..., prune_configs_by={'early_config_prune': prune_configs})\n"
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
        f"_SETTINGS = {{\n{text}}}\n_BATCHES = {tuple(rows)!r}\n\n\n"
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


# --- whether it still holds ----------------------------------------------------------------------------------------


def read_head(text: str, file: str) -> dict[str, str]:
    """What stands at the head of an emitted file. `InputError` where it has none, or more than one."""
    if text.lstrip().startswith("{"):
        try:
            head = json.loads(text).get("made_from")
        except (ValueError, RecursionError) as bad:
            raise InputError(f"is no JSON: {bad}", where=file) from None
        heads = [head] if isinstance(head, dict) and all(isinstance(v, str) for v in head.values()) else []
    else:
        starts = [part.splitlines() for part in re.split(rf"^{re.escape(_TITLE)}$", text, flags=re.MULTILINE)[1:]]
        heads = [dict(_fields(lines[1:])) for lines in starts]
    if len(heads) != 1 or "command" not in heads[0]:
        problem = f"has {len(heads)} heads that `recommend --emit` writes, of one each" if heads else (
            "has no head that `recommend --emit` writes"
        )  # fmt: skip
        raise InputError(problem, where=file, hint="Write it anew: occupancy recommend ... --emit configs > FILE")
    return heads[0]


def _fields(lines: list[str]) -> list[tuple[str, str]]:
    found = []
    for line in lines:
        match = re.fullmatch(r"# (\w+): (.*)", line.rstrip())
        if match is None:
            break
        found.append((match[1], match[2]))
    return found


def checked(text: str, file: str, form: str, report: Report, made: Provenance) -> EmittedFile:
    """Whether `text` still says what would be emitted today; its layout, comments and what else stands in the file do
    not count, and neither does a head that has changed while what it heads has not."""
    now = emitted(form, report, made)
    before, after = (_said(form, each, file) for each in (text, now))
    before = {name: said for name, said in before.items() if name in after or form in ("exports", "table")}
    lines: tuple[list[str], list[str]] = ([], [])
    for side, values in zip(lines, (before, after), strict=True):
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name) and name in values:
                side.extend(values[name].splitlines())
    differences = list(difflib.unified_diff(*lines, lineterm="", n=0))[2:]
    changed = [line for line in differences if not line.startswith("@@")]
    return EmittedFile(
        file=file,
        form=form,
        holds=before == after,
        made_from=read_head(text, file),
        now=made_from(report, made),
        changed=changed[:_MOST_CHANGED_LINES],
    )


def _said(form: str, text: str, file: str) -> dict[str, str]:
    """What emitted text says, by name: its statements, its exports, its batches."""
    if form == "table":
        batches = json.loads(text).get("batches")
        given = batches if isinstance(batches, dict) else {}
        return {str(batch): f"{batch}: {json.dumps(setting)}" for batch, setting in given.items()}
    if form == "exports":
        lines = [line.strip() for line in text.splitlines()]
        return {line.partition("=")[0]: line for line in lines if line and not line.startswith("#")}
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError) as bad:
        raise InputError(f"is no Python: {bad}", where=file) from None
    return {_name_of(statement): ast.unparse(statement) for statement in statements}


def _name_of(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef):
        return statement.name
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ast.unparse(statement)
