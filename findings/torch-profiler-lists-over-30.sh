#!/bin/sh
# torch.profiler with record_shapes=True records lists of at most 30 elements. A longer one is not marked as cut or left out: it is
# an empty list, next to the type TensorList, so that a cat of 31 tensors reads like a cat of none. The same holds for lists of
# numbers, such as the sizes of a split. What adds up bytes or FLOP from shapes loses the whole call: of models with more than 30
# parameters every step of a foreach or fused optimizer, and every gather of FSDP.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   30 tensors: cat records 30 shapes, _foreach_add_ 30, split_with_sizes 30 sizes
#   31 tensors: cat records 0 shapes, _foreach_add_ 0, split_with_sizes 0 sizes
#   31 tensors: the type of cat's first argument is TensorList
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile


def recorded(count):
    tensors = [torch.ones(4) for _ in range(count)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        torch.cat(tensors)
        torch._foreach_add_(tensors, 1.0)
        torch.split_with_sizes(torch.ones(count), [1] * count)
    profiler.export_chrome_trace(sys.argv[1])
    events = json.load(open(sys.argv[1]))["traceEvents"]
    return {event["name"]: event["args"] for event in events if event.get("cat") == "cpu_op"}


for count in (30, 31):
    found = recorded(count)
    cat, add = (len(found[name]["Input Dims"][0]) for name in ("aten::cat", "aten::_foreach_add_"))
    sizes = found["aten::split_with_sizes"]["Concrete Inputs"][1].count("1")
    print(f"{count} tensors: cat records {cat} shapes, _foreach_add_ {add}, split_with_sizes {sizes} sizes")
print(f"31 tensors: the type of cat's first argument is {found['aten::cat']['Input type'][0]}")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" "$work/trace.json" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
