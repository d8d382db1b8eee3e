#!/bin/bash
# paced_steps.sh: one GPU, four free cores, about 130 s. Steps of a host-bound loop (about 575 launches, 12 ms) under `perfkit
# capture`, before and after the recorded ones, over those of the program alone. Hosts change their pace within seconds: the
# two run at the same time, each on two cores of its own, and change cores from turn to turn; six turns. Printed: the median
# of the six ratios of the steps and of the host's part of them. Limits of the steps: 1.03 before, 1.02 after.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
HERE=$(dirname "$0"); OUT=${OUT:-$(mktemp -d)}; CORES=(${CORES:-2,3 6,7}); mkdir -p $OUT
for turn in 0 1 2 3 4 5; do
  taskset -c ${CORES[$((turn % 2))]} python3 "$HERE/paced_steps.py" $OUT/alone$turn.json &
  taskset -c ${CORES[$((1 - turn % 2))]} python3 -m perfkit capture --overwrite --out $OUT/captured \
    -- python3 "$HERE/paced_steps.py" $OUT/captured$turn.json >$OUT/captured$turn.txt 2>&1
  wait
done
python3 - $OUT <<'PY'
import json, statistics, sys
sides = [[json.load(open(f"{sys.argv[1]}/{side}{turn}.json")) for turn in range(6)] for side in ("alone", "captured")]
wrong = 0
for span, limit in (("before", 1.03), ("after", 1.02)):
    for what in ("step", "host"):
        alone, captured = ([one[span][what] for one in side] for side in sides)
        ratios = [b / a for a, b in zip(alone, captured)]
        middle = statistics.median(ratios); wrong += what == "step" and middle > limit
        word = "     " if what == "host" else "FAIL " if middle > limit else "OK   "
        shown = [", ".join(f"{one:.2f}" for one in side) for side in (alone, captured)]
        print(f"{word}{span} the recording, {what}: {middle:.3f} (limit {limit}; turns {', '.join(f'{r:.3f}' for r in ratios)})")
        print(f"     ms: alone {shown[0]}; under capture {shown[1]}")
sys.exit(wrong > 0)
PY
