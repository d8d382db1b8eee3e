#!/bin/sh
# torch.profiler can record the operators of all threads of Python (profile_all_threads of _ExperimentalConfig). With it, no
# allocation is reported any more: profile_memory=True leaves the trace without a single [memory] event, and no warning says so.
# Who wants the operators of a pool of threads and who holds the memory has to profile twice.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   one thread: memory events recorded: True, operators: True
#   all threads: memory events recorded: False, operators: True
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import json
import sys
import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

for name, options in (("one thread", {}), ("all threads", {"profile_all_threads": True})):
    config = _ExperimentalConfig(**options)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, experimental_config=config) as profiler:
        torch.randn(300, 300) @ torch.randn(300, 300)
    path = sys.argv[1] + "/trace.json"
    profiler.export_chrome_trace(path)
    names = [event.get("name") for event in json.load(open(path))["traceEvents"]]
    print(f"{name}: memory events recorded: {'[memory]' in names}, operators: {'aten::mm' in names}")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" "$work" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
