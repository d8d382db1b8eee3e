#!/bin/bash
# attention.sh: one Hopper GPU, about 300 s. Attention of 32 kinds (flash, cuDNN, efficient, flex; causal and full; T = 1024
# and 4096; D = 64 and 128), forward and backward: FLOP of perfkit's rows equal to a count by hand, and their efficiency
# within 10 points of the tensor pipe's share of the same kernel by ncu. That share is the pipe's rate of dense products, twice
# sm__ops_path_tensor_src_bf16_dst_fp32 (whose peak is of sparse ones): kernels built for sm_80 (flash, efficient) use
# mma.sync, which keeps the pipe active for 1.5 to 2 times the cycles of wgmma; the active share stands next to it.
# Flex's backward computes two products a second time: its share is held against 7/5 of the efficiency.
# Files: attention.txt, ncu.csv.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
HERE=$(dirname "$0"); W=/tmp/attention; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W/out}; mkdir -p $OUT; : > $OUT/attention.txt
M=sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,sm__ops_path_tensor_src_bf16_dst_fp32.avg.pct_of_peak_sustained_elapsed,gpu__time_duration.sum
timeout 200 python3 -m perfkit capture --out $W/cap --overwrite --warmup 4 --steps 2 --no-lines -- python3 $HERE/attention.py capture >$W/cap.txt 2>&1
echo "capture rc $?, $SECONDS s" | tee -a $OUT/attention.txt; grep -a "^!\|rror" $W/cap.txt | head -5
timeout 330 ncu --profile-from-start off --clock-control none --metrics $M --csv --page raw --log-file $OUT/ncu.csv python3 $HERE/attention.py ncu >$W/ncu.txt 2>&1
echo "ncu rc $?, $SECONDS s" | tee -a $OUT/attention.txt
cat > $W/check.py <<'PY'
import csv, sys, warnings; warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[3])
import attention, perfkit
from perfkit import table as columns
from perfkit.hardware import store
reading = perfkit.read(sys.argv[1]); f = reading.table.frame; f = f[f.kind == "gpu_kernel"]
roof = store.load_or_measure("cuda:0").compute["matrix_bf16"]
print(f"     roof {roof / 1e12:.0f} TFLOP/s")
text = [line for line in open(sys.argv[2], errors="replace") if line.startswith('"')]
rows = list(csv.DictReader(text))[1:]  # the first has the units
segments = [[]]
for row in rows:
    if "triu_tril" in row["Kernel Name"]: segments.append([])
    else: segments[-1].append(row)
def number(row, start): return float(next(v for k, v in row.items() if k and k.startswith(start)).replace(",", ""))
wrong = 0
flop = f[[c for c in columns.FLOP_COLUMNS if "matrix" in c]].sum(axis=1)
steps = f.step.dropna().nunique()
for at, kind in enumerate(attention.KINDS):
    name = attention.name_of(kind); way, causal, T, D = kind
    for which, hand in zip(("forward", "backward"), attention.by_hand(kind)):
        mine = (f.module.astype(str).str.contains(name)) & (f["pass"] == which) & (flop > 0)
        done, spent = flop[mine].sum() / steps, f.duration_ns[mine].sum() / steps
        segment = segments[2 * at + (which == "backward")] if 2 * at + 1 < len(segments) else []
        if not spent or not segment:
            print("FAIL", name, which, "has no row" if not spent else "is not in ncu's capture"); wrong += 1; continue
        main = max(segment, key=lambda row: number(row, "sm__pipe_tensor"))
        active, rate = number(main, "sm__pipe_tensor"), 2 * number(main, "sm__ops_path")
        own = 100 * done / (spent / 1e9) / roof
        as_run = own * (7 / 5 if way == "flex" and which == "backward" else 1)
        good = abs(done / hand - 1) < 1e-3 and abs(as_run - rate) <= 10; wrong += not good
        print("OK  " if good else "FAIL", f"{name} {which}: FLOP {done / hand - 1:+.2%} of {hand:.4g}, {spent / 1e3:.0f} us, {done / spent / 1e3:.0f} TFLOP/s, efficiency {own:.1f} %, tensor pipe {rate:.1f} % ({as_run - rate:+.1f}), active {active:.1f} % ({as_run - active:+.1f}); {main['Kernel Name'][:50]}")
print("FAIL" if wrong else "OK  ", f"{2 * len(attention.KINDS) - wrong} of {2 * len(attention.KINDS)}")
sys.exit(wrong > 0)
PY
python3 $W/check.py $W/cap $OUT/ncu.csv $HERE 2>&1 | tee -a $OUT/attention.txt; rc=${PIPESTATUS[0]}
tail -5 $W/ncu.txt; echo "== end at $SECONDS s, rc $rc"; exit $rc
