#!/bin/bash
# serve.sh: the engine of the tests (CUDA graphs by batch size) under `perfkit capture`, alone and
# as a spawned process, and Nsight Compute's text page. Checked against the engine's own log: phases and tokens within
# 1 %, bytes of weights and cache of decode, the share of replayed kernel time that has operator and shapes of its
# capture (98 %); the text page, the raw CSV and the .ncu-rep of one profile give the same figures. About 110 s on a slow host;
# each part is checked as soon as it is there (PARTS='served ncu' leaves out the first).
# Files: serve.txt, engine.log, page.txt, raw.csv (each under 300 kB), trace.json.gz where a check of the engine fails.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/serve; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W/out}; mkdir -p $OUT
E=tests/support/programs/engine.py
cat > $W/three.py <<'PY'
import torch

x, w = (torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
print("loaded", flush=True)
y = x @ w
z = torch.softmax(y, -1)
z.add_(1)
torch.cuda.synchronize()
print("done", float(z.sum()))
PY
cat > $W/check.py <<'PY'
import gzip, json, sys, traceback
from collections import Counter
from pathlib import Path

import pandas as pd

from perfkit.readers import read

W, OUT = Path(sys.argv[1]), Path(sys.argv[2])
failed = []


def say(ok, text):
    print("OK  " if ok else "FAIL", text, flush=True)
    if not ok:
        failed.append(text)


def near(mine, true, limit=0.01):
    return mine is not None and (mine == true or (true and abs(mine / true - 1) <= limit))


def engine(name):
    folder = W / name
    (backend,) = json.loads((folder / "report.json").read_text())["backends"]
    table = read(next(folder.rglob("kernels.parquet")))
    names, log = table.facts["step_names"], [json.loads(x) for x in (W / f"{name}.log").read_text().splitlines()]
    began = next((i for i in range(len(log)) if [x["name"] for x in log[i : i + len(names)]] == names), None)
    say(began == 8 and len(names) == 40, f"{name}: {len(names)} iterations recorded, in the log from {began} (8 asked)")
    log = log[began or 0 :][: len(names)]
    for phase in backend["serving"]:
        mine = [x for x in log if x["phase"] == phase["name"]]
        for key, count in (("iterations", len(mine)), ("prompt_tokens", sum(x["prompt_tokens"] for x in mine)),
                           ("new_tokens", sum(x["new_tokens"] for x in mine))):
            say(near(phase[key], count), f"{name}: {phase['name']} {key} {phase[key]}, log {count}")
        for key, own in (("weight_bytes", "weights"), ("cache_bytes", "cache")):
            by_log = sum(x[own] for x in mine) / len(mine)
            text = f"{name}: {phase['name']} {key} {phase[key]}, log {by_log:.0f}"
            say(near(phase[key], by_log), text) if phase["name"] == "decode" else print("    ", text)
        print("    ", {k: phase[k] for k in ("median_ns", "slow_ns", "busy", "tokens_per_second", "roof_ns", "bound")})
    joined(name, folder, table)
    for finding in backend.get("findings", [])[:12]:
        print("     finding:", finding.get("rule") or finding.get("id"), str(finding.get("title", ""))[:110])


def joined(name, folder, table):
    path = next(folder.rglob("*.pt.trace.json*"))
    raw = path.read_bytes()
    events = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"]
    calls = {e["args"]["correlation"] for e in events if e.get("name") == "cudaGraphLaunch" and "correlation" in e.get("args", {})}
    there = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and e["args"].get("correlation") in calls]
    whole = sum(e["dur"] for e in there if e["cat"] == "kernel")
    left = Counter((e["name"], round(e["dur"] * 1e3)) for e in there if e["cat"] == "kernel")
    have = {"operator": 0.0, "shapes": 0.0, "module": 0.0, "": 0.0}
    for row in table.frame.to_dict("records"):
        key = (row["name"], round(row["duration_ns"]))
        if row["kind"] == "gpu_kernel" and left[key] > 0:
            left[key] -= 1
            for column in have:
                if not column or (not pd.isna(row[column]) and row[column]):
                    have[column] += row["duration_ns"] / 1e3
    whole = whole or 1e-9
    print(f"     {name}: {len(calls)} graph launches, {len(there)} activities, {whole / 1e3:.2f} ms of kernels; "
          f"in the table {have[''] / whole:.2%}")
    for column in ("operator", "shapes", "module"):
        say(have[column] / have[""] >= 0.98 if have[""] else False,
            f"{name}: replayed kernel time in the table with {column} {have[column] / (have[''] or 1e-9):.2%} (98 asked)")
    if failed:
        (OUT / f"{name}.trace.json.gz").write_bytes(raw if path.suffix == ".gz" else gzip.compress(raw))


