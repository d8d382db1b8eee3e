#!/bin/sh
# torch.profiler writes the names of ranges into its Chrome trace without escaping them. A double quote in the name of one
# `record_function` makes the whole file invalid JSON; a backslash becomes a slash; a newline vanishes; and a name that holds one
# character outside printable ASCII is exported as "unknown", all of it. The functions of the profiler in Python, such as
# key_averages(), show every name as it is. So a trace that cannot be read, or time that belongs to "unknown", is the name's doing.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   in Python: ['back\\slash', 'two\nlines', 'ключ']
#   in the trace: ['back/slash', 'twolines', 'unknown']
#   with a quote: the trace is JSON: False
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import json
import sys
from torch.profiler import ProfilerActivity, profile, record_function

def traced(*names):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for name in names:
            with record_function(name):
                pass
    path = sys.argv[1] + "/trace.json"
    profiler.export_chrome_trace(path)
    return [event.key for event in profiler.key_averages()], open(path, encoding="utf-8").read()

names, text = traced("back\\slash", "two\nlines", "ключ")
print("in Python:", names)
events = json.loads(text)["traceEvents"]
print("in the trace:", [e["name"] for e in events if e.get("cat") == "user_annotation"])
try:
    json.loads(traced('say "hello"')[1])
    print("with a quote: the trace is JSON: True")
except ValueError:
    print("with a quote: the trace is JSON: False")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" "$work" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
