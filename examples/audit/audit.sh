#!/bin/sh
# The compiled kernels in a Triton cache that could gain most from one more CTA per SM.
# Without an argument: TRITON_CACHE_DIR, else ~/.triton/cache. TorchInductor's: /tmp/torchinductor_$USER
exec occupancy audit "$@"
