#!/bin/bash
# try.sh: `perfkit try` of a program with a step of about 3 ms on the GPU. Checked: a change that halves the
# step is accepted, a wrong one that looks faster is rejected, within 75 s and 45 s; an answer for a change that changes
# nothing is no acceptance (70 s more). Printed: where the time goes (imports with and without bytecode, one run alone).
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/try; rm -rf $W; mkdir -p $W/project; OUT=${OUT:-$W}; ROOT=$PWD
cd $W/project
cat > train.py <<'PY'
import torch
from torch import nn

LAYERS, EXTRA, RATE = 24, 1, 0.5
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU()) for _ in range(LAYERS))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
x, y = torch.randn(512, 256, device="cuda"), torch.randn(512, 256, device="cuda")
for step in range(4000):
    for _ in range(EXTRA):  # the waste: a forward pass that nobody uses, and a wait
        with torch.no_grad():
            model(x).sum().item()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
PY
git init -q; git -c user.email=a@b -c user.name=c add . ; git -c user.email=a@b -c user.name=c commit -qm first
since() { python3 -c "import time; print(f'{time.time() - $1:.1f}')"; }
t=$(date +%s.%N); python3 -c "import torch"; echo "     import torch, first: $(since $t) s"
t=$(date +%s.%N); python3 -c "import torch"; echo "     import torch, again: $(since $t) s"
t=$(date +%s.%N); PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/tmp/none python3 -c "import torch"; echo "     import torch without bytecode: $(since $t) s"
t=$(date +%s.%N); python3 -c "import torch; torch.ones(1, device='cuda').sum().item()"; echo "     and a first kernel: $(since $t) s"
t=$(date +%s.%N); python3 -c "import torch, os; torch.ones(1, device='cuda').sum().item(); os._exit(0)"; echo "     and no teardown: $(since $t) s"
t=$(date +%s.%N); python3 -m perfkit try --help >/dev/null; echo "     perfkit try --help: $(since $t) s"
fail=0
one() {  # NAME, sed expression, expected decision pattern, limit, options...
  n=$1; e=$2; want=$3; limit=$4; shift 4
  git checkout -q train.py; sed -i "$e" train.py
  t=$(date +%s.%N)
  timeout 200 python3 -m perfkit try "$@" --brief -- python3 train.py >$W/$n.json 2>$W/$n.err; rc=$?
  s=$(since $t)
  python3 - "$W/$n.json" "$n" "$want" "$s" "$limit" $rc <<'PY' || fail=1
import json, sys
path, name, want, took, limit, rc = sys.argv[1:]
try:
    one = json.load(open(path))
except Exception:
    print(f"FAIL {name}: no answer in {took} s (exit {rc})"); sys.exit(1)
good = one["decision"] in want.split("|") and float(took) <= float(limit)
step = (one.get("pairs") or [{}])[0].get("step")
print(f"{'OK  ' if good else 'FAIL'} {name}: {one['decision']} in {took} s (limit {limit}): {one['verdict'][0][:200]} | {json.dumps(step)[:300]}")
sys.exit(not good)
PY
  tail -3 $W/$n.err | cut -c1-200
}
{ one faster 's/EXTRA, RATE = 24, 1,/EXTRA, RATE = 24, 0,/' accept 75
  one wrong 's/= 24, 1, 0.5/= 24, 0, 1.0/' reject 45
  [ -n "$SAME" ] && one same 's/# the waste:/# waste:/' "reject|cannot tell" 100
  git checkout -q train.py; } 2>&1 | tee $OUT/try.txt; grep -q ^FAIL $OUT/try.txt && fail=1
[ $fail = 0 ] && echo "try.sh: OK" || { echo "try.sh: FAIL"; exit 1; }
