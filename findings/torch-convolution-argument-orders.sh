#!/bin/sh
# torch.profiler writes the arguments of an operator by position, without their names ("Input Dims", "Concrete Inputs"). Operators
# that do the same convolution have them in unlike orders, and between two libraries, or with and without a fused ReLU, they
# differ: cudnn_convolution takes the padding before the stride and no bias, cudnn_convolution_relu the stride before the padding,
# and miopen_convolution, with the padding first as well, has a bias in between. As padding and stride are both lists of two small
# integers, what reads one operator by the order of another gets sizes that look right, or none at all.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   mkldnn_convolution        bias 2  padding 3  stride 4  dilation 5
#   convolution               bias 2  stride 3  padding 4  dilation 5
#   cudnn_convolution         padding 2  stride 3  dilation 4
#   cudnn_convolution_relu    bias 2  stride 3  padding 4  dilation 5
#   miopen_convolution        bias 2  padding 3  stride 4  dilation 5
#   miopen_convolution_relu   bias 2  stride 3  padding 4  dilation 5
#   names of arguments in the trace of a convolution: False
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

NAMES = ("bias", "padding", "stride", "dilation")
OPERATORS = (
    "mkldnn_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_relu", "miopen_convolution",
    "miopen_convolution_relu",
)
for name in OPERATORS:
    arguments = [one.name for one in getattr(torch.ops.aten, name).default._schema.arguments]
    print(f"{name:25}", "  ".join(f"{one} {place}" for place, one in enumerate(arguments) if one in NAMES))

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), stride=2, padding=1)
profiler.export_chrome_trace(sys.argv[1])
events = json.load(open(sys.argv[1]))["traceEvents"]
own = [one["args"] for one in events if one.get("name") in ("aten::convolution", "aten::_convolution")]
assert own and all("Concrete Inputs" in one for one in own)
print("names of arguments in the trace of a convolution:", any(word in json.dumps(own) for word in NAMES))
PYTHON
"$work/env/bin/python" "$work/seen.py" "$work/trace.json" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
