#!/bin/sh
# A range of torch.profiler.record_function is opened and closed by operators that are dispatched. Any TorchDispatchMode of a
# program therefore sees them among its own operators: FlopCounterMode, a policy of selective checkpointing, a mode that counts.
# In the profile the mode's own event, PythonDispatchMode, lies around the operator that opens the range, and the range outlasts
# it: the two cross, and a reader that nests events by time loses what lies in the range.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   the mode saw: ['profiler._record_function_enter_new', 'aten.ones', 'profiler._record_function_exit']
#   the range began in an event PythonDispatchMode: True, and outlasts it: True
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import json
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function).removesuffix(".default").removesuffix("._RecordFunction"))
        return function(*args, **(kwargs or {}))

with profile(activities=[ProfilerActivity.CPU]) as profiler, Names() as names, record_function("mine"):
    torch.ones(1000)
print("the mode saw:", names.seen)
path = sys.argv[1] + "/trace.json"
profiler.export_chrome_trace(path)
events = [e for e in json.load(open(path))["traceEvents"] if e.get("ph") == "X"]
mine = next(e for e in events if e["name"] == "mine")
around = [e for e in events if e["name"] == "PythonDispatchMode" and e["ts"] <= mine["ts"] <= e["ts"] + e["dur"]]
outlasts = bool(around) and mine["ts"] + mine["dur"] > around[0]["ts"] + around[0]["dur"]
print(f"the range began in an event PythonDispatchMode: {bool(around)}, and outlasts it: {outlasts}")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" "$work" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
