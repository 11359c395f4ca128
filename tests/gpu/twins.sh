#!/usr/bin/env bash
# tests/gpu/twins.sh [--build DIR]
# The PyTorch twins of compile and finetune on one GPU, with the model `tiny`: every case ends well,
# graphs and quantized rows included, and the rows keep the file's rules. DIR (default: build) holds
# libtrainsuite_ops.so; python3 has torch, h5py, transformers, peft and bitsandbytes.
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
build=$project/build
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$(realpath "$2"); shift 2 ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export TRAINSUITE_OPS_LIBRARY=$build/libtrainsuite_ops.so
folder=$(mktemp -d) failed=0
trap 'rm -rf "$folder"' EXIT

# check SUITE ROWS FLAG...: the twin ends well with so many rows, each of them ok.
check() {
    local suite=$1 rows=$2 file=$folder/$1.h5
    shift 2
    if timeout 540 python3 "$project/suites/pytorch/$suite.py" --device cuda --size tiny "$@" \
        --out "$file" > "$folder/log" 2>&1 &&
        [ "$(grep -c ' tokens/s ' "$folder/log")" = "$rows" ] &&
        python3 "$project/analysis/results.py" verify "$file" >> "$folder/log" 2>&1; then
        echo "ok      $suite"
        grep ' tokens/s ' "$folder/log"
    else
        echo "FAILED  $suite"
        tail -n 40 "$folder/log"
        failed=$((failed + 1))
    fi
}

check compile 8 --sequence 128 --steps 5 --warmup 3
check finetune 12 --train-examples 64 --held-out 16 --steps 4
echo "$failed failed"
[ "$failed" = 0 ]
