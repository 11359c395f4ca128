#!/usr/bin/env bash
# jobs/sweep.sh [-np N] [--hostfile FILE] <suite> [options of trainsuite]
# Runs each case of the plan in a launch of its own, all into one result: a case that takes down its
# processes, a GPU or a node takes no other case with it. With the --out of an earlier sweep it goes
# on from there: rows that are there are kept (--retry: failed ones run again).
# Without -np: one rank per GPU, or 2 on a machine with none. In a Slurm job: sbatch
# jobs/<suite>.sbatch --sweep. Exit status: the worst of the cases; 128+n after a signal.
#     --launch WORDS    another command that starts the ranks, for example 'srun --mpi=pmix -n 4'
set -euo pipefail
project=$(realpath "$(dirname "$0")/..")
prefix=$(cd "$project" && realpath -m "${TRAINSUITE_PREFIX:-.venv}")
# shellcheck source=jobs/launch.sh
. "$project/jobs/launch.sh"
refuse() { echo "jobs/sweep.sh: $*" >&2; exit 2; }

launch=() ranks=
while [ $# -gt 0 ]; do
    case $1 in
        -np | -n | --launch | --hostfile) [ $# -gt 1 ] || refuse "$1 needs a value" ;;
    esac
    case $1 in
        -np | -n)
            [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "$1 needs a number of ranks from 1, not '$2'"
            ranks=$2 ;;
        --hostfile)
            [ "$(host_count "$2" 2> /dev/null)" -gt 0 ] || refuse "--hostfile $2: names no host"
            hostfile=$2 ;;
        --launch) read -ra launch <<< "$2" ;;
        -*) refuse "unknown option '$1' before the suite; jobs/sweep.sh alone shows its use" ;;
        *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
suite=$1
shift

if [ ${#launch[@]} = 0 ]; then
    [ -n "${TRAINSUITE_BINARY:-}" ] || "$project/jobs/setup.sh" >&2
    # shellcheck disable=SC1091
    . "$prefix/bin/activate"
    # shellcheck source=jobs/env.sh
    TRAINSUITE_ENV=mpi . "$project/jobs/env.sh"
    gpus=$(gpu_count)
    ! on_cpu "$@" || gpus=0
    hosts=1
    [ -z "$hostfile" ] || hosts=$(host_count "$hostfile")
    mpirun_command "${ranks:-$((gpus > 0 ? gpus * hosts : 2))}"
fi
binary=${TRAINSUITE_BINARY:-$prefix/bin/trainsuite}
[ -x "$binary" ] || refuse "no trainsuite in $prefix; run jobs/setup.sh first"

# What selects cases, or says what to do with the file, is this script's business from here on.
out=$(value_of --out "$@")
retry=() planning=() settings=()
while [ $# -gt 0 ]; do
    case $1 in
        --case | --size) planning+=("$1" "${2:-}"); shift ;;
        --case=* | --size=*) planning+=("$1") ;;
        --out) shift ;;
        --out=* | --resume | --json) ;;
        --retry) retry=(--retry) ;;
        *) settings+=("$1") ;;
    esac
    shift $(($# > 0))
done
if [ -z "$out" ]; then
    mkdir -p results
    out=results/$suite-sweep-$(date -u +%Y%m%dT%H%M%SZ)${SLURM_JOB_ID:+-$SLURM_JOB_ID}.h5
fi

# The plan comes from the ranks themselves: a mistake in the launch shows here, once.
pass_on_signals
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
run_child "${launch[@]}" "$binary" "$suite" "${settings[@]}" "${planning[@]}" --plan > "$plan"
[ "$status" = 0 ] || exit "$status"
cat "$plan"
mapfile -t names < <(awk '/^case  /{on = 1; next} on && !NF{exit} on{print $1}' "$plan")
[ ${#names[@]} -gt 0 ] || refuse "no case in the plan above"

worst=0 number=0
for name in "${names[@]}"; do
    number=$((number + 1))
    echo "sweep: $number of ${#names[@]}, $name"
    run_child "${launch[@]}" "$binary" "$suite" "${settings[@]}" --case "$name" \
        --size "${name%%-*}" --out "$out" --resume "${retry[@]}"
    [ "$status" -le "$worst" ] || worst=$status
    if [ -n "$stopped_by" ]; then
        echo "sweep: stopped by SIG$stopped_by; the same command with --out $out goes on" >&2
        worst=$((128 + $(kill -l "$stopped_by")))
        break
    fi
    [ "$status" != 2 ] || break  # refused: so would be the others
    [ "$status" = 0 ] || echo "sweep: $name ended with status $status" >&2
done
"${TRAINSUITE_PYTHON:-python3}" "$project/analysis/results.py" summary "$out" || true
exit "$worst"
