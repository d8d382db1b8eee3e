#!/bin/sh
# Print a Python interpreter that perfkit can use: 3.11 or newer, with the parts that make a virtual environment.
# One before 3.14 is preferred: Thunder needs it.
# Usage: find-python.sh [INTERPRETER]   (only that one is tried when it is given)
# Each candidate is started, not only looked for: a version manager's shim may exist and yet run nothing.
set -u

works='import sys; sys.exit(sys.version_info[:2] < (3, 11))'
has_venv='import venv, ensurepip'
without_venv=

for python in ${1:-python3.13 python3.12 python3.11 python3 python python3.14}; do
    "$python" -c "$works" >/dev/null 2>&1 || continue
    if "$python" -c "$has_venv" >/dev/null 2>&1; then
        command -v "$python"
        exit 0
    fi
    without_venv=${without_venv:-$python}
done

if [ -n "$without_venv" ]; then
    version=$("$without_venv" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    echo "$without_venv cannot make virtual environments: its venv or ensurepip module is missing." \
        "On Debian or Ubuntu: apt install $version-venv" >&2
elif [ -n "${1:-}" ]; then
    echo "$1 is not a Python 3.11 or newer that runs. Leave PYTHON= out to let make look for one." >&2
else
    echo "No Python 3.11 or newer was found. On Debian or Ubuntu: apt install python3 python3-venv;" \
        "elsewhere see https://www.python.org/downloads/, then: make PYTHON=/path/to/python3.13" >&2
fi
exit 1
