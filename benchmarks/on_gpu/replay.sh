#!/bin/bash
# replay.sh: a GPT-2 124M training step in bf16 on this GPU (eager, B = 4, T = 1024), then
# `perfkit bench TRACE --kernel N` for twenty kinds of calls over 20 us. Checked: each result is right, or unchecked for
# a stated reason; PyTorch's own way takes within 10 % of the trace's time, with normal values, with zeros, or (softmax
# of scores) with -inf above the diagonal (docs/replay.md); the --script of six kinds runs without perfkit and says right. Of a kind that misses, the kernels
# here and in the trace are printed, and their time by torch.profiler (as the trace has it: without the gaps between
# launches), with warm and with cold caches, normal numbers and zeros; it holds where the trace lies between these
# within 10 %.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/replay; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W}; ROOT=$PWD
timeout 80 python3 -m perfkit run gpt2 --backend eager --device cuda --dtype bf16 -B 4 -T 1024 --no-lines --out $W/run >$W/run.txt 2>&1
rc=$?; [ -d $W/run ] || { tail -5 $W/run.txt; echo "FAIL perfkit run: exit $rc; perfkit capture goes on"; }
cat > $W/more.py <<'PY'
import torch
from workloads.gpt2 import GPT2, SIZES

torch.manual_seed(0)
model = GPT2(SIZES["gpt2"], "sdpa")
model.initialise(1)
model.to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(50257, (4, 1025), device="cuda")
for _ in range(40):
    optimizer.zero_grad()
    model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())[1].backward()
    optimizer.step()
PY
cat > $W/twenty.py <<'PY'
import contextlib, io, json, subprocess, sys, time
from pathlib import Path

from perfkit.cli import main
from perfkit.replay.recorded import Trace
from perfkit.replay import recorded

W, begun = Path(sys.argv[1]), time.time()
seen, done, held, by_zero, scripts, ok = set(), 0, 0, 0, 0, True


def traces():
    """The run's trace, and where it has fewer than twenty such kinds that of a step with fused attention."""
    if (W / "run").is_dir():
        yield W / "run"
    if done < 20:
        words = ["capture", "--stop", "--no-lines", "--out", str(W / "more"), "--", sys.executable, str(W / "more.py")]
        subprocess.run([sys.executable, "-m", "perfkit", *words], capture_output=True, timeout=60)
        yield W / "more"


def kinds():
    for path in traces():
        trace = Trace(path)
        recorded.Trace = lambda _: trace  # the trace is read once; everything else is the command's own
        for number, group in enumerate(trace.kernel_groups(), 1):
            if group.time_ns / group.count >= 20e3:
                yield path, number, group


def bench(path, number, script):
    """Exit code, stdout and stderr of the command."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = ["bench", str(path), "--kernel", str(number), "--implementation", "pytorch", "--cache", "warm",
             "--seconds", "0.3", "--seed", "1", "--no-ceilings", *script, "--json"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words) or 0
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


def by_profiler(path, number):
    """Names of the kernels of a call here, and us of them by torch.profiler: warm and cold, normal and zeros."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    from perfkit.replay import contents, rebuilt, replay

    found = recorded.Trace(path).by_kernel(number)
    chosen = replay.choose(found, "cuda", 1)
    values = rebuilt.Maker("cuda", 1).arguments(chosen.recipe)
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    times, names = {}, []
    for kind in ("normal", "zeros"):
        own = values if kind == "normal" else contents.zeros(values)
        with torch.no_grad():
            call = rebuilt.call_of(chosen.recipe, rebuilt.fresh(chosen.recipe, own))
            for cache in ("warm", "cold"):
                for _ in range(3):
                    call()
                torch.cuda.synchronize()
                with profile(activities=[ProfilerActivity.CUDA]) as p:
                    for _ in range(20):
                        if cache == "cold":
                            flush.fill_(1)
                        call()
                    torch.cuda.synchronize()
                events = sorted((e for e in p.events() if e.self_device_time_total), key=lambda e: e.time_range.start)
                each = len(events) // 20
                calls = [events[i * each + (cache == "cold"):(i + 1) * each] for i in range(20)]
                sums = sorted(sum(e.self_device_time_total for e in one) for one in calls)
                times[f"{kind} {cache}"] = round(sums[10], 2)
                names = [e.name[:90] for e in calls[0]]
    return names, times, [k[:90] for k in chosen.calls.kernels]


