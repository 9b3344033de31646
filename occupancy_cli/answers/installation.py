"""`doctor` and `cache`: what this installation has and what it remembers."""

from __future__ import annotations

from occupancy_cli.answers.report_parts import mirrored
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.report.installation_parts import Cache, CacheVerification, Installation, InstalledPart
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION


def installation() -> Report:
    """A Report with every part of the toolchain."""
    from occupancy_cli.compile.health import examine

    parts = [mirrored(part, InstalledPart) for part in examine()]
    return Report(command="doctor", toolchain=Toolchain(occupancy=VERSION), installation=Installation(parts=parts))


def result_cache(*, clear: bool = False, verify: bool = False) -> Report:
    """A Report with the result cache: every result read and judged first if `verify`, or forgotten if `clear`."""
    store = ResultCache()
    verified = mirrored(store.verify(), CacheVerification) if verify else None
    removed = store.clear() if clear else None
    cache = mirrored(store.info(), Cache, removed=removed, notice=store.notice, verified=verified)
    return Report(command="cache", toolchain=Toolchain(occupancy=VERSION), cache=cache)
