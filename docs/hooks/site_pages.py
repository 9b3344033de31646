"""What MkDocs asks while it builds the site: pages made from the code, and links that leave the folder `docs`.

A page links to files of the repository as it does when it is read there. Documents among them (CHANGELOG.md, studies of
`validation`, ...) become pages of the site; of a link to any other file its text and path stay. The flow chart of the
architecture is drawn as HTML, since the usual way fetches a library when the page is looked at.
"""

from __future__ import annotations

import html
import itertools
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HOOKS = Path(__file__).resolve().parent
ROOT = HOOKS.parents[1]

# Documents of the repository that are pages: where they lie there, and the page.
DOCUMENTS = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "hw_profiles/README.md": "reference/profiles.md",
    "validation/README.md": "validation/index.md",
    **{
        f"validation/{path.name}": f"validation/{path.name}" for path in sorted((ROOT / "validation").glob("[a-z]*.md"))
    },
    **{
        f"validation/h200/{path}": f"validation/h200/{path}"
        for path in ("accesses.md", "surfaces/README.md", "kinds/README.md")
        if (ROOT / "validation" / "h200" / path).is_file()
    },
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_CHART = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """The pages of `docs`, of the repository's documents, and those that are made."""
    sys.path[:0] = [str(ROOT), str(HOOKS)]
    from reference import reference_pages

    made = {page: (ROOT / document).read_text(encoding="utf-8") for document, page in DOCUMENTS.items()}
    for path, text in {**made, **reference_pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that lead out of the folder, and the flow chart."""
    return with_links(_CHART.sub(lambda chart: drawn(chart[1]), markdown), page.file.src_uri)


def with_links(markdown: str, page: str) -> str:
    """The text of `page`, whose links to other files of the repository lead to their pages, or nowhere."""
    homes = {made: document for document, made in DOCUMENTS.items()}
    folder = posixpath.dirname(homes.get(page, f"docs/{page}"))

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            goal = path.removeprefix("docs/")
        elif path in DOCUMENTS:
            goal = DOCUMENTS[path]
        elif (ROOT / path).exists():
            return text if path in text else f"{text} (`{path}`)"
        else:
            return found[0]  # a page that is made, or none: MkDocs says so
        return f"[{text}]({posixpath.relpath(goal, posixpath.dirname(page) or '.')}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def drawn(chart: str) -> str:
    """A flow chart whose lines chain nodes, `a & b --> c`, as HTML, each node as far down as its longest way in."""
    names = dict(re.findall(r'^\s*(\w+)\["(.*?)"\]', chart, re.MULTILINE))
    above: dict[str, set[str]] = {}
    for line in chart.splitlines():
        if "-->" in line:
            chain = [[name.strip() for name in part.split("&")] for part in line.split("-->")]
            for upper, lower in itertools.pairwise(chain):
                for name in lower:
                    above.setdefault(name, set()).update(upper)

    def depth(name: str) -> int:
        return max((depth(one) + 1 for one in above.get(name, ())), default=0)

    ranks = [list(rank) for _, rank in itertools.groupby(sorted(names, key=depth), key=depth)]
    rows = []
    for rank in ranks:
        boxes = "".join(f"<div>{html.escape(names[name])}</div>" for name in rank)
        rows.append(f'<div class="rank">{boxes}</div>')
    return '<div class="ranks">' + '<div class="arrow">↓</div>'.join(rows) + "</div>"
