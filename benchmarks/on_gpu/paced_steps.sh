#!/bin/bash
# paced_steps.sh: steps of a host-bound loop (about 575 launches, 12 ms) alone and under `perfkit capture`, five turns; and once
# with TEARDOWN_CUPTI=0, which leaves CUPTI attached. Hosts change their pace within seconds: each step is divided by the
# time of a fixed piece of Python next to it. Printed: step ms, piece ms, median of their ratio, before and after the
# recording. Limits: 1.03 before, 1.02 after, of the medians of the ratios. About 150 s.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
HERE=$(dirname "$0"); OUT=${OUT:-$(mktemp -d)}
for turn in 1 2 3 4 5; do
  VARIANT=alone python3 "$HERE/paced_steps.py"
  VARIANT=captured python3 -m perfkit capture --overwrite --out "$OUT/captured" -- python3 "$HERE/paced_steps.py" 2>&1 | grep "^RESULT"
done
VARIANT=attached TEARDOWN_CUPTI=0 python3 -m perfkit capture --overwrite --no-lines --out "$OUT/attached" -- python3 "$HERE/paced_steps.py" 2>&1 | grep "^RESULT"
