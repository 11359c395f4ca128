#!/bin/sh
# Reads result files: the installed analysis/results.py with the environment's Python.
here=$(dirname "$(readlink -f "$0")")
python=$here/python3
[ -x "$python" ] || python=python3
exec "$python" "$here/../share/trainsuite/analysis/results.py" "$@"
