#!/usr/bin/env bash
# jobs/run.sh [-np N] [--hostfile FILE] <suite> [options of trainsuite]
# Sets up where needed, then runs trainsuite under mpirun. Without -np: one rank per GPU, or 2 on a
# machine with none. More ranks than GPUs share them, over the MPI communicator, and this is said.
# --hostfile: on the hosts of FILE, one a line, each with as many GPUs as this one and this folder.
# TRAINSUITE_MPIRUN names another launcher that takes Open MPI's options, TRAINSUITE_BINARY another
# trainsuite; then nothing is set up.
set -euo pipefail
project=$(realpath "$(dirname "$0")/..")
prefix=$(cd "$project" && realpath -m "${TRAINSUITE_PREFIX:-.venv}")
# shellcheck source=jobs/launch.sh
. "$project/jobs/launch.sh"
refuse() { echo "jobs/run.sh: $1" >&2; exit 2; }
ranks=
while :; do
    case ${1:-} in
        -np | -n)
            ranks=${2:-}
            [[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "$1 needs a number of ranks" ;;
        --hostfile)
            hostfile=${2:-}
            [ -r "$hostfile" ] || refuse "--hostfile $hostfile: no such file"
            [ "$(host_count "$hostfile")" -gt 0 ] || refuse "--hostfile $hostfile: names no host" ;;
        -*) refuse "unknown option '$1' before the suite; jobs/run.sh alone shows its use" ;;
        *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -n "${TRAINSUITE_BINARY:-}" ] || "$project/jobs/setup.sh" >&2

gpus=$(gpu_count)
! on_cpu "$@" || gpus=0
hosts=${SLURM_JOB_NUM_NODES:-1}
[ -z "$hostfile" ] || hosts=$(host_count "$hostfile")
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
# shellcheck source=jobs/env.sh
TRAINSUITE_ENV=mpi . "$project/jobs/env.sh"
mpirun_command "$ranks"
program=trainsuite
[ -z "$hostfile" ] || program=$prefix/bin/trainsuite  # the other hosts have no PATH of ours yet
exec "${launch[@]}" "${TRAINSUITE_BINARY:-$program}" "$@" "${shared[@]}"
