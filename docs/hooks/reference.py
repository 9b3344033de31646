"""The reference of the site: pages made from the code itself when the site is built, so that none can differ from it.

    reference_pages()["reference/gpus/h200-sxm.md"]       # Markdown

One page a command, the Report's parts, the keys of a spec and of [tool.occupancy], the Python API, a page a GPU.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import occupancy_cli as occ
from occupancy_cli.cli.manual import ENVIRONMENT, EXIT_CODES, CommandPage, pages


def reference_pages() -> dict[str, str]:
    """Markdown by the path of its page."""
    made = {
        "reference/commands.md": _commands(),
        "reference/report.md": _report(),
        "reference/spec.md": _spec(),
        "reference/project.md": _project(),
        "reference/api.md": _api(),
        "reference/gpus/index.md": _gpu_list(),
    }
    return made | {f"reference/gpus/{gpu.id}.md": _gpu(gpu) for gpu in occ.gpus().gpus}


# What Markdown would take for its own, outside of code.
_MARKS = re.compile(r"([\\*_<>\[\]])(?=[^`]*(?:`[^`]*`[^`]*)*$)")


def _cell(text: Any) -> str:
    """Text in a table's cell as it is, but for code in it, which is code."""
    return _MARKS.sub(r"\\\1", " ".join(str(text).split())).replace("|", "\\|")


def _code(text: Any) -> str:
    """Text as code in a table's cell; the typographic bar, as Markdown knows none that is escaped within code."""
    return f"`{' '.join(str(text).split()).replace('|', '¦')}`" if str(text) else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# --- commands ------------------------------------------------------------------------------------------------------


def _commands() -> str:
    own, *commands = pages()
    parts = [
        "# Commands\n\nMade from the commands themselves; `occupancy COMMAND --help` prints the same.\n",
        _table(("command", ""), ((f"[`{c.name}`](#{c.name})", _cell(c.text[0])) for c in commands)),
        _options(own),
        *(_command(command) for command in commands),
        "## Exit codes\n",
        _table(("code", ""), ((code, _cell(text)) for code, text in EXIT_CODES)),
        "## Environment\n",
        _table(("variable", ""), ((_code(name), _cell(text)) for name, text in ENVIRONMENT)),
    ]
    return "\n".join(parts)


def _command(page: CommandPage) -> str:
    text = "\n\n".join(_cell(paragraph) for paragraph in page.text)
    return f"## {page.name}\n\n    {page.usage}\n\n{text}\n\n{_options(page)}"


def _options(page: CommandPage) -> str:
    rows = [(_code(term), _cell(text)) for term, text in (*page.arguments, *page.options)]
    return _table(("", ""), rows)


# --- schemas -------------------------------------------------------------------------------------------------------


def _report() -> str:
    from occupancy_cli.report.schema import json_schema

    schema = json_schema()
    intro = (
        "# The Report\n\nWhat `--format json` prints and every function of the [API](api.md) returns, schema "
        "`occupancy/report/1`, part by part. Units are in the names; what is not known is null, and `unknown` or "
        "`notes` beside it says why. `occupancy schema report` prints the JSON Schema.\n"
    )
    return intro + _parts("Report", schema)


def _spec() -> str:
    from occupancy_cli.spec.kernel_spec import json_schema

    intro = (
        "# The kernel spec\n\nA YAML file beside the kernel that says what a launch passes, schema "
        "`occupancy/kernel-spec/1`. An unknown key is an error that names the file, the line and the nearest key. "
        "`occupancy init` draws one up from the source; `occupancy schema spec` prints the JSON Schema.\n"
    )
    return intro + _parts("Spec", json_schema())


def _project() -> str:
    from occupancy_cli.spec.project_settings import json_schema

    intro = (
        "# Settings of a project\n\nThe table `[tool.occupancy]` of `pyproject.toml`, for "
        "[`occupancy check`](commands.md#check). `occupancy schema project` prints the JSON Schema.\n"
    )
    return intro + _parts("[tool.occupancy]", json_schema())


