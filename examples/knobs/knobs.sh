#!/bin/sh
# What tunes a kernel, read from its source: nothing is imported, so nothing has to be installed.
# For a whole package: occupancy knobs vllm, or occupancy knobs path/to/a/folder
exec occupancy knobs "$(dirname "$0")/../without_dependencies/decode_attention.py" "$@"
