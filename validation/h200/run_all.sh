#!/usr/bin/env bash
# The tool against a real GPU, in one call of at most nine minutes: see README.md beside this file.
#
#   OUT=results bash validation/h200/run_all.sh
#
# Needs an NVIDIA GPU, python3 with torch, Triton and this project's dependencies. The third-party kernels are those of
# liger-kernel and conch-triton-kernels where they can be imported. A step that fails is noted and the next one runs.
# OUT gets summary.txt, verify.jsonl.gz, a NAME.jsonl.gz of times a kernel, and logs.tar.gz.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-$here/results/run}
budget=${BUDGET:-85s}
deadline=$((SECONDS + ${LIMIT_S:-530}))
python=${PYTHON:-python3}
logs=$(mktemp -d)
mkdir -p "$out"
cd "$root" || exit 2
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export OCCUPANCY_CACHE_DIR="$logs/cache"
failed=0

say() { echo "[$SECONDS s] $*" | tee -a "$out/summary.txt"; }

# step NAME SECONDS COMMAND...: run with a limit, keep what it prints; its exit code is noted.
step() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) code
  shift 2
  if ((left < 10)); then
    say "$name: skipped, no time left"
    failed=1
    return 1
  fi
  ((limit > left)) && limit=$left
  # An interrupt first: measured points are kept either way, but the command then says what it did.
  timeout --signal=INT --kill-after=10 "$limit" "$@" >"$logs/$name.out" 2>"$logs/$name.err"
  code=$?
  say "$name: exit $code"
  [ "$(head -c 1 "$logs/$name.out")" = "{" ] || tail -n 3 "$logs/$name.out" | cut -c1-300 | tee -a "$out/summary.txt"
  if ((code != 0)); then
    failed=1
    tail -n 12 "$logs/$name.err" | cut -c1-300 | tee -a "$out/summary.txt"
  fi
  return $code
}

# verify NAME SECONDS ARGUMENTS...: a JSON line in verify.jsonl. Exit codes 1 (a difference) and 2 (something not
# decided) have theirs too.
verify() {
  local name=verify_$1 limit=$2
  shift 2
  step "$name" "$limit" "$python" -m occupancy_cli verify "$@" --format json
  "$python" - "$logs/$name.out" "$name" "$*" >>"$out/verify.jsonl" 2>>"$logs/$name.err" <<'PY'
import json, sys
with open(sys.argv[1]) as file:
    data = json.load(file)
print(json.dumps({"name": sys.argv[2], "command": "occupancy verify " + sys.argv[3], **data}))
PY
  "$python" - "$logs/$name.out" <<'PY' 2>/dev/null | tee -a "$out/summary.txt"
import json, sys
data = json.load(open(sys.argv[1]))
print(f"    {data['kernel']}: {data['kernels']} compiled kernels, {data['differences']} differ, {data['undecided']} not decided")
for launch in data["launches"]:
    wrong = {n: (f["model"], f["driver"]) for n, f in launch["figures"].items() if f["compared"] and f["model"] != f["driver"]}
    if wrong or launch["problem"]:
        print("    ", launch["kernel"], launch["config"], launch["specialization"], wrong, launch["problem"][:200])
PY
}

# measure NAME KERNEL ARGUMENTS...: a surface within the budget; compressed where it lies.
measure() {
  local name=$1 kernel=$2
  shift 2
  step "measure_$name" 170 "$python" -m occupancy_cli measure "$kernel" -o "$out/$name.jsonl" --budget "$budget" --order grid \
    --allow-shared "$@"
  [ -f "$out/$name.jsonl" ] && gzip -9 -f "$out/$name.jsonl"
}

finish() {
  [ -f "$out/verify.jsonl" ] && gzip -9 -f "$out/verify.jsonl"
  rm -rf "$logs/cache"
  tar -C "$logs" -czf "$out/logs.tar.gz" . 2>/dev/null
  say "done, $([ $failed = 0 ] && echo 'every step passed' || echo 'something failed: see above')"
}
trap finish EXIT
: >"$out/summary.txt"
say "$(date -u +%Y-%m-%d) $(uname -sr), $(nproc) cores, $(git rev-parse --short HEAD 2>/dev/null || echo 'no git')"

environment() {
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit,mig.mode.current --format=csv,noheader
  "$python" -c "import sys, torch, triton; print(f'python {sys.version.split()[0]}, torch {torch.__version__}, triton {triton.__version__}')"
}
environment 2>&1 | tee -a "$out/summary.txt"

step doctor 60 "$python" -m occupancy_cli doctor
step detect 60 "$python" -m occupancy_cli gpus --detect

verify sparse_mla_decode 120 sparse_mla_decode
verify sparse_mla_odd_shapes 120 sparse_mla_decode --set heads=20 --set topk=500
verify moe_grouped_gemm 120 moe_grouped_gemm
verify moe_clusters 60 moe_grouped_gemm --set num_ctas=2 --set block_m=64
verify gqa_decode 120 validation/kernels/gqa_decode.yaml
for spec in liger_rms_norm liger_int8_matmul conch_paged_attention; do
  package=$(sed -n 's/^kernel: \([a-z_]*\)\..*/\1/p' "validation/third_party_specs/$spec.yaml")
  if "$python" -c "import $package" 2>>"$logs/third_party.err"; then
    # torch with CUDA reserves more address space than a compile worker is given.
    verify "$spec" 90 "validation/third_party_specs/$spec.yaml" --memory-gb 0
  else
    say "verify_$spec: skipped, the package $package cannot be imported"
  fi
done

# Batches far apart first: what is there when the time runs out covers the range.
measure sparse_mla_decode sparse_mla_decode --nsplit 1,2,3,4,5,6,8,11,16,32 \
  --batch 80,1,128,16,256,48,64,8,32,112,96,4,144,160,192,2,24,132
measure gqa_decode validation/kernels/gqa_decode.yaml --nsplit 1,2,3,4,6,8,12,16,32,64 --batch 16,1,64,4,32,8,2,24,48,12
measure moe_grouped_gemm moe_grouped_gemm --batch 80,1,16,256,512,8,32,128,4,64,160,1024,2,2048

exit $failed
