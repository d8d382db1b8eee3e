#!/bin/bash
# launch_pace.sh: one GPU, two free cores, about 110 s. What a launch of a Triton kernel takes the host under `perfkit
# capture`, before and after the recorded steps, over what it takes alone. Hosts change their pace within seconds: the two
# run at the same time, each on a core of its own, and change cores from turn to turn; six turns. Printed: the two sides'
# µs a launch, and the median of the six ratios, before and after. Limit 1.02.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
HERE=$(dirname "$0"); OUT=${OUT:-$(mktemp -d)}; CORES=(${CORES:-2 6}); mkdir -p $OUT
python3 "$HERE/launch_pace.py" $OUT/first.json  # compiles the kernel
for turn in 0 1 2 3 4 5; do
  taskset -c ${CORES[$((turn % 2))]} python3 "$HERE/launch_pace.py" $OUT/alone$turn.json &
  taskset -c ${CORES[$((1 - turn % 2))]} python3 -m perfkit capture --warmup 30 --steps 3 --overwrite \
    --out $OUT/captured -- python3 "$HERE/launch_pace.py" $OUT/captured$turn.json >$OUT/captured$turn.txt 2>&1
  wait
done
python3 - $OUT <<'PY'
import json, statistics, sys
sides = [[json.load(open(f"{sys.argv[1]}/{side}{turn}.json")) for turn in range(6)] for side in ("alone", "captured")]
wrong = 0
for span in ("before", "after"):
    alone, captured = ([one[span] for one in side] for side in sides)
    ratios = [b / a for a, b in zip(alone, captured)]
    middle = statistics.median(ratios); wrong += middle > 1.02
    shown = [", ".join(f"{one:.2f}" for one in side) for side in (alone, captured)]
    print("FAIL" if middle > 1.02 else "OK  ", f"{span} the recording: {middle:.3f} (limit 1.02; turns {', '.join(f'{r:.3f}' for r in ratios)})")
    print(f"     us a launch: alone {shown[0]}; under capture {shown[1]}")
sys.exit(wrong > 0)
PY
