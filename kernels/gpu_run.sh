#!/usr/bin/env bash
# One run of the kernels on a GPU, under ten minutes: verify first, then time every graph strategy, then a profile and
# the experiment on it. Everything it makes is under $OUT; run again, it goes on where it stopped.
#
#   OUT=results GPU=H200 bash kernels/gpu_run.sh
#   bash kernels/gpu_run.sh --dry-run        # CPU: interpreted kernels, then the same chain on made-up times
#
# Needs torch and triton on the GPU's machine; numpy, and nothing else, for verify and bench. Environment: OUT
# (./gpu_run/kernels), GPU (the datasheet's key), PYTHON, BUDGET_S (360: for the timing alone).
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu_run/kernels} GPU=${GPU:-H200} PYTHON=${PYTHON:-python3} BUDGET_S=${BUDGET_S:-360}
mkdir -p "$OUT"

profile_and_experiment() { # rows, name, further options of the experiment
  if ! "$PYTHON" -c 'import scipy, pandas, simpy, hydra' 2> /dev/null; then
    echo "no simulator on this machine; at home: python -m calibration kernels $1 --gpu $GPU --out profile.json"
    return
  fi
  for variant in versions guard; do
    "$PYTHON" -m calibration kernels "$1" --gpu "$GPU" --variant "$variant" --out "$OUT/$2-$variant.json" \
      | tee "$OUT/$2-$variant.txt"
  done
  "$PYTHON" -m experiments run experiment=polygraph "profile=$OUT/$2-versions.json" model=null gpu=null \
    "store=$OUT/runs" "${@:3}" > "$OUT/$2-experiment.txt"
  tail -n 1 "$OUT/$2-experiment.txt"
}

case "${1:-}" in
  --dry-run)
    TRITON_INTERPRET=1 "$PYTHON" -m kernels interpret | tee "$OUT/interpret.txt"
    "$PYTHON" -m kernels bench --dry-run --out "$OUT/made-up.jsonl" --repeats 20
    profile_and_experiment "$OUT/made-up.jsonl" made-up load.workflows=40 seeds=2
    ;;
  "")
    if [ ! -s "$OUT/verify.json" ]; then
      "$PYTHON" -m kernels verify --json > "$OUT/verify.part" || { cat "$OUT/verify.part"; exit 1; }
      mv "$OUT/verify.part" "$OUT/verify.json"
    fi
    "$PYTHON" -m kernels bench --out "$OUT/rows.jsonl" --budget-s "$BUDGET_S"
    profile_and_experiment "$OUT/rows.jsonl" measured
    ;;
  *)
    echo "error: $1: the only option is --dry-run" >&2
    exit 2
    ;;
esac
