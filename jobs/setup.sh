#!/usr/bin/env bash
# Installs what is missing, builds, and installs trainsuite into a Python environment. Safe to
# repeat: what is there is used, and a second run takes seconds.
#   --prefix DIR   the environment, made where missing (default: .venv; or TRAINSUITE_PREFIX)
#   --wheels DIR   a folder of wheels: Python packages come from there and not from an index
#   --mpi DIR      the site's MPI (DIR/bin/mpicxx) instead of Debian's Open MPI
#   --tests        also what the tests need; build the tests, warnings as errors
#   --no-build     stop before configuring
# TRAINSUITE_CUDA_ARCHITECTURES="90" builds for fewer GPUs; TRAINSUITE_PYTHON names a base python3.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
project=$PWD
prefix=${TRAINSUITE_PREFIX:-.venv} wheels=${TRAINSUITE_WHEELS:-} mpi=${TRAINSUITE_MPI:-}
architectures=${TRAINSUITE_CUDA_ARCHITECTURES:-}
tests=0 build=1

stop() { echo "jobs/setup.sh: $*" >&2; exit 1; }
say() { echo "setup: $*"; }

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix | --wheels | --mpi)
                [ -n "${2:-}" ] || { echo "jobs/setup.sh: $1 needs a folder" >&2; exit 2; }
                printf -v "${1#--}" '%s' "$(cd "$caller" && realpath -m "$2")"; shift 2 ;;
            --tests) tests=1; shift ;;
            --no-build) build=0; shift ;;
            -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$project/jobs/setup.sh"; exit 0 ;;
            *) echo "jobs/setup.sh: unknown option '$1' (see --help)" >&2; exit 2 ;;
        esac
    done
    prefix=$(realpath -m "$prefix")
    kept="$prefix/share/trainsuite"
    # What was chosen once holds until something else is chosen.
    mpi=${mpi:-$(cat "$kept/mpi" 2> /dev/null || true)}
    architectures=${architectures:-$(cat "$kept/architectures" 2> /dev/null || true)}
    [ -z "$wheels" ] || [ -d "$wheels" ] || stop "--wheels $wheels: no such folder"
    if [ -n "$mpi" ]; then
        [ -x "$mpi/bin/mpicxx" ] || stop "--mpi $mpi: no bin/mpicxx there"
        export TRAINSUITE_MPI=$mpi PATH=$mpi/bin:$PATH
    fi
}

