#!/usr/bin/env bash
# Runs the check: annotations into the log, the summary into the job's, files where they are asked for.
set -uo pipefail
python=${OCCUPANCY_PYTHON:-python3}
args=(check --format github)
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  args+=(--output-file "markdown=$GITHUB_STEP_SUMMARY")
fi
if [ -n "${OCCUPANCY_SARIF:-}" ]; then
  args+=(--output-file "sarif=$OCCUPANCY_SARIF")
fi
if [ -n "${OCCUPANCY_JUNIT:-}" ]; then
  args+=(--output-file "junit=$OCCUPANCY_JUNIT")
fi
# Words are split at spaces, and nothing of them is expanded or run.
read -r -a paths <<<"${OCCUPANCY_PATHS:-}"
read -r -a gpus <<<"${OCCUPANCY_GPUS:-}"
read -r -a more <<<"${OCCUPANCY_ARGUMENTS:-}"
for gpu in ${gpus[@]+"${gpus[@]}"}; do
  args+=(--gpu "$gpu")
done
args+=(${more[@]+"${more[@]}"} ${paths[@]+"${paths[@]}"})
code=0
"$python" -m occupancy_cli "${args[@]}" || code=$?
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  echo "exit-code=$code" >>"$GITHUB_OUTPUT"
fi
exit "$code"
