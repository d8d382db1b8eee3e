#!/bin/sh
# On Python 3.11, torch.profiler with with_stack=True takes the interpreter's profile function and gives none back: a cProfile
# that a program had switched on before counts nothing from there on, without an error or a warning. Without stacks it counts on.
# A program that is measured by cProfile as a whole therefore loses all that follows a profiled step.
# The file fails when any of this changes. It downloads torch, and needs Python 3.11 (PYTHON names another interpreter).
#
# Seen with Python 3.11.7, torch 2.13.0:
#   with_stack=False: 200 of 200 calls counted
#   with_stack=True: 100 of 200 calls counted
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import cProfile
import pstats
import torch
from torch.profiler import ProfilerActivity, profile

def counted_by_hand():
    return sum(range(10))

def calls():
    for _ in range(100):
        counted_by_hand()

for stacks in (False, True):
    profiler = cProfile.Profile()
    profiler.enable()
    calls()
    with profile(activities=[ProfilerActivity.CPU], with_stack=stacks):
        torch.ones(3)
    calls()
    profiler.disable()
    rows = pstats.Stats(profiler).stats
    count = sum(row[0] for (_, _, name), row in rows.items() if name == "counted_by_hand")
    print(f"with_stack={stacks}: {count} of 200 calls counted")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