def pages():
    tables = {n: read(W / n) for n in ("three.ncu-rep", "page.txt", "all.txt", "raw.csv", "direct.txt")}
    report = tables["three.ncu-rep"].frame
    print("     kernels:", report[["short_name", "duration_ns", "dram_bytes", "occupancy"]].to_dict("records"))
    for name, table in tables.items():
        if name == "three.ncu-rep":
            continue
        frame = table.frame
        say(frame["name"].tolist() == report["name"].tolist() or len(frame) == len(report),
            f"{name}: {len(frame)} kernels, .ncu-rep {len(report)}")
        if len(frame) != len(report):
            continue
        same = sum(a == b for a, b in zip(frame["short_name"], report["short_name"]))
        say(same == len(report), f"{name}: short names of {same} kernels are the same")
        limit = {"raw.csv": 1e-6, "direct.txt": 0.2}.get(name, 0.01)
        for column in ("duration_ns", "dram_bytes", "occupancy", "registers", "grid_x", "block_x"):
            if column not in frame:
                continue
            mine, true = frame[column].tolist(), report[column].tolist()
            pairs = [(m, t) for m, t in zip(mine, true) if pd.notna(m) and pd.notna(t)]
            if not pairs:
                print(f"     {name}: {column} unknown")
                continue
            worst = max(abs(m / t - 1) if t else abs(m) for m, t in pairs)
            if name == "direct.txt" and column not in ("registers", "grid_x", "block_x"):
                print(f"     {name}: {column} differs by up to {worst:.2%} (another run)")
            else:
                say(worst <= limit, f"{name}: {column} of {len(pairs)} kernels within {worst:.3%}")
        for said in table.warnings[:3]:
            print("     ", said[:160])


for step in {"alone": [lambda: engine("alone")], "served": [lambda: engine("served")], "ncu": [pages]}[sys.argv[3]]:
    try:
        step()
    except Exception:
        failed.append("a step ended")
        print("FAIL", traceback.format_exc()[-700:])
print(f"{len(failed)} checks failed" if failed else "all checks hold")
sys.exit(bool(failed))
PY
ncu_part() {
  timeout 60 ncu --set detailed -f -o $W/three python3 $W/three.py >$W/ncu.log 2>&1 || tail -3 $W/ncu.log
  timeout 30 ncu --import $W/three.ncu-rep --page details >$W/page.txt 2>&1
  timeout 30 ncu --import $W/three.ncu-rep --page details --print-details all >$W/all.txt 2>&1
  timeout 30 ncu --import $W/three.ncu-rep --page raw --csv >$W/raw.csv 2>/dev/null
  timeout 60 ncu --set basic --page details python3 $W/three.py >$W/direct.txt 2>&1
}
check() { timeout 40 python3 $W/check.py $W $OUT $1 2>&1 | tee -a $OUT/serve.txt; }
record() {  # NAME, arguments of the engine...
  n=$1; shift; t=$SECONDS
  timeout 75 python3 -m perfkit capture --out $W/$n --warmup 8 --steps 40 --no-lines --limit 3 -- python3 $E cuda "$@" log $W/$n.log rounds 2 >$W/$n.txt 2>&1
  echo "capture, $n: exit $?, $((SECONDS - t)) s" | tee -a $OUT/serve.txt; tail -60 $W/$n.txt >$OUT/report-$n.txt; check $n
}
: >$OUT/serve.txt
for part in ${PARTS:-alone served ncu}; do
  case $part in
    alone) record alone; cp $W/alone.log $OUT/engine.log;;
    served) record served served;;
    ncu) t=$SECONDS; ncu_part; echo "ncu: $((SECONDS - t)) s" | tee -a $OUT/serve.txt; check ncu;;
  esac
done
[ -f $W/page.txt ] && { head -c 300000 $W/page.txt >$OUT/page.txt; head -c 300000 $W/raw.csv >$OUT/raw.csv; cp $W/direct.txt $OUT/direct.txt; }
! grep -q ^FAIL $OUT/serve.txt
