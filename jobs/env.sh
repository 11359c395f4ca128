# shellcheck shell=sh
# Sourced: the environment that trainsuite runs in. Sets Open MPI's variables and, for a build that
# was carried to this machine, LD_LIBRARY_PATH from the torch of `python3` (TRAINSUITE_PYTHON names
# another). An installed trainsuite finds its libraries itself, so .venv/bin/activate sources
# this file with TRAINSUITE_ENV=mpi, which leaves LD_LIBRARY_PATH alone.

# Open MPI refuses root and more ranks than cores unless told; waiting ranks then yield their core.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"

# A site's MPI, given to jobs/setup.sh as --mpi.
if [ -n "${TRAINSUITE_MPI:-}" ]; then
    case ":$PATH:" in
        *":$TRAINSUITE_MPI/bin:"*) ;;
        *) export PATH="$TRAINSUITE_MPI/bin:$PATH" ;;
    esac
    export LD_LIBRARY_PATH="$TRAINSUITE_MPI/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

if [ "${TRAINSUITE_ENV:-all}" = all ]; then
    _trainsuite_libraries=$("${TRAINSUITE_PYTHON:-python3}" - <<'PYTHON'
import glob, importlib.util, os
spec = importlib.util.find_spec("torch")
if spec is not None:
    torch = spec.submodule_search_locations[0]
    site = os.path.dirname(torch)
    print(":".join([f"{torch}/lib", *sorted(glob.glob(f"{site}/nvidia/*/lib"))]))
PYTHON
    )
    if [ -n "$_trainsuite_libraries" ]; then
        export LD_LIBRARY_PATH="$_trainsuite_libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    else
        echo "jobs/env.sh: ${TRAINSUITE_PYTHON:-python3} has no torch; name one that has in" \
            "TRAINSUITE_PYTHON" >&2
    fi
    unset _trainsuite_libraries
fi
