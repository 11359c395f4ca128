#!/usr/bin/env bash
# jobs/compare.sh [-np N] [--rounds R] [--folder DIR] <suite> [options both understand]
#     [-- options for trainsuite alone]
# Runs trainsuite and its PyTorch twin alternately, R rounds (default 1), on the same GPUs, then
# prints the ratios. The twin is started by torchrun. Results lie in DIR (default: results).
# Uses the environment that jobs/setup.sh made, or TRAINSUITE_BINARY with TRAINSUITE_PYTHON.
set -euo pipefail
project=$(realpath "$(dirname "$0")/..")
ranks=1 rounds=1 folder=results
refuse() { echo "jobs/compare.sh: $1" >&2; exit 2; }
# count <option> <what it counts> <value>
count() { [[ $3 =~ ^[1-9][0-9]{0,5}$ ]] || refuse "$1 needs a number of $2 from 1, not '$3'"; }
while [ $# -gt 0 ]; do
    case $1 in
        -np | --rounds | --folder) [ $# -gt 1 ] || refuse "$1 needs a value" ;;
    esac
    case $1 in
        -np) count "$1" ranks "$2"; ranks=$2 ;;
        --rounds) count "$1" rounds "$2"; rounds=$2 ;;
        --folder)
            folder=$2
            [[ $folder == [!-]* ]] || refuse "--folder needs a folder, not '$2'"
            [ ! -e "$folder" ] || [ -d "$folder" ] || refuse "--folder $folder: it is no folder"
            ;;
        -*) refuse "unknown option '$1' before the suite; jobs/compare.sh alone shows its use" ;;
        *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
suite=$1
shift
both=() ours=()
while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then shift; ours=("$@"); break; fi
    both+=("$1")
    shift
done
twin=$project/suites/pytorch/$suite.py
[ -e "$twin" ] || { echo "jobs/compare.sh: no PyTorch twin of '$suite' ($twin)" >&2; exit 2; }
prefix=$(cd "$project" && realpath -m "${TRAINSUITE_PREFIX:-.venv}")
# shellcheck disable=SC1091
[ ! -r "$prefix/bin/activate" ] || . "$prefix/bin/activate"
# shellcheck disable=SC1091
TRAINSUITE_ENV=mpi . "$project/jobs/env.sh"
binary=${TRAINSUITE_BINARY:-$(command -v trainsuite || echo "$project/build/trainsuite")}
python=${TRAINSUITE_PYTHON:-python3}
[ -x "$binary" ] || { echo "jobs/compare.sh: no trainsuite here; run jobs/setup.sh first" >&2; exit 2; }
library=${TRAINSUITE_OPS_LIBRARY:-$(dirname "$binary")/libtrainsuite_ops.so}
[ -e "$library" ] || library=$(dirname "$binary")/../lib/libtrainsuite_ops.so
export TRAINSUITE_OPS_LIBRARY=$library

mkdir -p "$folder" 2> /dev/null || refuse "the folder '$folder' cannot be made; name another"
stamp=$(date -u +%Y%m%dT%H%M%SZ) status=0
for round in $(seq "$rounds"); do
    name=$folder/$suite-$stamp-$round
    mpirun -q -np "$ranks" "$binary" "$suite" "${both[@]}" "${ours[@]}" --out "$name-trainsuite.h5" ||
        status=$?
    "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
        "$twin" "${both[@]}" --out "$name-pytorch.h5" || status=$?
done
for round in $(seq "$rounds"); do
    name=$folder/$suite-$stamp-$round
    "$python" "$project/analysis/results.py" compare "$name-trainsuite.h5" "$name-pytorch.h5" ||
        status=$?
done
exit "$status"
