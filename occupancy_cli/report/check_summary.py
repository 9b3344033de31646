"""What a check came to, counted: the last line of every format.

    14 kernels · 96 configs · 2 GPUs: 91 ok, 3 over budget, 2 unknown in 12.3 s

A config of a kernel on a GPU counts once, by the worst of its findings; a file or kernel that could not be judged
counts as one thing that is unknown. Counted apart are configs that are not declared as used, what is unknown and was
allowed to be, configs that the kernel's own pruning leaves out, and helpers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.report.schema import Finding, Level, Report

_WORST_FIRST: tuple[Level, ...] = ("violation", "undecided", "allowed", "ok", "note")


@dataclass(frozen=True)
class CheckSummary:
    """Counts: `ok`, `violations`, `undecided`, `allowed` and `notes` add up to `judged`.

    That is configs of kernels on GPUs, and whatever could not be judged at all.
    """

    kernels: int
    configs: int
    gpus: int
    ok: int
    violations: int
    undecided: int
    allowed: int
    notes: int

    @property
    def judged(self) -> int:
        """Everything that counts once."""
        return self.ok + self.violations + self.undecided + self.allowed + self.notes

    def words(self) -> list[str]:
        """What was judged, by how it came out."""
        counts = [f"{self.ok:,} ok", f"{self.violations:,} over budget", f"{self.undecided:,} unknown"]
        if self.allowed:
            counts.append(f"{self.allowed:,} unknown and allowed")
        if self.notes:
            counts.append(f"{self.notes:,} not in use")
        return counts

    def line(self, seconds: float | None = None) -> str:
        """The summary in one line."""
        took = "" if seconds is None else f" in {seconds:.1f} s"
        what = (counted(self.kernels, "kernel"), counted(self.configs, "config"), counted(self.gpus, "GPU"))
        return f"{' · '.join(what)}: {', '.join(self.words())}{took}"


def last_line(report: Report) -> str:
    """The last line of a check in every format that people read: the counts, and the seconds where they are known."""
    return summary_of(report.findings).line(None if report.check is None else report.check.seconds)


def left_out(report: Report) -> list[str]:
    """What was not judged and need not be, a line each."""
    run = report.check
    if run is None:
        return []
    lines = []
    if run.helpers:
        lines.append(
            f"{counted(run.helpers, 'helper')} skipped: only other kernels call them, and nothing launches them"
        )
    if run.unchanged:
        lines.append(f"{counted(run.unchanged, 'kernel')} not judged: nothing that they are made from changed")
    if run.pruned:
        lines.append(f"{counted(run.pruned, 'config')} not judged: prune_configs_by leaves them out")
    return lines


def summary_of(findings: Sequence[Finding]) -> CheckSummary:
    """The counts of `findings`. A file that could not be read has no kernel: it counts as one thing that is unknown."""
    worst: dict[tuple[object, ...], int] = {}
    named = [f for f in findings if f.kernel]
    # Notes on a kernel as a whole are about no config.
    for finding in (f for f in findings if f.level != "note" or f.config):
        rank = _WORST_FIRST.index(finding.level)
        which = identity(finding)
        worst[which] = min(worst.get(which, rank), rank)
    levels = [_WORST_FIRST[rank] for rank in worst.values()]
    return CheckSummary(
        kernels=len({(f.source or f.file, f.kernel) for f in named}),
        configs=len({identity(f)[:2] + identity(f)[3:] for f in named if f.config}),
        gpus=len({f.gpu for f in named if f.gpu}),
        ok=levels.count("ok"),
        violations=levels.count("violation"),
        undecided=levels.count("undecided"),
        allowed=levels.count("allowed"),
        notes=levels.count("note"),
    )


def identity(finding: Finding) -> tuple[object, ...]:
    """What a finding is about: source, kernel, GPU, config and knobs."""
    names = (*finding.knobs.items(), *finding.config.items())
    return (finding.source or finding.file, finding.kernel, finding.gpu, tuple(sorted((n, repr(v)) for n, v in names)))


def counted(number: int, noun: str) -> str:
    """`2 configs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
