#!/bin/bash
# fp8.sh: fp8 next to bf16 on a GPU: Llama 1b with 8 layers on `compile` in turns (ms, joules, kernels; about 90 s), and a
# whole `perfkit run gpt2 --dtype fp8` on `compile` (about 150 s). Files in $OUT.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/fp8; OUT=${OUT:-$W}; mkdir -p $OUT
export PYTHONPATH=$PYTHONPATH:$PWD PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
nvidia-smi --query-gpu=name,power.limit,driver_version --format=csv,noheader | head -1 | tee $OUT/device.txt
say() { echo "== $1 ($SECONDS s)"; }
say "llama 1b of 8 layers, compile, bf16 and fp8 in turns (B*T = 16384)"
timeout 100 python3 benchmarks/fp8_beside.py llama --preset 1b --dim layers=8 -B 8 -T 2048 --variant sdpa --backend compile --device cuda --out $OUT/llama1b.json 2>&1 | tee $OUT/llama1b.txt | grep -v "^ok" | cut -c1-150
say "perfkit run gpt2 124M, eager and compile, fp8"
timeout 180 python3 -m perfkit run gpt2 --dtype fp8 --backend compile -B 16 -T 1024 --variant sdpa --device cuda --steps 5 --out /tmp/fp8run > $OUT/run.txt 2>&1; echo "rc $?" | tee -a $OUT/run.txt
python3 - <<'P' 2>&1 | tee $OUT/correctness.txt | head -40
import json
run = json.load(open("/tmp/fp8run/run.json"))
for b in run["backends"]:
    print(b["name"], b["status"], b.get("reason", ""), b.get("losses"))
    checks = (b.get("correctness") or {}).get("checks", [])
    for c in sorted(checks, key=lambda c: -(c["error"] or 9) / c["allowed"])[:14]:
        print("   ", c)
    for c in checks:
        if c["name"].endswith("by itself"):
            print("   ", c["name"], c["error"], c["ok"])
P
grep -A14 "^Backends" $OUT/run.txt | head -16
say "end"
