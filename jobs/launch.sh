# shellcheck shell=bash
# Sourced by the jobs: how ranks are started, by mpirun or under Slurm, and how signals reach them.

# given --name arguments...: whether the option is among them, as --name value or --name=value.
given() {
    local name=$1 argument
    shift
    for argument in "$@"; do
        case $argument in "$name" | "$name"=*) return 0 ;; esac
    done
    return 1
}
# value_of --name arguments...: the option's value; nothing where it is not given.
value_of() {
    local name=$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            "$name") echo "${2:-}"; return ;;
            "$name"=*) echo "${1#*=}"; return ;;
        esac
        shift
    done
}
on_cpu() { [ "$(value_of --device "$@")" = cpu ]; }

# GPUs that a run may use on this host: none without nvidia-smi.
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

# host_count <hostfile>: its hosts, one a line; # starts a comment.
host_count() { sed 's/#.*//' "$1" | grep -c '[^[:space:]]' || true; }

# mpirun_command <ranks>: fills `launch` with mpirun and its options.
# mpirun kills the other ranks a second after the first ends badly; they may still be writing. (It
# waits this long about four times where a rank does not heed SIGTERM.)
# With `hostfile` set the ranks go there by ssh, which takes none of this environment along.
hostfile=''
mpirun_command() {
    local ranks=$1 name
    launch=("${TRAINSUITE_MPIRUN:-mpirun}" -q
        --mca odls_base_sigkill_timeout "${OMPI_MCA_odls_base_sigkill_timeout:-10}")
    if [ -n "$hostfile" ]; then
        launch+=(--hostfile "$hostfile" --map-by node)
        [ -z "${TRAINSUITE_MPI:-}" ] || launch+=(--prefix "$TRAINSUITE_MPI")
        while read -r name; do launch+=(-x "$name"); done < <(
            compgen -e | grep -E '^(PATH|LD_LIBRARY_PATH|OMP_NUM_THREADS|(NCCL|CUDA|PYTORCH|UCX)_.*)$')
    fi
    launch+=(-np "$ranks")
}

# run_child command...: runs it and sets `status`. After pass_on_signals, USR1, TERM, INT and HUP go
# on to it (the ranks then save and end) and `stopped_by` keeps the first of them. The child has its
# own session: a Ctrl-C of the terminal would reach mpirun a second time, which then ends at once.
child='' stopped_by='' status=0
pass_on() {
    stopped_by=${stopped_by:-$1}
    [ -z "$child" ] || kill -s "$1" "$child" 2> /dev/null || true
}
pass_on_signals() {
    trap 'pass_on USR1' USR1
    trap 'pass_on TERM' TERM INT HUP  # a shell may not trap an INT that its parent ignores
}
run_child() {
    status=0
    setsid "$@" &
    child=$!
    # A signal may have come before the child was known.
    [ -z "$stopped_by" ] || kill -s "$stopped_by" "$child" 2> /dev/null || true
    while kill -0 "$child" 2> /dev/null; do wait "$child" || true; done  # a signal ends a wait
    # shellcheck disable=SC2034  # for the caller
    wait "$child" || status=$?
    child=
}
