#!/bin/bash
# fp8.sh: fp8 on a GPU, in parts that say on their own what they found; `fp8.sh kernels llmc` runs some. Files in $OUT.
# kernels (casts and products: right, and how fast; 40 s), small (GPT-2 and Llama `tiny` on all backends beside eager, 60 s),
# llmc (Llama 1b at 16,384 tokens, bf16 and fp8 in turns, joules; 60 s), compile (a quarter of it: 4 layers and a quarter of
# the vocabulary, so that the parts keep their shares; 70 s), run (a whole `perfkit run gpt2 --dtype fp8`; 150 s).
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore  # in the root of the repository
W=/tmp/fp8; OUT=${OUT:-$W}; mkdir -p $OUT
parts=${*:-kernels small llmc compile run}
nvidia-smi --query-gpu=name,power.limit,driver_version --format=csv,noheader | head -1 | tee $OUT/device.txt
say() { echo "== $1 ($SECONDS s)"; }
beside() { # name, then the arguments of fp8_beside.py
    timeout 110 python3 benchmarks/fp8_beside.py "${@:2}" --variant sdpa --device cuda --out $OUT/$1.json > $OUT/$1.txt 2>&1
    echo "rc $?" >> $OUT/$1.txt; grep -v "^ok" $OUT/$1.txt | cut -c1-120 | tail -60
}
for part in $parts; do
    say $part
    case $part in
    kernels)
        for given in "fp8_amax bf16" "fp8_cast bf16" "fp8_gradient bf16" "_amax_ bf16" "fp8_linear e4m3"; do
            set -- $given
            timeout 60 python3 benchmarks/gpu_kernels.py --only $1 --dtype $2 2>&1 | tee -a $OUT/kernels.txt | tail -12
        done ;;
    small)
        for workload in gpt2 llama; do
            beside small-$workload $workload --preset tiny -B 4 -T 128 --losses 50 --backend eager,llmc,thunder-llmc
        done ;;
    llmc) beside llama1b-llmc llama --preset 1b -B 8 -T 2048 --backend llmc ;;
    compile)
        beside llama1b-quarter llama --preset 1b --dim layers=4 --dim vocabulary=32064 -B 8 -T 2048 --backend compile,llmc ;;
    run)
        timeout 240 python3 -m perfkit run gpt2 --dtype fp8 --backend compile,llmc,thunder-llmc -B 16 -T 1024 --variant sdpa \
            --device cuda --steps 5 --out /tmp/fp8run > $OUT/run.txt 2>&1
        echo "rc $?" | tee -a $OUT/run.txt
        python3 - <<'P' 2>&1 | tee $OUT/correctness.txt | head -40
import json
run = json.load(open("/tmp/fp8run/run.json"))
for b in run["backends"]:
    print(b["name"], b["status"], b.get("reason", ""), b.get("losses"))
    checks = (b.get("correctness") or {}).get("checks", [])
    for c in sorted(checks, key=lambda c: -(c["error"] or 9) / c["allowed"])[:10]:
        print("   ", c)
    for c in checks:
        if c["name"].endswith("by itself"):
            print("   ", c["name"], c["error"], c["ok"])
P
        grep -A14 "^Backends" $OUT/run.txt | head -16 ;;
    esac
done
say "end"
