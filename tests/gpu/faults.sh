#!/usr/bin/env bash
# tests/gpu/faults.sh [--build DIR] [--jobs N] [--only FAULT]... [nccl1|mpi2|nccl2]...
# The fault table of docs/reliability.md on a GPU machine. nccl1: one rank over NCCL. mpi2: two ranks on
# one GPU over MPI. nccl2: one rank a GPU over NCCL on two GPUs, where ranks are blocked in launches and
# collectives when another fails. Without a name: all that this machine can. N faults (default 4) are
# made at the same time. DIR (default: build) holds trainsuite; python3 has torch and h5py.
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
build=$project/build jobs=4 only=() tables=()
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$(realpath "$2"); shift 2 ;;
        --jobs) jobs=$2; shift 2 ;;
        --only) only+=(--only "$2"); shift 2 ;;
        nccl1 | mpi2 | nccl2) tables+=("$1"); shift ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
gpus=$(nvidia-smi --list-gpus | wc -l)
if [ ${#tables[@]} -eq 0 ]; then
    tables=(nccl1 mpi2)
    [ "$gpus" -lt 2 ] || tables+=(nccl2)
fi
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
failed=0

# The model is small: what is tested is who notices, not the training.
table() {  # table TITLE RANKS FLAGS
    local begin=$SECONDS
    printf '\n%s (%s)\n\n' "$1" \
        "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | xargs)"
    python3 "$project/tests/fault_table.py" --binary "$build/trainsuite" --ranks "$2" --gpu \
        --step 20 --time-limit 10 --stop-steps 4000 --jobs "$jobs" "${only[@]}" \
        --flags "--device cuda --size tiny $3" || failed=1
    echo "$((SECONDS - begin)) s"
}

for name in "${tables[@]}"; do
    case $name in
        nccl1) table "One rank over NCCL" 1 "--comm nccl" ;;
        mpi2) table "Two ranks on one GPU over MPI" 2 "--comm mpi --oversubscribe" ;;
        nccl2) table "Two GPUs over NCCL" 2 "--comm nccl" ;;
    esac
done
exit "$failed"
