"""A check as JUnit XML: a test case for each kernel, config and GPU, a suite for each kernel.

A broken rule is a failure, what cannot be decided an error, a config that is not in use is skipped. Form: the schema
of Jenkins' xunit plugin (junit-10.xsd), which GitLab, Azure DevOps and CircleCI read too.
"""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree

from occupancy_cli.report.check_summary import identity
from occupancy_cli.report.finding_rules import rule_of
from occupancy_cli.report.finding_text import subject
from occupancy_cli.report.schema import Finding, Report
from occupancy_cli.report.visible_text import visible

_TAGS = {"violation": "failure", "undecided": "error", "allowed": "skipped", "note": "skipped"}


def render_junit(report: Report) -> str:
    """The document's text."""
    root = ElementTree.Element("testsuites", name="occupancy check")
    total = {"tests": 0, "failures": 0, "errors": 0}
    for (file, kernel), members in groupby(sorted(report.findings, key=_suite), key=_suite):
        suite = ElementTree.SubElement(root, "testsuite", name=visible(kernel or file))
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        for _, findings in groupby(sorted(members, key=_case), key=_case):
            tag = _add_case(suite, file, list(findings))
            counts["tests"] += 1
            if tag:
                counts["skipped" if tag == "skipped" else f"{tag}s"] += 1
        for name, count in counts.items():
            suite.set(name, str(count))
        for name in total:
            total[name] += counts[name]
    for name, count in total.items():
        root.set(name, str(count))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(finding: Finding) -> tuple[str, str]:
    return (finding.source or finding.file, finding.kernel)


def _case(finding: Finding) -> str:
    return repr(identity(finding))


def _add_case(suite: ElementTree.Element, file: str, findings: list[Finding]) -> str:
    """Add one test case; the tag of what is wrong with it, or ""."""
    case = ElementTree.SubElement(suite, "testcase")
    case.set("name", subject(findings[0]) or visible(file))
    case.set("classname", visible(file) or "occupancy")
    for level, tag in _TAGS.items():
        broken = [f for f in findings if f.level == level]
        if not broken:
            continue
        for finding in broken if tag != "skipped" else broken[:1]:
            place = f"{finding.file}:{finding.line}: " if finding.file and finding.line else ""
            element = ElementTree.SubElement(case, tag, message=visible(finding.message))
            if tag != "skipped":
                element.set("type", visible(finding.rule))
                element.text = visible(f"{place}{rule_of(finding.rule).title}: {finding.message}")
        return tag
    return ""
