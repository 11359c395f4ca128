#!/usr/bin/env bash
# tests/gpu/sanitize.sh [--build DIR] [ops|ddp|finetune]...
# This project's CUDA kernels under compute-sanitizer, on one GPU: memory errors in check_ops.py and in
# tiny runs of ddp and finetune, and races and barriers in those runs. Kernels of torch and its
# libraries are left out. DIR (default: build) holds the programs; python3 has torch.
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
build=$project/build parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$(realpath "$2"); shift 2 ;;
        ops | ddp | finetune) parts+=("$1"); shift ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(ops ddp finetune)
for folder in "${CUDA_HOME:-}" /usr/local/cuda; do  # a toolkit is not always on PATH
    PATH=$PATH${folder:+:$folder/bin}
done
command -v compute-sanitizer > /dev/null || {
    echo "$0: no compute-sanitizer here; it comes with a CUDA toolkit, or with" \
        "'pip install nvidia-cuda-sanitizer-api' (nvidia/cu13/bin in site-packages)" >&2
    exit 2
}
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
export PYTORCH_NO_CUDA_MEMORY_CACHING=1  # each tensor an allocation with an end of its own
folder=$(mktemp -d) failed=0
trap 'rm -rf "$folder"' EXIT

# check TOOL WHAT COMMAND...: it ends well and the tool finds nothing.
check() {
    local tool=$1 what=$2 begin=$SECONDS got=0
    shift 2
    local flags=(--tool "$tool" --kernel-name kns=trainsuite --error-exitcode 86)
    [ "$tool" != memcheck ] || flags+=(--report-api-errors no)  # torch asks and expects refusals
    timeout 400 compute-sanitizer "${flags[@]}" "$@" > "$folder/log" 2>&1 || got=$?
    if [ "$got" = 0 ] && grep -q 'ERROR SUMMARY: 0 errors\|RACECHECK SUMMARY: 0 hazards' "$folder/log"
    then
        echo "ok      $tool, $what, $((SECONDS - begin)) s"
    else
        echo "FAILED  $tool, $what (exit $got), $((SECONDS - begin)) s"
        grep '=========' "$folder/log" | head -n 40
        tail -n 20 "$folder/log"
        failed=$((failed + 1))
    fi
}
run() {  # run SUITE FLAG...: under each tool
    local tool precision
    for tool in memcheck racecheck synccheck; do
        # Under racecheck 2025.3 cuBLAS's bf16 kernels end in an internal error of the tool.
        precision=bf16
        [ "$tool" != racecheck ] || precision=fp32
        check "$tool" "$1" "$build/trainsuite" "$@" --device cuda --size tiny \
            --precision "$precision" --out "$folder/$1-$tool.h5"
    done
}

for part in "${parts[@]}"; do
    case $part in
        ops) check memcheck "CUDA ops" python3 "$project/tests/gpu/check_ops.py" \
            --library "$build/libtrainsuite_ops.so" --no-timing ;;
        ddp) run ddp --case 1gpu --case plain --case both --steps 3 --warmup 1 ;;
        finetune) run finetune --case 'full-4x4' --case 'qlora-4x4' --train-examples 32 --held-out 4 \
            --steps 2 ;;
    esac
done
echo "$failed failed"
[ "$failed" = 0 ]
