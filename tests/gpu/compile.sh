#!/usr/bin/env bash
# tests/gpu/compile.sh [--build DIR] [--out FOLDER] [correct|table|ddp|memory|finetune]...
# Compiled rows on one GPU. correct: losses against eager, NCCL in a graph on one rank. table: the
# compile suite, cold, and its PyTorch twin. ddp: GPT-2 compiled and in a graph. memory: what fits in
# 32, 44 and 48 GiB. finetune: LoRA and QLoRA, compiled and eager. Without a name: all. Result files
# go to FOLDER (default: results).
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
build=$project/build out=results parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$(realpath "$2"); shift 2 ;;
        --out) out=$2; shift 2 ;;
        correct | table | ddp | memory | finetune) parts+=("$1"); shift ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(correct table ddp memory finetune)
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
export TRAINSUITE_BINARY=$build/trainsuite TRAINSUITE_OPS_LIBRARY=$build/libtrainsuite_ops.so
mkdir -p "$out"
failed=0
attempt() { echo "+ $*"; timeout 550 "$@" || failed=$((failed + 1)); }
trainsuite=$build/trainsuite

correct() {
    local ddp=$out/correct-ddp.h5 suite=$out/correct-compile.h5
    rm -f "$ddp" "$suite"
    local rows=()
    for recipe in 1gpu 1gpu-accumulate4 plain both; do
        for kind in "" -compile -graph; do rows+=(--case "$recipe$kind"); done
    done
    attempt "$trainsuite" ddp --size tiny "${rows[@]}" --steps 20 --warmup 5 --learning-rate 0.01 \
        --out "$ddp"
    attempt "$trainsuite" compile --size tiny --learning-rate 0.01 --out "$suite"
    attempt python3 "$project/tests/gpu/check_compiled.py" "$ddp" "$suite"
}

table() {
    rm -f "$out/table.h5" "$out/table-warm.h5" "$out/table-pytorch.h5"
    attempt "$trainsuite" compile --cold --out "$out/table.h5"
    attempt "$trainsuite" compile --case '*-sdpa' --out "$out/table-warm.h5"
    attempt python3 "$project/suites/pytorch/compile.py" --out "$out/table-pytorch.h5"
    attempt python3 "$project/tests/gpu/check_compiled.py" "$out/table.h5"
}

ddp() {
    for size in 124m 355m; do
        rm -f "$out/ddp-$size.h5"
        local rows=()
        for recipe in 1gpu 1gpu-accumulate4 plain both; do
            for kind in "" -compile -graph; do rows+=(--case "$recipe$kind"); done
        done
        attempt "$trainsuite" ddp --size "$size" "${rows[@]}" --out "$out/ddp-$size.h5"
    done
}

memory() {
    for limit in 32 44 48; do
        rm -f "$out/memory-$limit.h5"
        # Rows that run out of memory are results: exit 0.
        attempt "$trainsuite" compile --memory-limit "$limit" --case '*-naive' \
            --out "$out/memory-$limit.h5"
    done
}

finetune() {
    rm -f "$out/finetune.h5"
    local rows=()
    for method in lora qlora; do rows+=(--case "$method-4x4" --case "$method-4x4-compile"); done
    attempt "$trainsuite" finetune "${rows[@]}" --steps 40 --out "$out/finetune.h5"
    attempt python3 "$project/tests/gpu/check_compiled.py" "$out/finetune.h5"
}

for part in "${parts[@]}"; do "$part"; done
echo "$failed failed"
[ "$failed" = 0 ]
