"""What configs say side by side: each sentence names the config that it speaks of."""

from __future__ import annotations

from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.observations import Variant, observations
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources

GPU = load_gpu("rtx-pro-6000")


def variant(shared_bytes: int, **values: int) -> Variant:
    resources = KernelResources(shared_bytes, num_warps=4, threads_per_cta=128, registers_per_thread=64)
    return Variant({"num_warps": 4, **values}, resources, occupancy_of(GPU, resources))


def test_two_configs_of_which_the_same_is_true_are_told_apart() -> None:
    # 70,000 bytes and 60,000 are one CTA both, whatever GROUP is; only GROUP tells the two changes apart.
    found = observations([variant(stages * 10_000, GROUP=g, num_stages=stages) for g in (1, 4) for stages in (6, 7)])
    freed = [text for text in found if "frees" in text]
    assert [text.partition(" frees")[0] for text in freed] == [
        "num_stages 7 -> 6 (num_warps 4, GROUP 1)",
        "num_stages 7 -> 6 (num_warps 4, GROUP 4)",
    ]
    assert len(set(found)) == len(found)
