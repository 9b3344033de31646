"""What is said of names that no profile answers to: other makers, and NVIDIA's own that Triton cannot compile for."""

from __future__ import annotations

import pytest

from occupancy_cli.errors import UnknownNameError
from occupancy_cli.gpu.gpu_names import why_not_covered
from occupancy_cli.gpu.profiles import list_gpus, load_gpu, normalized

AMD = ["mi300x", "MI250X", "mi355x", "mi100", "gfx942", "gfx90a", "7900xtx", "rx7900xtx", "RX 7900 XTX", "Radeon VII",
       "AMD Instinct MI300X", "w7900", "9070 xt", "rx 580"]  # fmt: skip
INTEL = ["gaudi", "gaudi3", "gaudi-2", "pvc", "ponte vecchio", "max-1550", "Max 1100", "arc a770", "b580", "bmg", "xpu",
         "Intel Data Center GPU Max 1550"]  # fmt: skip


@pytest.mark.parametrize(("maker", "name"), [("AMD", n) for n in AMD] + [("Intel", n) for n in INTEL])
def test_another_maker_gets_one_sentence(maker: str, name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_gpu(name)
    assert str(caught.value).startswith(f"{name!r} is no NVIDIA GPU but {maker}'s: only NVIDIA GPUs are covered")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["p100", "Tesla P40", "p4", "gtx 1080 ti", "1080ti", "titan x", "m60", "k80", "sm61", "5.2"]
)
def test_what_triton_cannot_compile_for_gets_one_sentence(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"older than compute capability 7\.0, and Triton cannot compile for it"):
        load_gpu(name)


@pytest.mark.parametrize("name", ["l20x", "L20X", "b100", "jetson xavier", "agx-xavier"])
def test_what_nothing_is_known_of_is_told_what_to_do(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"no figures of .* a profile could state: write one .* compute capabil"):
        load_gpu(name)


def test_no_profile_is_taken_for_another_makers_or_an_old_one() -> None:
    for gpu in list_gpus():
        for name in (gpu.id, gpu.name, *gpu.aliases, *gpu.device_names):
            assert not why_not_covered(name), name
    for name in ("rtx 5091", "h1000", "a4", "5090 d", "sm140", "gb400", "rtx pro 1000"):
        assert not why_not_covered(name), name


def test_names_are_compared_without_maker_case_and_punctuation() -> None:
    assert normalized("NVIDIA GeForce RTX 5090") == normalized("rtx-5090") == "rtx5090"
