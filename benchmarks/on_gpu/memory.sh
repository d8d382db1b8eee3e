#!/bin/bash
# memory.sh: `perfkit capture --memory` of GPT-2 124M (bf16) and a Llama of transformers (297M, fp32
# with autocast), random weights. Checked: the classes of memory add up to torch.cuda.max_memory_allocated of the
# recorded steps within 1 %; parameters and optimizer state equal the hand count; an allocation that fails on purpose
# ends as without perfkit, with the report; the predicted saving of checkpointing is within 10 % of the measured one.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
W=/tmp/memory; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W}
cat > $W/train.py <<'PY'
import argparse, contextlib
import torch
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--batch", type=int, default=0)
p.add_argument("--length", type=int, default=1024)
p.add_argument("--steps", type=int, default=22)
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--limit", type=float, default=0, help="GB that the process may take")
a = p.parse_args()
a.batch = a.batch or {"gpt2": 8, "llama": 4}[a.model]
torch.manual_seed(0)
if a.limit:
    torch.cuda.set_per_process_memory_fraction(a.limit * 1e9 / torch.cuda.get_device_properties(0).total_memory)
if a.model == "gpt2":
    from workloads.gpt2 import GPT2, SIZES

    model, vocabulary = GPT2(SIZES["gpt2"], "sdpa", a.checkpoint), 50257
    model.initialise(1)
    model.to("cuda", torch.bfloat16)
    context = contextlib.nullcontext
    forward = lambda x, y: model(x, y)[1]
else:
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary = 32000
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=1024, intermediate_size=2816, num_hidden_layers=18,
                         num_attention_heads=16, num_key_value_heads=16, tie_word_embeddings=False,
                         use_cache=False)
    model = LlamaForCausalLM(config).cuda()
    model.train()
    if a.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    context = lambda: torch.autocast("cuda", torch.bfloat16)
    forward = lambda x, y: F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
generator = torch.Generator().manual_seed(2)
for step in range(a.steps):
    torch.cuda.reset_peak_memory_stats()
    tokens = torch.randint(vocabulary, (a.batch, a.length + 1), generator=generator).cuda()
    optimizer.zero_grad()
    with context():
        loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    loss.backward()
    optimizer.step()
    print(f"step {step} peak {torch.cuda.max_memory_allocated()}", flush=True)
PY
cat > $W/judge.py <<'PY'
import json, os, re, sys
from pathlib import Path

W = Path(sys.argv[1])
ok = True


def check(name, good, figures):
    global ok
    ok &= bool(good)
    print(f"{'OK  ' if good else 'FAIL'} {name}: {figures}")


def peak(name):
    found = [int(n) for n in re.findall(r"peak (\d+)", (W / f"{name}.out").read_text())]
    return max(found[5:], default=0), found


V, C, L = 50257, 768, 12
HAND = {"gpt2": (V * C + 1024 * C + L * (12 * C * C + 13 * C) + 2 * C, 2),
        "llama": (2 * 32000 * 1024 + 18 * (4 * 1024**2 + 3 * 1024 * 2816 + 2 * 1024) + 1024, 4)}
for model, (count, size) in ((m, HAND[m]) for m in os.environ["MODELS"].split()):
    for name in (model, f"{model}-checkpoint"):
        try:
            report = json.loads((W / f"{name}.json").read_text())["backends"][0]
            device = next(d for d in report["memory"] if d["device"].startswith("cuda"))
        except Exception as error:
            check(f"{name}: report", False, f"{type(error).__name__}: {error}")
            continue
        there, every = peak(name)
        parts = {p["kind"]: p for p in device["peak"]["parts"]}
        total = sum(p["bytes"] for p in parts.values())
        print(f"    {name}: " + ", ".join(f"{k} {p['bytes'] / 1e9:.4f} (known {p['known_bytes'] / 1e9:.4f})" for k, p in parts.items()) + " GB")
        check(f"{name}: classes add up to max_memory_allocated", there and abs(total / there - 1) <= 0.01, f"{total:,} of {there:,} B ({total / max(there, 1) - 1:+.3%})")
        check(f"{name}: so does the end", abs(device["peak"]["allocated"] - total) == 0, f"{device['peak']['allocated']:,}")
        check(f"{name}: parameters by hand", parts["parameters"]["bytes"] == parts["parameters"]["known_bytes"] == count * size, f"{parts['parameters']['bytes']:,} of {count * size:,} B")
        # AdamW counts its steps on the GPU where it is fused: a number of four bytes, in a block of 512, a parameter.
        state, counters = parts["optimizer state"], {"gpt2": 148, "llama": 165}[model] * 512
        hand = 2 * count * size
        check(f"{name}: optimizer state by hand", state["bytes"] == state["known_bytes"] and state["bytes"] in (hand, hand + counters), f"{state['bytes']:,} of {hand:,} B, or {hand + counters:,} with the counters of steps")
        unknown = parts.get("unknown", {"bytes": 0})["bytes"]
        print(f"    unknown {unknown / total:.2%}:", [(o["kind"], o["name"], o["function"], o["bytes"], o["count"]) for o in device["peak"]["owners"] if o["kind"] == "unknown"][:4])
        print("    notes:", device["notes"], "warnings:", report["warnings"][:3])
        if name == model:
            saves = next((r["saves"] for r in device["remedies"] if r["name"] == "checkpointing"), None)
            cost = next((r["costs_ns"] for r in device["remedies"] if r["name"] == "checkpointing"), None)
            less = there - peak(f"{model}-alone-checkpoint")[0]
            check(f"{model}: saving of checkpointing", saves and abs(saves / less - 1) <= 0.10, f"predicted {saves and saves / 1e9:.3f} GB, measured {less / 1e9:.3f} GB ({saves and saves / less - 1:+.1%}); {cost and cost / 1e6:.2f} ms")
            print("    remedies:", [(r["name"], r["saves"]) for r in device["remedies"]])
    captured, alone = peak(model)[1], peak(f"{model}-alone")[1]
    check(f"{model}: peaks as without perfkit", captured == alone, f"{len(alone)} steps, {sum(a != b for a, b in zip(captured, alone))} differ, largest {max([abs(a - b) for a, b in zip(captured, alone)] or [0]):,} B")
