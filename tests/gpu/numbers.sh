#!/usr/bin/env bash
# tests/gpu/numbers.sh [-np N] [--build DIR] [--only NAME]...
# Whether the numbers can be trusted, on N GPUs (default 1): ceilings beside PyTorch's, energy,
# telemetry's and instrumentation's cost, GPU states and links beside nvidia-smi's, bus bandwidth.
# tests/gpu/check_numbers.py says what each check holds to.
set -euo pipefail
project=$(realpath "$(dirname "$0")/../..")
ranks=1 build=$project/build
only=()
while [ $# -gt 0 ]; do
    case $1 in
        -np) ranks=$2; shift 2 ;;
        --build) build=$(realpath "$2"); shift 2 ;;
        --only) only+=(--only "$2"); shift 2 ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
# shellcheck disable=SC1091
. "$project/jobs/env.sh"
export LD_LIBRARY_PATH="$build:$LD_LIBRARY_PATH"
exec python3 "$project/tests/gpu/check_numbers.py" --binary "$build/trainsuite" --ranks "$ranks" \
    "${only[@]}"