for path, number, group in kinds():
    if done == 20 or time.time() - begun > 110:
        break
    script = ["--script", str(W / f"script{path.name}{number}.py")] if scripts < 6 and done % 3 == 0 else []
    code, out, err = bench(path, number, script)
    if code == 2 and script:  # an operator that is not PyTorch's own has no script
        script = []
        code, out, err = bench(path, number, script)
    if not out.strip():
        print(f"    kernel {number} {group.key[:60]}: {err.strip()[:160]} (exit {code})")
        ok &= code == 2
        continue
    made = json.loads(out)
    said = made["recorded"]
    key = (said["operator"], json.dumps(said["arguments"]))
    if key in seen:
        continue
    seen.add(key)
    done += 1
    row = next(r for r in made["points"][0]["rows"] if r["way"] == "pytorch")
    ns = row["warm"]["ns"]["value"] if row["warm"] else None
    ratio = ns / said["ns"]["value"] if ns and said["ns"] else None
    zeros = said["zeros"]["value"] / said["ns"]["value"] if said.get("zeros") and said["ns"] else None
    right = row["status"] in ("ok", "unchecked") and code == 0
    masked = said["masked"]["value"] / said["ns"]["value"] if said.get("masked") and said["ns"] else None
    near = [r for r in (ratio, zeros, masked) if r and abs(r - 1) <= 0.10]
    good = right and bool(near)
    more = ""
    if right and not near:
        names, times, theirs = by_profiler(path, number)
        ns_there = said["ns"]["value"] / 1e3
        good = min(times.values()) * 0.9 <= ns_there <= max(times.values()) * 1.1
        more = f"\n       by torch.profiler {times}; here {names}, in the trace {theirs}"
    held += bool(ratio and abs(ratio - 1) <= 0.10)
    by_zero += bool(good and not (ratio and abs(ratio - 1) <= 0.10))
    ok &= good
    scripts += bool(script)
    args = ", ".join(a["text"] for a in said["arguments"] if "[" in a["text"])[:70]
    print(f"{'OK  ' if good else 'FAIL'} {path.name} kernel {number}: {said['operator']}({args}) {row['status']}: trace {said['ns']['value'] / 1e3:.1f} us, "
          f"normal {ratio and round(ratio, 3)}, zeros {zeros and round(zeros, 3)}{f", masked {masked:.3f}" if masked else ""}; notes {made['notes'][:1]}{more}", flush=True)
print(f"{'OK  ' if ok and done == 20 else 'FAIL'} {done} kinds of calls: {held} within 10 % with normal values, {by_zero} more with other values, in {time.time() - begun:.0f} s")
sys.exit(not (ok and done == 20))
PY
timeout 130 python3 $W/twenty.py $W 2>$W/twenty.err | tee $OUT/replay.txt; rc=${PIPESTATUS[0]}
tail -5 $W/twenty.err
export PYTHONPATH=; cd /tmp
for s in $W/script*.py; do
  grep -n "import perfkit\|from perfkit" $s && echo "FAIL $(basename $s) imports perfkit"
  out=$(timeout 30 python3 $s 2>&1); c=$?
  [ $c = 0 ] && echo "OK   $(basename $s) without perfkit: $(echo "$out" | grep -c right) results right; $(echo "$out" | tail -2 | tr '\n' ';')" || { echo "FAIL $(basename $s): exit $c: $(echo "$out" | tail -2)"; rc=1; }
done | tee -a $OUT/replay.txt
grep -q ^FAIL $OUT/replay.txt && rc=1
tail -3 $W/run.txt | cut -c1-200 >>$OUT/replay.txt
[ $rc = 0 ] && echo "replay.sh: OK" || { echo "replay.sh: FAIL"; exit 1; }
