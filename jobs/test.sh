#!/usr/bin/env bash
# Sets up, builds with warnings as errors, and runs every test. Options go to ctest (-R, -L, ...).
# The exit status is ctest's. Tests labelled `root` need root: `jobs/test.sh -LE root` leaves them.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(realpath -m "${TRAINSUITE_PREFIX:-.venv}")
jobs/setup.sh --tests
export PATH="$prefix/bin:$PATH" VIRTUAL_ENV="$prefix"
exec "$prefix/bin/ctest" --test-dir build --output-on-failure "$@"
