"""Kernels as Triton compiled them, recorded, for tests that read TTGIR and SASS (`data/kernels/README.md`)."""

import functools
import json
import lzma

from locations import DATA


@functools.cache
def recorded(name: str = "sparse_mla_decode_h200") -> dict[str, dict[str, object]]:
    """Variant -> {ttgir, sass, resources} of `data/kernels/NAME.json.xz`."""
    return json.loads(lzma.decompress((DATA / "kernels" / f"{name}.json.xz").read_bytes()))


def split(block_h: int, block_t: int, num_warps: int, once: bool = False) -> dict[str, object]:
    """The split kernel of a config, for several tiles a split or for one."""
    name = (
        f"split_kernel NOPE=448 NOPE_PAD=512 ROPE=64 BLOCK_H={block_h} BLOCK_T={block_t} num_warps={num_warps} "
        f"num_stages=2{' tiles_per_split=1' if once else ''}"
    )
    return recorded()[name]
