#!/bin/sh
# FlopCounterMode registers hooks at every nn.Module that is called under it, so that it can sum by module. A gradient of a gradient
# through a module (a gradient penalty, a Hessian-vector product: torch.autograd.grad with create_graph=True) then ends in a
# RuntimeError that speaks of autograd's engine and names neither the mode nor the hooks. The same computation by functions is counted.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   by functions: 192 FLOP
#   by a module: RuntimeError, which names FlopCounterMode: False
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
ways = {"by functions": lambda: torch.nn.functional.linear(x, layer.weight), "by a module": lambda: layer(x)}
for name, forward in ways.items():
    try:
        with FlopCounterMode(display=False) as counter:
            (gradient,) = torch.autograd.grad(forward().sum(), x, create_graph=True)
            gradient.sum().backward()
        print(f"{name}: {counter.get_total_flops()} FLOP")
    except RuntimeError as error:
        print(f"{name}: RuntimeError, which names FlopCounterMode: {'FlopCounter' in str(error)}")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
