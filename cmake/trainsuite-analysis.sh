#!/bin/sh
# trainsuite-NAME: the installed analysis/NAME.py with the environment's Python.
name=$(basename "$0")
here=$(dirname "$(readlink -f "$0")")
python=$here/python3
[ -x "$python" ] || python=python3
exec "$python" "$here/../share/trainsuite/analysis/${name#trainsuite-}.py" "$@"
