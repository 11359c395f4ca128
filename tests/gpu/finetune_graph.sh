#!/usr/bin/env bash
# tests/gpu/finetune_graph.sh DATA.h5 [options of the suite]
# Fine-tuning in CUDA graphs on one GPU beside eager rows of the same batches: losses, then rates.
# Needs what tests/gpu/run.sh needs, and about 3 minutes.
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
rows=(--case 'lora-4x4' --case 'lora-4x4-graph' --case 'qlora-8x2' --case 'qlora-8x2-graph'
    --case 'full-4x4' --case 'full-4x4-graph')

# The same batches in both: padded to lengths, and packed to multiples of 128 tokens.
"${suite[@]}" "${rows[@]}" --steps 16 --length-buckets 128,256,384,512 --out "$out/padded.h5"
"${suite[@]}" "${rows[@]}" --steps 16 --pack-to 128 --out "$out/packed.h5"
"${suite[@]}" --case 'lora-4x4' --steps 16 --pack-to 128 --out "$out/again.h5"
# As the rows come.
"${suite[@]}" --execution graph --steps 40 --out "$out/graph.h5"
python3 "$project/tests/gpu/check_finetune_graph.py" --again "$out/again.h5" \
    "$out/padded.h5" "$out/packed.h5"
python3 "$project/tests/gpu/check_finetune_graph.py" --rates "$out/graph.h5" "$out/packed.h5"
echo "Rows: $out"
