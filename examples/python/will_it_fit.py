"""Which configs of a kernel fit two GPUs, and what the next CTA would take: a notebook's first cells, as a script.

python examples/python/will_it_fit.py
"""

from __future__ import annotations

import occupancy_cli as occ

CONFIGS = [{"BLOCK_T": block, "num_warps": 8, "num_stages": 2} for block in (16, 64)]


def main() -> None:
    """Print a line a config and GPU."""
    for gpu in ("rtx-pro-6000", "h200"):
        report = occ.analyze("sparse_mla_decode", gpu=gpu, configs=CONFIGS)
        for config in report.kernels[0].configs:
            taken = config.resources
            assert taken is not None, config.reason
            if config.occupancy is None or not config.fits:
                print(f"{gpu}: BLOCK_T {config.config['BLOCK_T']} is {config.over_bytes:,} bytes over the cap")
                continue
            following = config.occupancy.next_cta
            print(
                f"{gpu}: BLOCK_T {config.config['BLOCK_T']} takes {taken.shared_bytes:,} bytes, "
                f"{config.occupancy.ctas_per_sm} per SM; one more by {', '.join(following.binding)}"
            )


if __name__ == "__main__":
    main()
