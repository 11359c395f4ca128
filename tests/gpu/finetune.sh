#!/usr/bin/env bash
# tests/gpu/finetune.sh DATA.h5 [options of the suite, as --model DIR]
# Fine-tuning on one GPU: ops against PyTorch, 40 steps of all six cases, the published recipe, an
# out-of-memory row and checkpointing. Needs what tests/gpu/run.sh needs, and about 3 minutes.
set -euo pipefail
project=$(realpath "$(dirname "$0")/../..")
data=$(realpath "${1:?give a token file of trainsuite-prepare-data}")
shift
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
build=$project/build
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
out=${OUT:-$(mktemp -d)}
suite=("$build/trainsuite" finetune --data "$data" --held-out 40 "$@")

python3 "$project/tests/gpu/check_finetune.py" --library "$build/libtrainsuite_ops.so"
"${suite[@]}" --steps 40 --out "$out/default.h5"
"${suite[@]}" --steps 10 --loss-chunk 0 --out "$out/whole-logits.h5"
"${suite[@]}" --steps 10 --recipe published --out "$out/published.h5"
"${suite[@]}" --steps 10 --checkpointing on --case '*8x2' --out "$out/checkpointing.h5"
# What cannot fit is a row; the case after it runs.
"${suite[@]}" --steps 5 --memory-limit 24 --case 'full-8x2' --case 'lora-4x4' --out "$out/memory.h5"
python3 "$project/tests/gpu/check_finetune_memory.py" "$out/default.h5" "$out/whole-logits.h5"
echo "Rows: $out"
