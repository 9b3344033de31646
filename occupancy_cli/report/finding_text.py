"""A finding in words and by a number of its own: what GitHub, GitLab, SARIF, JUnit and Markdown say in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from occupancy_cli.report.schema import Finding, Scalar
from occupancy_cli.report.visible_text import visible


def subject(finding: Finding) -> str:
    """`kernel on GPU, BLOCK 64, num_warps 4`."""
    shown = config_text({**finding.knobs, **finding.config})
    on = f" on {finding.gpu}" if finding.gpu else ""
    return visible(f"{finding.kernel}{on}{', ' if shown else ''}{shown}")


def config_text(values: Mapping[str, Scalar]) -> str:
    """`BLOCK 64, num_warps 4`, without what is as it always is."""
    return ", ".join(f"{n} {v}" for n, v in values.items() if v is not None and (n, v) != ("num_ctas", 1))


def sentence(finding: Finding) -> str:
    """Subject and message on one line."""
    about = subject(finding)
    return f"{about}: {visible(finding.message)}" if about else visible(finding.message)


def fingerprint(finding: Finding) -> str:
    """A number that stays the same from run to run, of rule, source, kernel, GPU, config and knobs."""
    about = [finding.rule, finding.source or finding.file, finding.kernel, finding.gpu, finding.config, finding.knobs]
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()
