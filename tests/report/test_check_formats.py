"""A check in the formats of other tools: what each must hold, and that nothing hostile comes through raw."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from locations import DATA

from occupancy_cli.report.check_markdown import render_check_markdown
from occupancy_cli.report.check_summary import summary_of
from occupancy_cli.report.finding_rules import RULES
from occupancy_cli.report.finding_text import fingerprint
from occupancy_cli.report.github import render_github
from occupancy_cli.report.gitlab import render_gitlab
from occupancy_cli.report.junit import render_junit
from occupancy_cli.report.sarif import render_sarif
from occupancy_cli.report.schema import Finding, Report, Toolchain
from occupancy_cli.spec.kernel_spec import Budgets

HOSTILE = "x\x1b[31m\x00\r\n::error file=x::y\u2028<script>alert(1)</script>|`$(id)` %0A 100%"
RENDERERS = (render_github, render_gitlab, render_sarif, render_junit, render_check_markdown)


def _finding(level: Any, **changes: Any) -> Finding:
    plain: dict[str, Any] = {
        "level": level,
        "kernel": "mla",
        "gpu": "H200",
        "config": {"BLOCK": 64, "num_warps": 4, "num_ctas": 1},
        "rule": "shared-memory-cap",
        "message": "102,400 bytes of shared memory per CTA are 1,024 over the cap",
        "file": "kernels/mla.yaml",
        "line": 32,
        "required": 102_400,
        "limit": 101_376,
        "unit": "bytes of shared memory",
    }
    return Finding(**{**plain, **changes})


def _report(*findings: Finding) -> Report:
    return Report(command="check", toolchain=Toolchain(occupancy="1.2.3"), findings=list(findings))


SMALL = _report(
    _finding("violation"),
    _finding("ok", config={"BLOCK": 32, "num_warps": 4}),
    _finding("ok", config={"BLOCK": 32, "num_warps": 4}, rule="min_ctas_per_sm"),
    _finding("undecided", kernel="rope", file="rope.py", line=None, rule="compiles", message="not done after 120 s"),
    _finding("note", config={"BLOCK": 128}),
    _finding(
        "undecided", kernel="", gpu="", config={}, file="bad.yaml", line=3, rule="input", message="not valid YAML"
    ),
)


def test_every_rule_that_check_uses_has_help() -> None:
    limits = {n for n in Budgets.model_fields if n.startswith(("max_", "min_"))}
    used = {"shared-memory-cap", "launch", "compiles", "config", "gpu", "input", "loads", "arguments", "baseline"}
    assert limits | used <= set(RULES)


def test_summary_by_hand() -> None:
    # Judged: mla 64 (violation), mla 32 (two rules hold: one config), rope, mla 128 (note), the file that is no YAML.
    assert summary_of(SMALL.findings).line(12.34) == (
        "2 kernels · 4 configs · 1 GPU: 1 ok, 1 over budget, 2 unknown, 1 not in use in 12.3 s"
    )


def test_a_config_counts_by_its_worst_finding() -> None:
    both = [_finding("ok", rule="min_ctas_per_sm"), _finding("violation")]
    assert (summary_of(both).ok, summary_of(both).violations, summary_of(both).judged) == (0, 1, 1)


def test_github_annotations() -> None:
    lines = render_github(SMALL).splitlines()
    assert lines[0] == (
        "::error file=kernels/mla.yaml,line=32,title=Shared memory over the cap::"
        "mla on H200, BLOCK 64, num_warps 4: 102,400 bytes of shared memory per CTA are 1,024 over the cap"
    )
    assert lines[1].startswith("::warning file=rope.py,title=Does not compile::rope on H200")
    assert lines[2] == "::warning file=bad.yaml,line=3,title=Cannot be read::not valid YAML"
    assert lines[3:] == [summary_of(SMALL.findings).line()]


def test_gitlab_code_quality() -> None:
    issues = json.loads(render_gitlab(SMALL))
    assert [(i["severity"], i["check_name"], i["location"]) for i in issues] == [
        ("major", "shared-memory-cap", {"path": "kernels/mla.yaml", "lines": {"begin": 32}}),
        ("minor", "compiles", {"path": "rope.py", "lines": {"begin": 1}}),
        ("minor", "input", {"path": "bad.yaml", "lines": {"begin": 3}}),
    ]
    assert len({i["fingerprint"] for i in issues}) == 3


@pytest.mark.parametrize("report", [SMALL, _report(), _report(_finding("violation", kernel=HOSTILE, file=HOSTILE))])
def test_sarif_holds_to_the_published_schema(report: Report) -> None:
    schema = json.loads((DATA / "schemas" / "sarif-schema-2.1.0.json").read_text())
    log = json.loads(render_sarif(report))
    jsonschema.validate(log, schema)


def test_sarif_results() -> None:
    run = json.loads(render_sarif(SMALL))["runs"][0]
    assert [r["level"] for r in run["results"]] == ["error", "warning", "note", "warning"]
    for result in run["results"]:
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert rule["help"]["text"]


def test_junit_counts_and_places() -> None:
    root = ElementTree.fromstring(render_junit(SMALL))
    assert root.attrib == {"name": "occupancy check", "tests": "5", "failures": "1", "errors": "2"}
    cases = {c.get("name"): [e.tag for e in c] for c in root.iter("testcase")}
    assert cases == {
        "mla on H200, BLOCK 64, num_warps 4": ["failure"],
        "mla on H200, BLOCK 32, num_warps 4": [],
        "mla on H200, BLOCK 128": ["skipped"],
        "rope on H200, BLOCK 64, num_warps 4": ["error"],
        "bad.yaml": ["error"],
    }
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "shared-memory-cap"
    assert (failure.text or "").startswith("kernels/mla.yaml:32: Shared memory over the cap: 102,400 bytes")


def test_markdown_table() -> None:
    text = render_check_markdown(SMALL)
    assert text.startswith("**2 kernels · 4 configs · 1 GPU: 1 ok, 1 over budget, 2 unknown, 1 not in use**\n")
    assert "| over budget | kernels/mla.yaml:32 | mla on H200, BLOCK 64, num\\_warps 4: 102,400 bytes" in text


@pytest.mark.parametrize("render", RENDERERS)
def test_nothing_hostile_comes_through(render: Any) -> None:
    texts = {"kernel": HOSTILE, "gpu": HOSTILE, "message": HOSTILE, "file": HOSTILE, "config": {HOSTILE: HOSTILE}}
    levels = ("violation", "undecided", "note", "ok")
    text = render(_report(*(_finding(level, rule=rule, **texts) for level in levels for rule in RULES)))
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u2028" not in text
    assert not [line for line in text.splitlines() if line.startswith("::error file=x::")]
    assert "%0A" not in text or render is not render_github
    if render in (render_junit, render_check_markdown):
        assert "<script>" not in text


def test_fingerprints_tell_findings_apart_and_stay() -> None:
    assert fingerprint(_finding("violation")) == fingerprint(_finding("undecided", line=40, message="other words"))
    others = [{"rule": "launch"}, {"file": "b.yaml"}, {"kernel": "b"}, {"gpu": "B200"}, {"config": {"BLOCK": 32}}]
    prints = {fingerprint(_finding("violation", **other)) for other in [{}, *others]}
    assert len(prints) == 1 + len(others)
