#!/bin/sh
# A tensor on the meta device has no memory, so making one should cost next to nothing. torch.randn, and with it each factory
# that PyTorch has for this device in Python only, costs more there than on the CPU, where it draws the numbers: the operator
# calls back into Python, and a trace shows prims::normal in place of aten::normal_. torch.zeros stays in C++.
# A profile of a program that "only makes shapes" (Thunder's runtime makes one such tensor in each pass) shows an aten::randn
# of 0.1 ms or more, which did no work.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   zeros cpu: aten::empty aten::zero_ aten::zeros
#   zeros meta: aten::empty aten::zeros
#   randn cpu: aten::empty aten::normal_ aten::randn
#   randn meta: aten::empty_strided aten::randn prims::normal
#   the empty randn takes longer than the full one: True
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/seen.py" <<'PYTHON'
from time import perf_counter

import torch
from torch.profiler import ProfilerActivity, profile

shortest = {}
for make in (torch.zeros, torch.randn):
    for device in ("cpu", "meta"):
        make(1, device=device)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            make(1, device=device)
        names = sorted({event.name for event in profiler.events()})
        print(f"{make.__name__} {device}: {' '.join(names)}")
        times = []
        for _ in range(200):
            begin = perf_counter()
            make(1, device=device)
            times.append(perf_counter() - begin)
        shortest[make, device] = min(times)
print(f"the empty randn takes longer than the full one: {shortest[torch.randn, 'meta'] > 2 * shortest[torch.randn, 'cpu']}")
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
