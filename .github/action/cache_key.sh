#!/usr/bin/env bash
# The cache's folder and key, as lines for $GITHUB_OUTPUT. Part of the key are the versions that every result depends
# on; the content of the repository's Python files and specs makes a new cache where something changed, and the one
# before it is where that starts from.
set -euo pipefail
python=${OCCUPANCY_PYTHON:-python3}
version() {
  "$python" -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$1"
}
tools="occupancy-$(version occupancy-cli)-triton-$(version triton)"
inputs=$(git ls-files -z -- '*.py' '*.yaml' '*.yml' '*.json' 2>/dev/null | xargs -0 -r sha256sum 2>/dev/null \
  | sha256sum | cut -c 1-16)
echo "folder=${RUNNER_TEMP:?}/occupancy-cache"
echo "key=$tools-$inputs"
echo "restore=$tools-"
