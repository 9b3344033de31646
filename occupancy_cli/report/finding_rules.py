"""The rules that `check` judges by: what each asks and what to do about it, for formats that carry help texts.

max_registers_per_thread   At most so many registers per thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A rule: a title of a few words, a sentence on what it asks, and what helps when it is broken."""

    title: str
    asks: str
    helps: str


_LESS_SHARED = "Fewer num_stages, smaller tiles, or narrower operands take less shared memory."

RULES: Mapping[str, Rule] = {
    "shared-memory-cap": Rule(
        "Shared memory over the cap",
        "A config that is used must not need more shared memory per CTA than the GPU allows a launch to opt in to.",
        f"A launch over the cap fails with OutOfResources; @triton.autotune drops it without a word. {_LESS_SHARED}",
    ),
    "launch": Rule(
        "Cannot be launched",
        "A config that is used must be within every limit that the driver holds a launch to.",
        "The message names the limit: threads or registers of a CTA, the grid, the cluster, tensor memory.",
    ),
    "compiles": Rule(
        "Does not compile",
        "A config that is used must compile for the GPU.",
        "Nothing is known of a config that does not compile: the gate cannot tell, and does not pass.",
    ),
    "config": Rule(
        "Config not understood",
        "Every name in an entry of a config table must be a constexpr or a launch option of the kernel.",
        "The message gives the nearest valid name.",
    ),
    "gpu": Rule(
        "GPU not known",
        "A config table is checked on the GPU that its file's name gives; that GPU needs a profile.",
        "`occupancy gpus` lists the profiles; --hw-profiles adds a folder of your own.",
    ),
    "input": Rule(
        "Cannot be read",
        "Every file that a check names must be readable, and its kernel must load.",
        "The message names the file, the place in it and the right form. The other files are judged all the same.",
    ),
    "loads": Rule(
        "Kernel file does not load",
        "The Python file of a kernel must load, as a launch would load it.",
        "What the file needs is missing or raised an error. The other files are judged all the same.",
    ),
    "arguments": Rule(
        "Launch not known",
        "The types of a kernel's arguments must be known, from its spec or from [tool.occupancy.kernels].",
        "`occupancy init file.py:kernel` draws up a spec from the source.",
    ),
    "baseline": Rule(
        "Not as the baseline has it",
        "Nothing may be worse than the baseline has it, and what is judged must be what stands there.",
        "If the change is meant, `occupancy check --update-baseline` takes it in.",
    ),
    "pruned": Rule(
        "Left out by pruning",
        "Configs that prune_configs_by leaves out are never launched, and are not judged.",
        "They are counted, so that a function that leaves out everything is seen.",
    ),
    "source": Rule(
        "Read from the source",
        "Where a spec gives no options, those of the decorators and launches in the file are taken.",
        "Give them in a spec, or with --set, to have others.",
    ),
    "not-read": Rule(
        "Not read from the source",
        "What the source says of a launch must be read, or the config that is judged may not be the one that runs.",
        "Give the options in a spec, or with --set.",
    ),
    "max_shared_bytes": Rule(
        "Shared memory over budget", "A CTA may take at most so many bytes of shared memory.", _LESS_SHARED
    ),
    "max_registers_per_thread": Rule(
        "Registers over budget",
        "A thread may take at most so many registers.",
        "More num_warps spread a tile over more threads; maxnreg caps registers and may spill.",
    ),
    "max_spill_bytes": Rule(
        "Spills over budget",
        "A thread may spill at most so many bytes to local memory.",
        "More num_warps or smaller tiles hold fewer values per thread.",
    ),
    "min_ctas_per_sm": Rule(
        "Too few CTAs per SM",
        "At least so many CTAs must be resident on an SM.",
        "The limits of the config say which resource binds: shared memory, registers, warps or CTAs.",
    ),
    "min_wave_efficiency": Rule(
        "Launch leaves SMs idle",
        "The launch must keep at least so many percent of the GPU's CTA slots busy over all of its waves.",
        "Another tile or split makes more CTAs, or fewer waves; `occupancy recommend` compares them.",
    ),
    "max_predicted_time_us": Rule(
        "Predicted time over budget",
        "The launch, with what follows it, may be predicted to take at most so long.",
        "`occupancy recommend` looks for the setting with the shortest predicted time.",
    ),
    "max_bank_conflict_ways": Rule(
        "Bank conflicts over budget",
        "An access of shared memory may take at most so many times the wavefronts that its bytes need.",
        "The message names the line. `occupancy explain` shows every access; another tile shape, num_warps or order of "
        "dimensions gives another layout.",
    ),
    "min_warps_per_sm": Rule(
        "Too few warps per SM",
        "At least so many warps must be resident on an SM.",
        "More num_warps, or whatever lets another CTA in.",
    ),
}


def rule_of(name: str) -> Rule:
    """The rule of that name; one without more to say for a name that is not in the table."""
    return RULES.get(name) or Rule(name, f"The rule {name} must hold.", "")
