"""Names of GPUs as people write them: how they are compared, and what is said of one that no profile can answer to.

normalized("NVIDIA GeForce RTX 5090")    # "rtx5090"
parse_compute_capability("sm_120a")      # "12.0"
why_not_covered("mi300x")                # "mi300x is AMD's: only NVIDIA GPUs are covered, ..."
"""

from __future__ import annotations

import re

_MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro)\b")
_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[ _-]?(\d{1,2})\.?(\d)[af]?")

# Of names that are no profile's: the maker, by patterns of normalized names.
_OTHER_MAKERS = (
    ("AMD", r"(amd|radeon|instinct|firepro).*|mi\d{2,3}[a-z]?|gfx\d+[a-f]?|(pro)?w[67]\d00"),
    ("AMD", r"(rx)?\d{4}(xtx|xt|gre)|rx\d{3,4}"),
    ("Intel", r"(intel|gaudi|habana|pontevecchio|arc|battlemage|alchemist|falconshores|crescentisland).*|xehpc"),
    ("Intel", r"hpu\d*|pvc|xpu|(datacentergpu)?max1[15]\d0|(arc)?[ab][3-7][1-8]0|bmgg?\d*|dg2|flex1[47]0"),
    ("Apple", r"apple.*|m[1-5](pro|max|ultra)|mps|metal"),
    ("Google", r"(google)?tpu.*"),
    ("Huawei", r"(huawei|ascend|kunpeng).*|910[abc]?"),
)
_OTHERS = tuple((maker, re.compile(pattern)) for maker, pattern in _OTHER_MAKERS)

# NVIDIA's before compute capability 7.0, for which Triton has no code generation.
_BEFORE_VOLTA = re.compile(
    r"(gtx|titan|mx)?(9[5-8]0|10[1-8]0|7[5-9]0)(ti|m)?|titan(x|xp|black|z)?|"
    r"p(4|6|40|100|[1-6]000|400)([a-z0-9]*gb)?|gp100|m(4|6|10|40|60|[2-6]000)|k(20|40|80|10)[xm]?|"
    r"(jetson)?(tx[12]|nano|tk1)|kepler|maxwell|pascal"
)
# NVIDIA's that people name, and for which no figure was found that a profile could state, even as assumed.
_WITHOUT_FIGURES = re.compile(r"(nvidia)?l20[xy]|b30a?|b40|b100|(jetson|agx)*xavier(nx)?|thort4000|jetsonthort4000")
_OLD_CAPABILITY = re.compile(r"(?:sm|compute|cc)?([2356])(\d)")


def normalized(name: str) -> str:
    """`name` as names are compared: lower case, letters and digits alone, without NVIDIA, GeForce, Tesla, Quadro."""
    folded = re.sub(r"[^a-z0-9]+", " ", name.casefold())
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", folded) or folded)


def parse_compute_capability(name: str) -> str | None:
    """ "12.0" for `sm120`, `sm_120a`, `compute_120`, `12.0` or `120`; None when `name` is not of that form."""
    match = _CAPABILITY.fullmatch(name.strip().casefold())
    return f"{int(match[1])}.{match[2]}" if match else None


def why_not_covered(name: str) -> str:
    """One sentence for a GPU that is not NVIDIA's, that Triton cannot compile for, or that is not known; else ""."""
    wanted = normalized(name)
    for maker, pattern in _OTHERS:
        if pattern.fullmatch(wanted):
            return (
                f"{name!r} is no NVIDIA GPU but {maker}'s: only NVIDIA GPUs are covered, as occupancy rules, binaries "
                "and profiles here are NVIDIA's"
            )
    old = _OLD_CAPABILITY.fullmatch(wanted)
    if old or _BEFORE_VOLTA.fullmatch(wanted):
        which = f"{name!r}, compute capability {old[1]}.{old[2]}," if old else repr(name)
        return f"{which} is older than compute capability 7.0, and Triton cannot compile for it: no profile is kept"
    if _WITHOUT_FIGURES.fullmatch(wanted):
        return (
            f"no figures of {name!r} were found that a profile could state: write one (hw_profiles/README.md), or name "
            "its compute capability for occupancy alone"
        )
    return ""
