"""What a GPU says to a cluster of CTAs (num_ctas > 1): refused, doubtful, or launched with its count not known.

Clusters are placed whole within one GPC, and how many SMs each GPC of a board has is published nowhere.
"""

from __future__ import annotations

from occupancy_cli.gpu.profiles import ComputeCapability

# CUDA's non-portable maximum on the GPUs that have one (Hopper and Blackwell tuning guides, "Thread Block Clusters").
LARGEST_CLUSTER = 16


def cluster_refusal(limits: ComputeCapability, num_ctas: int) -> str:
    """Why a cluster of `num_ctas` CTAs cannot launch on this compute capability; "" when no known limit forbids it."""
    if num_ctas == 1:
        return ""
    if not limits.cluster_supported:
        return f"compute capability {limits.compute_capability} has no clusters, so num_ctas is 1"
    most = limits.max_cluster_size_nonportable
    if most is not None and num_ctas > most:
        return f"a cluster of {num_ctas} CTAs is over the limit of {most} (CC {limits.compute_capability})"
    if num_ctas > LARGEST_CLUSTER:
        return f"a cluster of {num_ctas} CTAs is over {LARGEST_CLUSTER}, the largest that any GPU takes"
    return ""


def cluster_doubt(limits: ComputeCapability, num_ctas: int) -> str:
    """Why it is not certain that a cluster of `num_ctas` CTAs launches, where nothing known forbids it; "" when it is.

    Up to the portable size every GPU of the compute capability takes it; beyond, only what is documented.
    """
    if num_ctas == 1 or cluster_refusal(limits, num_ctas):
        return ""
    certain = [n for n in (limits.max_cluster_size_nonportable, limits.max_cluster_size_portable) if n is not None]
    entry = limits.provenance.get("max_cluster_size_portable")
    if entry is not None and limits.max_cluster_size_nonportable is None:
        certain += [d.value for d in entry.disputed if isinstance(d.value, int)]
        least = min(certain)
    else:
        least = max(certain, default=1)
    if num_ctas <= least:
        return ""
    return f"whether compute capability {limits.compute_capability} takes a cluster of {num_ctas} CTAs is not certain"


def cluster_unknown(limits: ComputeCapability, num_ctas: int) -> str:
    """What is not known of a cluster of `num_ctas` CTAs (at least 2) that nothing known forbids."""
    text = (
        f"the {num_ctas} CTAs of a cluster share one GPC, and how many SMs each GPC has is not published: "
        "the number of resident clusters is not known"
    )
    portable = limits.max_cluster_size_portable
    if portable is not None and num_ctas > portable and limits.max_cluster_size_nonportable is None:
        return (
            f"a cluster of {num_ctas} is over the portable size of {portable}, and no larger one is documented; {text}"
        )
    entry = limits.provenance.get("max_cluster_size_portable")
    doubted = [d.value for d in entry.disputed if isinstance(d.value, int)] if entry else []
    if doubted and min(doubted) < num_ctas:
        return (
            f"the largest cluster of CC {limits.compute_capability} is disputed ({portable} or {min(doubted)}); {text}"
        )
    return text
