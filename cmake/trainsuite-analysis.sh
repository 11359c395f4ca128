#!/bin/sh
# trainsuite-NAME: the installed analysis/NAME.py (- in NAME is _ there) with the environment's
# Python.
name=$(basename "$0" | tr - _)
here=$(dirname "$(readlink -f "$0")")
python=$here/python3
[ -x "$python" ] || python=python3
exec "$python" "$here/../share/trainsuite/analysis/${name#trainsuite_}.py" "$@"
