"""What a client may read: the specs of shipped kernels, GPU profiles, this session's Reports, the guide, the schemas.

occupancy://specs/sparse_mla_decode    its YAML
occupancy://gpus/h200                  a Report of `gpus`: every value with its source and status
occupancy://reports/3                  the whole Report of the third call
occupancy://guide                      what `occupancy guide` prints
occupancy://schemas/report             the JSON Schema of a Report; schemas/spec that of a spec
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from occupancy_cli.api import questions
from occupancy_cli.data_files import guide_text, shipped_dir
from occupancy_cli.errors import OccupancyError, unknown_name
from occupancy_cli.mcp_server.tools import REPORTS
from occupancy_cli.plan.kernel_input import shipped_specs
from occupancy_cli.report.schema import PUBLISHED
from occupancy_cli.spec.kernel_spec import json_schema

SCHEME = "occupancy://"
JSON, YAML, MARKDOWN = "application/json", "application/yaml", "text/markdown"
KEPT_REPORTS = 64
TEMPLATES = {
    f"{REPORTS}{{number}}": ("A Report of this session", JSON),
    f"{SCHEME}gpus/{{id}}": ("A GPU, every value with its source", JSON),
    f"{SCHEME}specs/{{name}}": ("The spec of a shipped kernel", YAML),
}


@dataclass(frozen=True)
class Listed:
    """A resource as a client is told of it."""

    uri: str
    title: str
    mime_type: str


class Reports:
    """The Reports of a session, by URI: the last `KEPT_REPORTS` of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._count = 0

    def keep(self, title: str, whole: str) -> str:
        """Keep the JSON of a Report; its URI."""
        self._count += 1
        uri = f"{REPORTS}{self._count}"
        self._kept[uri] = (title, whole)
        while len(self._kept) > KEPT_REPORTS:
            self._kept.popitem(last=False)
        return uri

    def get(self, uri: str) -> str | None:
        """The JSON of a Report; None for one that there is not, or no longer."""
        found = self._kept.get(uri)
        return None if found is None else found[1]

    def listed(self) -> Iterator[Listed]:
        """The Reports, the newest first."""
        for uri, (title, _) in reversed(self._kept.items()):
            yield Listed(uri, title, JSON)


def listed(reports: Reports) -> list[Listed]:
    """Everything that can be read now."""
    found = [Listed(f"{SCHEME}guide", "The order of questions to ask", MARKDOWN)]
    found += [
        Listed(f"{SCHEME}specs/{path.stem}", f"Spec of the shipped {path.stem}", YAML) for path in shipped_specs()
    ]
    found += [Listed(f"{SCHEME}schemas/{name}", f"JSON Schema of a {name}", JSON) for name in ("report", "spec")]
    found += reports.listed()
    found += [Listed(f"{SCHEME}gpus/{name}", f"GPU {name}", JSON) for name in _gpu_ids()]
    return found


def _gpu_ids() -> list[str]:
    return sorted(path.stem for path in shipped_dir("hw_profiles").glob("*.yaml"))


def read(uri: str, reports: Reports) -> tuple[str, str]:
    """(text, MIME type) of a resource; an `OccupancyError` with the nearest ones for one that there is not."""
    if (whole := reports.get(uri)) is not None:
        return whole, JSON
    kind, _, name = uri.removeprefix(SCHEME).partition("/")
    if uri == f"{SCHEME}guide":
        return guide_text(), MARKDOWN
    if kind == "specs" and (path := {p.stem: p for p in shipped_specs()}.get(name)) is not None:
        return path.read_text(encoding="utf-8"), YAML
    if kind == "schemas" and name in ("report", "spec"):
        return PUBLISHED.read_text(encoding="utf-8") if name == "report" else json.dumps(json_schema(), indent=2), JSON
    if kind == "gpus" and not name.casefold().endswith((".yaml", ".yml")):
        return questions.gpus(name).to_json(), JSON
    if uri.startswith(REPORTS):
        raise OccupancyError(f"this session has no {uri}", hint=f"It keeps the last {KEPT_REPORTS} Reports.")
    raise unknown_name("resource", uri, [one.uri for one in listed(reports)])
