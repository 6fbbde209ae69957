#!/usr/bin/env bash
# One calibration run on a GPU, under five minutes of device time: measure, fit on pieces A to F, then predict the
# two runs of piece G that no fit has seen. Everything it makes is under $OUT; run again, it goes on where it stopped.
#
#   OUT=results MODEL=Qwen3-8B GPU=H200 bash calibration/gpu_run.sh
#   bash calibration/gpu_run.sh --dry-run        # CPU: the same chain on simulated times, and on torch if it is there
#
# Environment: OUT (./gpu_run), MODEL, GPU (the datasheet's key), BACKEND (torch), PYTHON, BUDGET_S (240; the rest of
# the five minutes makes the model and fits).
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu_run} MODEL=${MODEL:-Qwen3-8B} GPU=${GPU:-H200} BACKEND=${BACKEND:-torch} BUDGET_S=${BUDGET_S:-240}
PYTHON=${PYTHON:-python3}
calibration() { "$PYTHON" -m calibration "$@"; }

fit_and_judge() { # folder, gpu, model: rows.parquet holds no step of piece G
  calibration fit "$1/rows.parquet" --gpu "$2" --tp 1 --model "$3" --precision bf16 --out "$1/profile.json"
  calibration show "$1/profile.json" > "$1/profile.txt"
  calibration runs "$1" --profile "$1/profile.json" | tee "$1/runs.json"
}

case "${1:-}" in
  --dry-run)
    truth="${GPU}x1--${MODEL}--bf16--vllm"
    calibration measure --out "$OUT/fake" --backend fake --profile "$truth" --plan full --run-s 8 --budget-s "$BUDGET_S"
    fit_and_judge "$OUT/fake" "$GPU" "$MODEL"
    # Simulated times with 1 % of noise and outliers: a chain that predicts the runs kept out worse than this is broken.
    "$PYTHON" - "$OUT/fake/runs.json" <<'PY'
import json, sys
errors = [r["error_percent"] for r in json.load(open(sys.argv[1])).values()]
ttft = max(abs(e["ttft_ms"]) for e in errors)
rest = max(abs(e[k]) for e in errors for k in ("tpot_ms", "e2e_ms", "throughput_tok_s"))
print(f"dry run: the runs kept out are predicted within {ttft:.1f} % (TTFT), {rest:.1f} % (the rest)")
sys.exit(ttft > 10 or rest > 4)
PY
    if "$PYTHON" -c 'import torch' 2> /dev/null; then
      calibration measure --out "$OUT/cpu" --backend torch --device cpu --plan quick --repetitions 3 --run-s 2 --budget-s 60
    else
      echo "dry run: torch is not installed, its CPU steps are left out"
    fi
    ;;
  "")
    calibration measure --out "$OUT" --backend "$BACKEND" --model "$MODEL" --plan full --budget-s "$BUDGET_S"
    fit_and_judge "$OUT" "$GPU" "$MODEL"
    ;;
  *)
    echo "error: $1: the only option is --dry-run" >&2
    exit 2
    ;;
esac
