#!/bin/sh
# An Execution Trace (Chakra's input, torch.profiler.ExecutionTraceObserver) lists the arguments of each operator. A bias that
# is not there is None at the outer operator of a convolution. At the operators inside, which get the same bias, it is a tensor:
# its type is "Tensor(nullptr (uninitialized))", and it has an id, as if one tensor went into several operators. A reader that
# follows tensors by their ids joins operators that share nothing. The trace of the same profiler has "" at both.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   aten::conv1d: trace '' execution trace None <None>
#   aten::_convolution: trace '' execution trace Tensor(nullptr (uninitialized)) id given
#   the id is that of the bias of every operator inside: True
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import json
import sys
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

folder, place = Path(sys.argv[1]), 2  # of the bias among the arguments
observer = ExecutionTraceObserver().register_callback(str(folder / "execution.json"))
x, weight = torch.ones(1, 1, 8), torch.ones(1, 1, 3)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer) as profiler:
    torch.nn.functional.conv1d(x, weight)
profiler.export_chrome_trace(str(folder / "trace.json"))
nodes = json.loads((folder / "execution.json").read_text())["nodes"]
events = json.loads((folder / "trace.json").read_text())["traceEvents"]
for name in ("aten::conv1d", "aten::_convolution"):
    inputs = next(node["inputs"] for node in nodes if node["name"] == name)
    event = next(event for event in events if event.get("name") == name)
    kind, value = inputs["types"][place], inputs["values"][place]
    shown = "id given" if isinstance(value, list) and value[0] > 0 else value
    print(f"{name}: trace {event['args']['Input type'][place]!r} execution trace {kind} {shown}")
lost = [
    value[0]
    for node in nodes
    for kind, value in zip(node["inputs"]["types"], node["inputs"]["values"])
    if "nullptr" in kind
]
print("the id is that of the bias of every operator inside:", len(lost) > 1 and len(set(lost)) == 1)
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" "$work" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
