#!/usr/bin/env bash
# tests/gpu/run.sh [-np N] [--build DIR]
# What only GPUs can test, on N of them (default 1): CUDA ops against PyTorch, both communicators,
# gradient sync and trainer over NCCL (a rank a GPU) and over MPI (two ranks a GPU), memory rows, and
# launch mistakes. DIR (default: build) holds the programs; python3 has torch and h5py.
set -uo pipefail
project=$(realpath "$(dirname "$0")/../..")
ranks=1 build=$project/build
while [ $# -gt 0 ]; do
    case $1 in
        -np) ranks=$2; shift 2 ;;
        --build) build=$(realpath "$2"); shift 2 ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
failed=0

# check NAME STATUS COMMAND...: the command ends in time with that status.
check() {
    local name=$1 wanted=$2 got=0
    shift 2
    timeout 300 "$@" > /tmp/gpu-test.$$ 2>&1 || got=$?
    if [ "$got" = "$wanted" ]; then
        echo "ok      $name"
    else
        echo "FAILED  $name (exit $got, wanted $wanted)"
        tail -n 15 /tmp/gpu-test.$$
        failed=$((failed + 1))
    fi
    rm -f /tmp/gpu-test.$$
}
program() {  # a test program lies in the build tree, or beside the others in a carried folder
    if [ -x "$build/tests/mpi/$1" ]; then echo "$build/tests/mpi/$1"; else echo "$build/$1"; fi
}

ops=$build/libtrainsuite_ops.so trainsuite=$build/trainsuite
check "CUDA ops against PyTorch" 0 \
    python3 "$project/tests/gpu/check_ops.py" --library "$ops" --no-timing
check "NF4, adapters and packed attention" 0 \
    python3 "$project/tests/gpu/check_finetune.py" --library "$ops"
for test in test_communicator test_gradient_sync test_trainer test_finetune; do
    check "$test, NCCL, $ranks ranks" 0 \
        mpirun -q -np "$ranks" "$(program $test)" --backend nccl --device cuda
    check "$test, MPI, $((2 * ranks)) ranks" 0 \
        mpirun -q -np $((2 * ranks)) "$(program $test)" --backend mpi --device cuda
done
check "memory rows" 0 python3 "$project/tests/gpu/check_memory.py" --binary "$trainsuite"
check "more ranks than GPUs" 2 mpirun -q -np $((ranks + 1)) "$trainsuite" ddp --steps 2
check "several ranks on a GPU over NCCL" 2 \
    mpirun -q -np 2 "$trainsuite" ddp --steps 2 --comm nccl --oversubscribe
check "--link over MPI" 2 mpirun -q -np 1 "$trainsuite" ddp --comm mpi --link shm
check "no GPU left" 2 env CUDA_VISIBLE_DEVICES= "$trainsuite" ddp --device cuda
# shellcheck disable=SC2016  # for the shell that each rank starts
each='export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK; exec "$@"'
check "every rank sees its own GPU as ordinal 0" 0 \
    mpirun -q -np "$ranks" bash -c "$each" bash "$trainsuite" ddp --size 124m --case plain --steps 2 \
    --warmup 1 --out "$(mktemp -u)".h5
echo "$failed failed"
[ "$failed" = 0 ]