def _parts(title: str, schema: dict[str, Any]) -> str:
    """A section for the schema and for each of its definitions, a row a field."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    parts = [(title, {k: v for k, v in schema.items() if k != "$defs"}), *sorted(definitions.items())]
    return "\n".join(f"\n## {name}\n\n{_part(part, definitions)}" for name, part in parts)


def _part(part: dict[str, Any], definitions: dict[str, Any]) -> str:
    said = _cell(part.get("description", ""))
    fields = part.get("properties", {})
    if not fields:
        return "\n\n".join(filter(None, (said, _type(part, definitions))))
    required = set(part.get("required", []))
    rows = []
    for name, field in fields.items():
        default = "required" if name in required else _code(repr(field["default"])) if "default" in field else ""
        rows.append((_code(name), _type(field, definitions), default, _cell(field.get("description", ""))))
    return f"{said}\n\n" + _table(("field", "type", "default", ""), rows)


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A type in a few words, with links to the parts it names."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})" if name in definitions else name
    for key in ("anyOf", "oneOf", "allOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(one, definitions) for one in field[key]))
    if "const" in field:
        return _code(repr(field["const"]))
    if "enum" in field:
        return " or ".join(_code(repr(one)) for one in field["enum"])
    kind = field.get("type", "anything")
    if kind == "array":
        if "prefixItems" in field:
            return f"list of ({', '.join(_type(one, definitions) for one in field['prefixItems'])})"
        return f"list of {_type(field.get('items', {}), definitions)}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"name → {_type(field['additionalProperties'], definitions)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title.casefold()).strip("-")


# --- Python --------------------------------------------------------------------------------------------------------


def _api() -> str:
    values = [(name, getattr(occ, name)) for name in occ.__all__ if not name.startswith("_")]
    functions = [(n, v) for n, v in values if inspect.isfunction(v)]
    errors = [(n, v) for n, v in values if inspect.isclass(v) and issubclass(v, BaseException)]
    classes = [(n, v) for n, v in values if inspect.isclass(v) and not issubclass(v, BaseException)]
    parts = [
        "# Python API\n\n`import occupancy_cli as occ`. How to use it: [From Python](../python.md); what stays as it "
        "is: [Stability](../stability.md). Each question returns a [Report](report.md).\n",
        "## Questions and functions\n",
        *(_function(name, value, "###") for name, value in functions),
        "## Classes\n",
        *(_class(name, value) for name, value in classes),
        "## Errors\n",
        *(f"### {name}\n\n{_prose(value)}\n" for name, value in errors),
    ]
    return "\n".join(parts)


def _function(name: str, function: Callable[..., Any], heading: str) -> str:
    signature = inspect.signature(function)
    shown = f"{name}{signature}"
    if len(shown) > 100:
        before, lines = "", []
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and before != "*":
                lines.append("    *,")
                before = "*"
            lines.append(f"    {parameter},")
        end = "" if signature.return_annotation is inspect.Signature.empty else f" -> {signature.return_annotation}"
        shown = "\n".join((f"{name}(", *lines, f"){end}"))
    return f"{heading} {name}\n\n```text\n{shown}\n```\n\n{_prose(function)}\n"


def _class(name: str, kind: type) -> str:
    parts = [f"### {name}\n\n{_prose(kind)}\n"]
    if dataclasses.is_dataclass(kind):
        parts.append(_table(("field", "type"), ((_code(f.name), _code(f.type)) for f in dataclasses.fields(kind))))
    for member, value in vars(kind).items():
        if not member.startswith("_") and isinstance(value, property):
            parts.append(f"#### {name}.{member}\n\n{_prose(value)}\n")
        elif not member.startswith("_") and inspect.isfunction(value):
            parts.append(_function(f"{name}.{member}", value, "####"))
    return "\n".join(parts)


def _prose(of: Any) -> str:
    """The docstring; code in it stays code."""
    text = inspect.getdoc(of) or ""
    return "\n\n".join(
        paragraph if paragraph.startswith("    ") else _MARKS.sub(r"\\\1", paragraph)
        for paragraph in text.split("\n\n")
    )


# --- GPUs ----------------------------------------------------------------------------------------------------------


def _gpu_list() -> str:
    rows = [
        (
            f"[{_cell(gpu.name)}]({gpu.id}.md)",
            _code(gpu.id),
            gpu.compute_capability,
            *(_value(gpu, name) for name in ("sm_count", "memory_bandwidth_gbps")),
            f"{gpu.limits['shared_per_cta_optin_bytes'].value:,}",
        )
        for gpu in occ.gpus().gpus
    ]
    head = ("GPU", "id", "CC", "SMs", "memory, GB/s", "shared memory per CTA, bytes")
    intro = (
        "# GPUs\n\nEvery GPU with a profile, each with the source of every number. `--gpu` takes the id, any of its "
        "other names, `sm120` for the limits of a compute capability alone, or [a profile of your own]"
        "(../../how-to/unknown-gpu.md).\n\n"
    )
    return intro + _table(head, rows)


def _value(gpu: Any, name: str) -> str:
    found = gpu.values.get(name)
    return "" if found is None else _shown(found.value) + (" (assumed)" if found.status == "assumed" else "")


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(one) for one in value)
    return f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else _cell(value)


def _gpu(gpu: Any) -> str:
    names = ", ".join(_code(name) for name in (gpu.id, *gpu.aliases))
    parts = [f"# {_cell(gpu.name)}\n\nCompute capability {gpu.compute_capability}. `--gpu` takes {names}.\n"]
    parts += [f"`{name}`: {_cell(note)}\n" for name, note in gpu.alias_notes.items()]
    sources: list[str] = []
    for title, values in (("Of this product", gpu.values), ("Limits of its compute capability", gpu.limits)):
        rows = list(_sourced(values, sources))
        parts += [f"## {title}\n", _table(("value", "", "status", "sources", "note"), rows)]
    if gpu.tensor_formats_absent:
        parts.append(f"Tensor cores do not have: {', '.join(map(_code, gpu.tensor_formats_absent))}.\n")
    parts += [f"- {_cell(note)}" for note in gpu.notes]
    parts.append("\n## Sources\n")
    parts += [f"{i}. {_source(source)}" for i, source in enumerate(sources, 1)]
    return "\n".join(parts) + "\n"


def _sourced(values: dict[str, Any], sources: list[str]) -> Iterator[tuple[str, ...]]:
    def numbers(names: list[str]) -> str:
        sources.extend(name for name in names if name not in sources)
        return " ".join(str(sources.index(name) + 1) for name in names)

    for name, value in values.items():
        notes = [_cell(value.note)] if value.note else []
        if value.chosen_because:
            notes.append(f"chosen because: {_cell(value.chosen_because)}")
        for other in value.disputed:
            origin = f" (sources {numbers(other.sources)})" if other.sources else ""
            notes.append(f"others say {_shown(other.value)}{origin}{': ' + _cell(other.note) if other.note else ''}")
        yield _code(name), _shown(value.value), value.status, numbers(value.sources), "; ".join(notes)


def _source(source: str) -> str:
    return f"<{source}>" if source.startswith(("https://", "http://")) else _cell(source)
