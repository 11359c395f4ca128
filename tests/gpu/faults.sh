#!/usr/bin/env bash
# tests/gpu/faults.sh [--build DIR] [--gpus N]
# The fault table on a GPU machine: one rank over NCCL, two ranks on one GPU over MPI and, with two or
# more GPUs, one rank a GPU over NCCL, where ranks are blocked in launches and collectives when another
# fails. DIR (default: build) holds trainsuite; python3 has torch and h5py.
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
build=$project/build gpus=$(nvidia-smi --list-gpus | wc -l)
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$(realpath "$2"); shift 2 ;;
        --gpus) gpus=$2; shift 2 ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
failed=0

table() {  # table TITLE RANKS FLAGS
    printf '\n%s\n\n' "$1"
    python3 "$project/tests/fault_table.py" --binary "$build/trainsuite" --ranks "$2" --gpu \
        --step 20 --flags "--device cuda --size 124m $3" || failed=1
}

table "One rank over NCCL" 1 "--comm nccl"
table "Two ranks on one GPU over MPI" 2 "--comm mpi --oversubscribe"
if [ "$gpus" -ge 2 ]; then table "Two GPUs over NCCL" 2 "--comm nccl"; fi
exit "$failed"
