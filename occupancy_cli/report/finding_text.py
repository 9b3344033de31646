"""A finding in words and by a number of its own: what GitHub, GitLab, SARIF, JUnit and Markdown say in common."""

from __future__ import annotations

import hashlib
import json

from occupancy_cli.report.schema import Finding
from occupancy_cli.report.visible_text import visible


def subject(finding: Finding) -> str:
    """`kernel on GPU, BLOCK 64, num_warps 4`."""
    names = {**finding.knobs, **finding.config}
    shown = ", ".join(f"{n} {v}" for n, v in names.items() if v is not None and (n, v) != ("num_ctas", 1))
    on = f" on {finding.gpu}" if finding.gpu else ""
    return visible(f"{finding.kernel}{on}{', ' if shown else ''}{shown}")


def sentence(finding: Finding) -> str:
    """Subject and message on one line."""
    about = subject(finding)
    return f"{about}: {visible(finding.message)}" if about else visible(finding.message)


def fingerprint(finding: Finding) -> str:
    """A number that stays the same from run to run: rule, file, kernel, GPU, config and knobs; not line or message."""
    about = [finding.rule, finding.file, finding.kernel, finding.gpu, finding.config, finding.knobs]
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()
