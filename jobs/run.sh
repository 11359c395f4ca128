#!/usr/bin/env bash
# jobs/run.sh [-np N] <suite> [options of trainsuite]
# Sets up where needed, then runs trainsuite under mpirun. Without -np: one rank per GPU, or 2 on a
# machine with none. More ranks than GPUs share them, over the MPI communicator, and this is said.
# TRAINSUITE_MPIRUN names another launcher that takes Open MPI's options.
set -euo pipefail
project=$(realpath "$(dirname "$0")/..")
prefix=$(cd "$project" && realpath -m "${TRAINSUITE_PREFIX:-.venv}")
ranks=
if [ "${1:-}" = -np ] || [ "${1:-}" = -n ]; then
    ranks=${2:-}
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || { echo "jobs/run.sh: $1 needs a number of ranks" >&2; exit 2; }
    shift 2
fi
[ $# -gt 0 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# GPUs that this run may use on each host: none without nvidia-smi.
gpu_count() {
    local present=0 shown=0 entry entries
    if command -v nvidia-smi > /dev/null; then
        present=$({ nvidia-smi -L 2> /dev/null || true; } | grep -c '^GPU ' || true)
    fi
    if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
        echo "$present"
        return
    fi
    IFS=, read -ra entries <<< "$CUDA_VISIBLE_DEVICES"
    for entry in "${entries[@]}"; do  # CUDA, too, stops at the first that names none
        [[ $entry =~ ^[0-9A-Za-z] ]] || break
        [[ ! $entry =~ ^[0-9]+$ || $entry -lt $present ]] || break
        shown=$((shown + 1))
    done
    echo $((shown < present ? shown : present))
}
# Whether an option, in either spelling (--name value, --name=value), is among the arguments.
given() {
    local name=$1 argument
    shift
    for argument in "$@"; do
        case $argument in "$name" | "$name"=*) return 0 ;; esac
    done
    return 1
}
on_cpu() { [[ " $* " == *" --device cpu "* || " $* " == *" --device=cpu "* ]]; }

"$project/jobs/setup.sh" >&2

gpus=$(gpu_count)
! on_cpu "$@" || gpus=0
hosts=${SLURM_JOB_NUM_NODES:-1}
if [ -z "$ranks" ]; then
    ranks=$((gpus > 0 ? gpus * hosts : 2))
fi
shared=()
if [ "$gpus" -gt 0 ] && [ "$ranks" -gt $((gpus * hosts)) ] && ! given --comm "$@"; then
    shared=(--comm mpi)
    given --oversubscribe "$@" || shared+=(--oversubscribe)
    echo "run: $ranks ranks share $((gpus * hosts)) GPU(s): adding ${shared[*]}" >&2
fi

# shellcheck disable=SC1091
. "$prefix/bin/activate"
# mpirun kills the other ranks a second after the first ends badly; rank 0 may still be writing.
exec "${TRAINSUITE_MPIRUN:-mpirun}" -q --mca odls_base_sigkill_timeout 30 -np "$ranks" \
    trainsuite "$@" "${shared[@]}"
