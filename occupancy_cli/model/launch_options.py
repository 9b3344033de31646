"""The options of a Triton launch: their names, what Triton's NVIDIA back end takes where nothing is said, their bounds.

A launch that names none of them runs with `DEFAULTS`; the same in Triton 3.4 to 3.9 (`CUDAOptions`, `triton.Config`: a
test asks the installed Triton). Everything that reads, writes, checks or compiles options takes their names from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_cli.errors import InputError


@dataclass(frozen=True)
class LaunchOption:
    """One option: what a launch has that does not give it (None: no such limit is set), and the values it can have."""

    default: int | None
    least: int
    power_of_two: bool

    def wrong(self, value: Any) -> str:
        """What a value should have been; empty where it is one that a launch can have."""
        if value is None and self.default is None:
            return ""
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= self.least
        if whole and not (self.power_of_two and value & (value - 1)):
            return ""
        return "a power of two" if self.power_of_two else f"a whole number from {self.least} on"


OPTIONS: Mapping[str, LaunchOption] = {
    "num_warps": LaunchOption(4, 1, power_of_two=True),
    "num_stages": LaunchOption(3, 0, power_of_two=False),
    "num_ctas": LaunchOption(1, 1, power_of_two=True),
    "maxnreg": LaunchOption(None, 1, power_of_two=False),
}
LAUNCH_OPTIONS = tuple(OPTIONS)
COOPERATIVE = "launch_cooperative_grid"
"""The option of Triton's NVIDIA back end (`CUDAOptions`) by which all CTAs of a launch may wait for each other."""
BACKEND_OPTIONS = (
    COOPERATIVE,
    "launch_pdl",
    "min_shared_mem",
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "ptx_options",
    "ptx_version",
    "ir_override",
    "sched4reg",
    "default_dot_input_precision",
    "allowed_dot_input_precisions",
    "max_num_imprecise_acc_default",
    "sanitize_overflow",
    "debug",
)
"""Further options of that back end that a launch may give; which of them the installed Triton has, it says itself."""
DEFAULTS: Mapping[str, int] = {n: o.default for n, o in OPTIONS.items() if o.default is not None}


def check_launch_option(name: str, value: Any, where: str) -> None:
    """Refuse a value that no launch can have for `name`, one of `LAUNCH_OPTIONS`; any other name may have any value."""
    option = OPTIONS.get(name)
    if option is not None and (kind := option.wrong(value)):
        raise InputError(f"{name} is {value!r}, not {kind}", where=where)
