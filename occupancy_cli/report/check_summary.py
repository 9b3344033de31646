"""What a check came to, counted: the last line of every format.

    14 kernels · 96 configs · 2 GPUs: 91 ok, 3 over budget, 2 unknown

A config of a kernel on a GPU counts once, by the worst of its findings. Notes (configs that are not declared as used)
are counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.report.schema import Finding, Level

_WORST_FIRST: tuple[Level, ...] = ("violation", "undecided", "ok", "note")


@dataclass(frozen=True)
class CheckSummary:
    """Counts: `ok`, `violations`, `undecided` and `notes` add up to `judged`, configs of kernels on GPUs."""

    kernels: int
    configs: int
    gpus: int
    ok: int
    violations: int
    undecided: int
    notes: int

    @property
    def judged(self) -> int:
        """Configs of kernels on GPUs."""
        return self.ok + self.violations + self.undecided + self.notes

    def line(self, seconds: float | None = None) -> str:
        """The summary in one line."""
        counts = [f"{self.ok} ok", f"{self.violations} over budget", f"{self.undecided} unknown"]
        if self.notes:
            counts.append(f"{self.notes} not in use")
        took = "" if seconds is None else f" in {seconds:.1f} s"
        what = (_counted(self.kernels, "kernel"), _counted(self.configs, "config"), _counted(self.gpus, "GPU"))
        return f"{' · '.join(what)}: {', '.join(counts)}{took}"


def summary_of(findings: Sequence[Finding]) -> CheckSummary:
    """The counts of `findings`. A file that could not be read has no kernel: it counts as one thing that is unknown."""
    worst: dict[tuple[object, ...], int] = {}
    for finding in findings:
        rank = _WORST_FIRST.index(finding.level)
        which = identity(finding)
        worst[which] = min(worst.get(which, rank), rank)
    levels = [_WORST_FIRST[rank] for rank in worst.values()]
    named = [f for f in findings if f.kernel]
    return CheckSummary(
        kernels=len({(f.file, f.kernel) for f in named}),
        configs=len({identity(f)[:2] + identity(f)[3:] for f in named}),
        gpus=len({f.gpu for f in named if f.gpu}),
        ok=levels.count("ok"),
        violations=levels.count("violation"),
        undecided=levels.count("undecided"),
        notes=levels.count("note"),
    )


def identity(finding: Finding) -> tuple[object, ...]:
    """What a finding is about: file, kernel, GPU, config and knobs."""
    names = (*finding.knobs.items(), *finding.config.items())
    return (finding.file, finding.kernel, finding.gpu, tuple(sorted((n, repr(v)) for n, v in names)))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