# --- system packages: asked for by what is needed, not by package name, so that a site's own
# compiler, MPI or HDF5 counts.
has() { command -v "$1" > /dev/null 2>&1; }
has_daemon() { has "$1" || [ -x "/usr/sbin/$1" ]; }
has_header() {
    has c++ && printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" |
        c++ -std=c++17 -x c++ "${@:2}" -E - > /dev/null 2>&1
}
has_library() { has c++ && [ "$(c++ -print-file-name="$1")" != "$1" ]; }
base_python() {
    [ -x "$prefix/bin/python3" ] && { echo "$prefix/bin/python3"; return; }
    echo "${TRAINSUITE_PYTHON:-python3}"
}
can_make_environment() {
    [ -x "$prefix/bin/pip" ] || "$(base_python)" -c 'import ensurepip, venv' 2> /dev/null
}
missing_packages() {
    has c++ && has make && has_header cstdlib || echo build-essential
    has mpirun || echo openmpi-bin
    has mpicxx || echo libopenmpi-dev
    has h5c++ || has_header H5Cpp.h -I/usr/include/hdf5/serial \
        ${HDF5_ROOT:+"-I$HDF5_ROOT/include"} || echo libhdf5-dev
    has_header boost/program_options.hpp && has_library libboost_program_options.a ||
        echo libboost-program-options-dev
    has_header nlohmann/json.hpp || echo nlohmann-json3-dev
    can_make_environment || echo python3-venv
    [ $tests = 1 ] || return 0
    { has_header gtest/gtest.h && has_library libgtest.a; } || echo libgtest-dev
    { has chromium && has chromedriver; } || echo chromium chromium-driver fonts-dejavu-core
    has shellcheck || echo shellcheck
    [ "$(id -u)" = 0 ] || return 0  # the tests labelled root
    { has_daemon slurmctld && has_daemon slurmd && has_daemon munged; } || echo slurm-wlm munge
    has_daemon ip || echo iproute2
}
install_system_packages() {
    local missing
    missing=$(missing_packages | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    has apt-get || stop "missing: $missing (Debian's names), and no apt-get here to install them"
    [ "$(id -u)" = 0 ] ||
        stop "missing: $missing; without root I cannot install them: apt-get install $missing"
    say "installing Debian packages: $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || stop "apt-get update failed, needed to install: $missing"
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing > "$log" 2>&1 ||
        { tail -n 20 "$log" >&2; stop "apt-get could not install: $missing"; }
}

# --- Python packages
check_python_version() {
    local python
    python=$(base_python)
    "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
        stop "$python is $("$python" -V); name a Python 3.11 to 3.14 in TRAINSUITE_PYTHON"
}
make_environment() {
    if [ ! -x "$prefix/bin/pip" ]; then
        say "making the Python environment $prefix"
        "$(base_python)" -m venv "$prefix" || stop "cannot make a Python environment in $prefix"
    fi
    mkdir -p "$kept"
    echo "$mpi" > "$kept/mpi"
    echo "$architectures" > "$kept/architectures"
}
# The stamp holds the hash of what was installed, so an unchanged list costs no pip run.
install_requirements() {
    local list=$1 stamp="$kept/$1.sha256" hash
    hash=$(sha256sum < "$list")
    [ ! -e "$stamp" ] || [ "$hash" != "$(cat "$stamp")" ] || return 0
    say "installing Python packages of $list"
    local from=()
    [ -z "$wheels" ] || from=(--no-index --find-links "$wheels")
    "$prefix/bin/python3" -m pip install -q --disable-pip-version-check --no-warn-script-location \
        "${from[@]}" -r "$list" || stop "pip could not install $list into $prefix"
    echo "$hash" > "$stamp"
}
# The CUDA wheels lack the names that compilers look for: lib64, and libX.so beside libX.so.N.
link_cuda_names() {
    local cuda
    for cuda in "$prefix"/lib/python3*/site-packages/nvidia/cu13; do
        [ -d "$cuda/lib" ] || stop "no CUDA wheels in $prefix: remove it and start again"
        [ -e "$cuda/lib64" ] || ln -s lib "$cuda/lib64"
        local library name
        for library in "$cuda"/lib/lib*.so.*; do
            name=${library%%.so.*}.so
            [ -e "$name" ] || ln -s "$(basename "$library")" "$name"
        done
    done
}
# Rewrites our block at the end of activate, so that a repeat adds nothing.
patch_activate() {
    local activate="$prefix/bin/activate" block
    # shellcheck disable=SC2016  # VIRTUAL_ENV is known when the file is sourced
    block=$(
        echo "# >>> trainsuite: what mpirun needs here (root, more ranks than cores)"
        echo "TRAINSUITE_ENV=mpi"
        [ -z "$mpi" ] || echo "export TRAINSUITE_MPI='$mpi'"
        echo '[ ! -r "$VIRTUAL_ENV/share/trainsuite/env.sh" ] ||'
        echo '    . "$VIRTUAL_ENV/share/trainsuite/env.sh"'
        echo "unset TRAINSUITE_ENV"
        echo "# <<< trainsuite"
    )
    sed -i '/^# >>> trainsuite/,/^# <<< trainsuite/d' "$activate"
    echo "$block" >> "$activate"
}

# --- build
configure() {
    local arguments=(-DTRAINSUITE_PYTHON="$prefix/bin/python3" -DCMAKE_INSTALL_PREFIX="$prefix")
    [ -z "$architectures" ] ||
        arguments+=(-DTRAINSUITE_CUDA_ARCHITECTURES="${architectures// /;}")
    [ -z "$mpi" ] || arguments+=(-DMPI_HOME="$mpi")
    if has ccache; then
        arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    local preset=release
    # Once the tests are part of a build folder they stay: jobs/run.sh need not build anew.
    if [ $tests = 1 ] || grep -qs '^TRAINSUITE_TESTS:BOOL=ON' build/CMakeCache.txt; then
        preset=tests
    fi
    local wanted
    wanted="$preset ${arguments[*]} $(cat "$kept"/*.sha256 | sha256sum)"
    if [ -e build/build.ninja ] && [ "$wanted" = "$(cat build/setup.stamp 2> /dev/null)" ]; then
        return
    fi
    say "configuring (preset $preset)"
    # --fresh: nothing that was found in another environment may linger.
    "$prefix/bin/cmake" --fresh --preset "$preset" "${arguments[@]}" > "$log" 2>&1 ||
        { grep -v '^-- ' "$log" | tail -n 40 >&2; stop "configuring failed"; }
    echo "$wanted" > build/setup.stamp
}
# Whether the installed program is as new as its sources and can load here; then a machine without
# compilers (a compute node that shares this folder) need not have any.
up_to_date() {
    local installed="$kept/installed"
    [ $tests = 0 ] && [ $build = 1 ] && [ -e "$installed" ] && [ -x "$prefix/bin/trainsuite" ] &&
        has mpirun && [ "$settings" = "$(cat "$installed")" ] &&
        [ -z "$(find CMakeLists.txt CMakePresets.json requirements.txt cmake src suites jobs \
            analysis -type f -newer "$installed" ! -name '*.pyc' -print -quit)" ] &&
        ! ldd "$prefix/bin/trainsuite" 2>&1 | grep -q 'not found'
}
build_and_install() {
    say "building"
    "$prefix/bin/cmake" --build build > "$log" 2>&1 ||
        { tail -n 60 "$log" >&2; stop "the build failed"; }
    "$prefix/bin/cmake" --install build > "$log" 2>&1 ||
        { tail -n 20 "$log" >&2; stop "installing into $prefix failed"; }
    echo "$settings" > "$kept/installed"
}

parse "$@"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
settings="mpi=$mpi architectures=$architectures"
! up_to_date || exit 0
install_system_packages
check_python_version
make_environment
install_requirements requirements.txt
[ $tests = 0 ] || install_requirements requirements-test.txt
link_cuda_names
patch_activate
[ $build = 1 ] || exit 0
export PATH="$prefix/bin:$PATH"
configure
build_and_install
say "done: . $prefix/bin/activate"
