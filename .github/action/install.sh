#!/usr/bin/env bash
# Installs occupancy, and the Triton that is asked for, into the Python that is asked for.
set -euo pipefail
python=${OCCUPANCY_PYTHON:-python3}
case "${OCCUPANCY_INSTALL:-}" in
  none) exit 0 ;;
  "") what=$GITHUB_ACTION_PATH ;;
  *) what=$OCCUPANCY_INSTALL ;;
esac
args=(--quiet --disable-pip-version-check "$what")
if [ -n "${OCCUPANCY_TRITON:-}" ]; then
  args+=("triton==$OCCUPANCY_TRITON")
fi
"$python" -m pip install "${args[@]}"
