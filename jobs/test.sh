#!/usr/bin/env bash
# Sets up, builds with warnings as errors, and runs every test. Options go to ctest (-R, -L, ...).
# TRAINSUITE_SANITIZE=1, as in .ci/run: those that build quickly run once more under the address and
# undefined-behaviour sanitizers (jobs/sanitize.sh; about a minute on two cores).
# The exit status is ctest's. Tests labelled `root` need root: `jobs/test.sh -LE root` leaves them.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(realpath -m "${TRAINSUITE_PREFIX:-.venv}")
jobs/setup.sh --tests
export PATH="$prefix/bin:$PATH" VIRTUAL_ENV="$prefix"
tests=("$prefix/bin/ctest" --test-dir build --output-on-failure "$@")
# Some tests look at a terminal. A bare root may have no pseudo-terminals: they get their own.
if ! python3 -c 'import os; os.openpty()' 2> /dev/null && [ "$(id -u)" = 0 ]; then
    # shellcheck disable=SC2016
    tests=(unshare --mount --propagation unchanged sh -c '
        mount --make-private /dev 2> /dev/null || mount --make-rprivate / 2> /dev/null
        mount -t devpts -o ptmxmode=0666 devpts /dev/pts
        exec "$@"' sh "${tests[@]}")
fi
again=${TRAINSUITE_SANITIZE:-0}
status=0
"${tests[@]}" || status=$?
[ "$again" = 0 ] || jobs/sanitize.sh -E 'test_world\.[14]' || status=$?
exit "$status"
