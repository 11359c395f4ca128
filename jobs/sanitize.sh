#!/usr/bin/env bash
# jobs/sanitize.sh [--all] [options of ctest]
# Unit and MPI tests under the address and undefined-behaviour sanitizers, in build-sanitizers/, after
# jobs/setup.sh --tests. Without --all: the programs that build quickly (label `quick`); what includes
# torch's headers is left to --all.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(realpath -m "${TRAINSUITE_PREFIX:-.venv}")
[ -x "$prefix/bin/cmake" ] ||
    { echo "jobs/sanitize.sh: nothing in $prefix; run jobs/setup.sh --tests first" >&2; exit 2; }
export PATH="$prefix/bin:$PATH" VIRTUAL_ENV="$prefix"
targets=(quick_tests) label=quick
if [ "${1:-}" = --all ]; then
    targets=(tests/unit/all tests/mpi/all) label='unit|mpi'
    shift
fi
options=(-DTRAINSUITE_PYTHON="$prefix/bin/python3" -DTRAINSUITE_CUDA_ARCHITECTURES=90)
mpi=${TRAINSUITE_MPI:-$(cat "$prefix/share/trainsuite/mpi" 2> /dev/null || true)}
[ -z "$mpi" ] || options+=(-DMPI_HOME="$mpi")
if command -v ccache > /dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# run <what> command...: its output only where it fails
run() {
    echo "sanitize: $1"
    "${@:2}" > "$log" 2>&1 || { tail -n 60 "$log" >&2; echo "sanitize: $1 failed" >&2; exit 1; }
}
run configuring cmake --preset sanitizers "${options[@]}"
run building cmake --build build-sanitizers --target "${targets[@]}"
ctest --test-dir build-sanitizers --output-on-failure --no-tests=error -L "$label" "$@"
