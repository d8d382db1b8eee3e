#!/bin/bash
# paced_steps.sh: one GPU, four free cores, about 130 s. Steps of a host-bound loop (about 575 launches, 12 ms) under `perfkit
# capture`, before and after the recorded ones, over those of the program alone at the same time (beside.py): each on two
# cores of its own, which they change from turn to turn; TURNS turns (6). Limits: 1.03 before, 1.02 after.
# `PROGRAM=launch_pace.py paced_steps.sh`: the same of launches of a Triton kernel.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
PROGRAM=$(dirname "$0")/${PROGRAM:-paced_steps.py}; OUT=$(mktemp -d); CORES=(${CORES:-2,3 6,7})
for ((turn = 0; turn < ${TURNS:-6}; turn++)); do
  taskset -c ${CORES[$((turn % 2))]} python3 $PROGRAM $OUT/alone$turn.json &
  taskset -c ${CORES[$((1 - turn % 2))]} python3 -m perfkit capture --warmup 120 --steps 3 --overwrite --out $OUT/captured \
    -- python3 $PROGRAM $OUT/captured$turn.json >$OUT/captured$turn.txt 2>&1
  wait
done
python3 "$(dirname "$0")/beside.py" $OUT