for name in ("oom-gpt2", "oom-llama"):
    a, b = (W / f"{name}-alone", W / f"{name}")
    codes = [p.with_suffix(".rc").read_text().strip() for p in (a, b)]
    check(f"{name}: exit code", codes[0] == codes[1] == "1", codes)
    outs = [p.with_suffix(".out").read_text() for p in (a, b)]
    check(f"{name}: stdout", outs[0] == outs[1], repr(outs[1][-60:]))
    errs = [p.with_suffix(".err").read_text() for p in (a, b)]
    tried = [re.findall(r"OutOfMemoryError: CUDA out of memory\. Tried to allocate [\d.]+ \w+", e) for e in errs]
    check(f"{name}: the same error", tried[0] and tried[0] == tried[1], tried[0])
    frames = [re.findall(r'File "(.*)", line (\d+), in (\S+)', e) for e in errs]
    frames[1] = [f for f in frames[1] if "/perfkit/" not in f[0]]
    check(f"{name}: the same traceback, perfkit's frames left out", frames[0] == frames[1], f"{len(frames[0])} frames, {len(frames[1])}")
    said = errs[1].partition("OutOfMemoryError")[2]
    report = re.search(r"An allocation of .* failed.*", said)
    check(f"{name}: report of the failure", report, report and report[0][:160])
    share = re.search(r"^workspaces +(?:< )?([\d.]+) +(?:< )?([\d.]+) +(\d+)", said, re.MULTILINE)
    check(f"{name}: at most two workspaces", not share or int(share[3]) <= 2, share and share[0])
    check(f"{name}: remedy", "checkpoint" in said, [l.strip()[:160] for l in said.splitlines() if "checkpoint" in l][:2])
    print(*["    | " + l for l in said.splitlines()[2:34]], sep="\n")
sys.exit(not ok)
PY
capture() {  # NAME OPTIONS...
  n=$1; shift
  ( timeout 70 python3 -m perfkit capture --memory --no-lines --out $W/$n-run -- python3 $W/train.py "$@" >$W/$n.out 2>$W/$n.err; echo $? >$W/$n.rc )
  [ -d $W/$n-run ] && timeout 40 python3 -m perfkit report $W/$n-run --json >$W/$n.json 2>$W/$n.report-err
}
alone() { n=$1; shift; ( timeout 60 python3 $W/train.py "$@" >$W/$n.out 2>$W/$n.err; echo $? >$W/$n.rc ); }
MODELS=${MODELS:-gpt2 llama}; export MODELS
for m in $MODELS; do
  capture $m $m & capture $m-checkpoint $m --checkpoint &
  alone $m-alone $m & alone $m-alone-checkpoint $m --checkpoint &
done; wait
# Too large for 30 and 16 GB, which the process may take.
alone oom-gpt2-alone gpt2 --batch 96 --limit 30; alone oom-llama-alone llama --batch 16 --limit 16
capture oom-gpt2 gpt2 --batch 96 --limit 30; capture oom-llama llama --batch 16 --limit 16
timeout 30 python3 $W/judge.py $W 2>&1 | tee $OUT/memory.txt; rc=${PIPESTATUS[0]}
for n in gpt2 llama oom-gpt2 oom-llama; do tail -60 $W/$n.err | cut -c1-220 >$OUT/memory-$n.err; done
[ $rc = 0 ] && echo "memory.sh: OK" || { echo "memory.sh: FAIL"; exit 1; }
