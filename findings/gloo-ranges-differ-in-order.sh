#!/bin/sh
# Every rank asks for the same collectives in the same order, yet the ranges that torch.profiler records of gloo may come in
# another order on another rank: a process group of gloo has two threads, and of two collectives that were asked for at once either
# thread may open its range first. It happened once or twice in 3,000 pairs on an idle machine, and in 2 of 126 steps of DDP jobs
# with two buckets. What matches the collectives of ranks by their place in the trace, as it may with NCCL, pairs a large one with a
# small one. The operators that ask for them, c10d::allreduce_, are always in the same order.
# The file fails when any of this changes. It downloads torch.
#
# Seen with Python 3.11.7, torch 2.13.0:
#   each rank asks for the large one first in every step: True
#   gloo's ranges of a step differ in order between the ranks: True
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.13.0 numpy==2.4.6
cat >"$work/rank.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

rank, folder, seen = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{seen}", rank=rank, world_size=2)
small, large = torch.ones(64), torch.ones(192)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for step in range(3000):
        with record_function(f"step {step}"):
            for work in [dist.all_reduce(large, async_op=True), dist.all_reduce(small, async_op=True)]:
                work.wait()
profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
dist.barrier()
dist.destroy_process_group()
PYTHON
cat >"$work/seen.py" <<'PYTHON'
import json
import subprocess
import sys
from bisect import bisect_right

folder = sys.argv[1]


def by_step(events, name, size_of):
    """The sizes of a step's events, in the order of their starts."""
    steps = sorted(e["ts"] for e in events if str(e.get("name", "")).startswith("step "))
    found = [[] for _ in steps]
    for event in sorted((e for e in events if e.get("name") == name), key=lambda e: e["ts"]):
        found[bisect_right(steps, event["ts"]) - 1].append(size_of(event["args"]))
    return found


asked, differs = True, False
for attempt in range(20):
    command = [sys.executable, "-W", "ignore", f"{folder}/rank.py"]
    ranks = [subprocess.Popen([*command, str(r), folder, f"{folder}/group{attempt}"]) for r in (0, 1)]
    assert [one.wait() for one in ranks] == [0, 0]
    traces = [json.load(open(f"{folder}/rank{r}.json"))["traceEvents"] for r in (0, 1)]
    calls = [by_step(one, "c10d::allreduce_", lambda args: args["Input Dims"][0][0]) for one in traces]
    ranges = [by_step(one, "gloo:all_reduce", lambda args: args["Input Dims"][0]) for one in traces]
    asked &= all(step == [[192], [64]] for one in calls for step in one)
    differs = any(a != b and sorted(a) == sorted(b) for a, b in zip(*ranges, strict=True))
    if differs:
        break
print(f"each rank asks for the large one first in every step: {asked}")
print(f"gloo's ranges of a step differ in order between the ranks: {differs}")
PYTHON
"$work/env/bin/python" "$work/seen.py" "$work" >"$work/seen" 2>/dev/null
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
