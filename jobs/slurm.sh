# shellcheck shell=bash
# Sourced by jobs/*.sbatch with `project`, `suite` and `sizes` set, and the job's arguments: runs the
# suite on all of the job's nodes, saves before the time limit, and continues after a requeue.
#   --sweep                  each case in a launch of its own (jobs/sweep.sh)
#   TRAINSUITE_LAUNCHER      mpirun (default), or srun, which uses srun --mpi=pmix
#   TRAINSUITE_SIZES         sizes of an array's tasks: task t takes size t modulo their number, so
#                            --array=0-5 with two sizes runs each three times
#   TRAINSUITE_RESTARTS      times the job may requeue itself at its time limit [5; 0: never]
#   TRAINSUITE_PREFIX, TRAINSUITE_BINARY    as in the other jobs
set -euo pipefail
: "${suite:?}" "${project:?}" "${sizes:?}"
refuse() { echo "trainsuite job: $*" >&2; exit 2; }
note() { echo "trainsuite job: $*"; }
[ -n "${SLURM_JOB_ID:-}" ] || refuse "no Slurm job; submit it: sbatch jobs/$suite.sbatch"
project=$(realpath "$project")
# shellcheck source=jobs/launch.sh
. "$project/jobs/launch.sh"
pass_on_signals
prefix=$(cd "$project" && realpath -m "${TRAINSUITE_PREFIX:-.venv}")
[ -r "$prefix/bin/activate" ] || refuse "nothing is installed in $prefix; run jobs/setup.sh first," \
    "on a machine that reaches the packages and shares this folder with the nodes"
set +u
# shellcheck disable=SC1091
. "$prefix/bin/activate"
set -u
# shellcheck source=jobs/env.sh
TRAINSUITE_ENV=mpi . "$project/jobs/env.sh"
binary=${TRAINSUITE_BINARY:-$prefix/bin/trainsuite}

sweep=0 arguments=()
for argument in "$@"; do
    if [ "$argument" = --sweep ]; then sweep=1; else arguments+=("$argument"); fi
done
set -- "${arguments[@]}"

nodes=${SLURM_JOB_NUM_NODES:-1}
gpus=${SLURM_GPUS_ON_NODE:-$(gpu_count)}
! on_cpu "$@" || gpus=0

launcher=${TRAINSUITE_LAUNCHER:-mpirun} kind_of_mpi=none
case $launcher in
    mpirun) ;;
    srun)
        kind_of_mpi=pmix
        srun --mpi=list 2>&1 | grep -qw pmix || refuse "this Slurm has no PMIx plugin (srun" \
            "--mpi=list), without which srun cannot start MPI ranks; leave TRAINSUITE_LAUNCHER" \
            "out, so that mpirun starts them" ;;
    *) refuse "TRAINSUITE_LAUNCHER=$launcher: known are mpirun and srun" ;;
esac

# --- every node must see the program, not only the one that runs this script
# shellcheck disable=SC2016  # for the shells on the nodes
absent=$(srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
    --mpi=$kind_of_mpi --input=none sh -c '[ -x "$1" ] || echo "$SLURMD_NODENAME"' sh "$binary" |
    sort | tr '\n' ' ') ||
    refuse "the job's nodes cannot all start a program; see srun's message above"
[ -z "$absent" ] || refuse "no $binary on ${absent% }: set up once in a folder that all nodes share" \
    "(jobs/setup.sh --prefix DIR, and export TRAINSUITE_PREFIX=DIR before sbatch)"

even=1
# --- one rank per task of the job, else one per GPU, else one per node
if [ -n "${SLURM_NTASKS:-}" ]; then
    ranks=$SLURM_NTASKS
    # SLURM_TASKS_PER_NODE: 4(x2) where all nodes have the same number, 3,1 where they have not
    if [[ ${SLURM_TASKS_PER_NODE:-} == *,* ]]; then
        even=0
        note "$ranks ranks lie unevenly on $nodes nodes ($SLURM_TASKS_PER_NODE);" \
            "--ntasks-per-node gives each node the same number"
    fi
else
    ranks=$((nodes * (gpus > 0 ? gpus : 1)))
fi
per_node=$(((ranks + nodes - 1) / nodes))
if [ "$gpus" -gt "$per_node" ]; then
    note "$per_node ranks on a node with $gpus GPUs: the others idle;" \
        "--ntasks-per-node=$gpus uses all"
elif [ "$gpus" = 0 ] && ! on_cpu "$@" && [ -e /dev/nvidiactl ]; then
    note "this node has GPUs, but the job was given none of them; ask for them with" \
        "--gpus-per-node=N"
fi
[ "${SLURM_CPUS_ON_NODE:-$per_node}" -ge "$per_node" ] ||
    note "$per_node ranks share ${SLURM_CPUS_ON_NODE} cores of a node: times will show it;" \
        "ask for more with --cpus-per-task or --ntasks-per-node"

if [ "$launcher" = mpirun ]; then
    mpirun_command "$ranks"
    [ $even = 0 ] || launch+=(--map-by "ppr:$per_node:node")
else
    launch=(srun --mpi=pmix --kill-on-bad-exit=1 --ntasks="$ranks")
    [ $even = 0 ] || launch+=(--ntasks-per-node="$per_node")
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || launch+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
    [ -n "${SLURM_NTASKS:-}" ] || launch+=(--overcommit)  # ranks that Slurm did not plan for
fi

# --- what this job, or this task of an array, runs
id=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    read -ra all_sizes <<< "${TRAINSUITE_SIZES:-$sizes}"
    given --size "$@" ||
        set -- "$@" --size "${all_sizes[SLURM_ARRAY_TASK_ID % ${#all_sizes[@]}]}"
fi
out=$(value_of --out "$@")
if [ -z "$out" ]; then  # one name for the job and all its restarts
    mkdir -p results
    out=results/$suite-$id.h5
    set -- "$@" --out "$out"
fi
if [ $sweep = 1 ]; then
    command=("$project/jobs/sweep.sh" --launch "${launch[*]}" "$suite" "$@")
else
    command=("${launch[@]}" "$binary" "$suite" "$@")
    given --resume "$@" || command+=(--resume)  # starts the file where there is none yet
fi

run_child "${command[@]}"
restarts=${SLURM_RESTART_COUNT:-0}
if [ "$stopped_by" = USR1 ] && [ "$status" != 0 ] &&
    [ "$restarts" -lt "${TRAINSUITE_RESTARTS:-5}" ]; then
    note "the time limit is near: $out is saved; requeued to go on (restart $((restarts + 1)))"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
[ -z "$stopped_by" ] || {
    note "stopped by SIG$stopped_by; what is finished is in $out"
    [ "$status" = 0 ] || status=$((128 + $(kill -l "$stopped_by")))
}
exit "$status"
