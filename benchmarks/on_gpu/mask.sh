#!/bin/bash
# mask.sh: a Llama of transformers (random weights, bf16) with an explicit causal mask (B, 1, T, T) in
# SDPA, made in every step; T = 1024 and 2048, D = 64 and 128. Checked: the saving that `needless-mask` predicts from a
# recording (perfkit.profile) of the masked step is within 20 % of what leaving the mask out saves (steps in turns, no
# profiler). One process, which prints as it goes; sizes that do not fit into 75 s are left out (two are enough).
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONUNBUFFERED=1
W=/tmp/mask; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W}
cat > $W/model.py <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def made(T, D, groups=1):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                         num_attention_heads=1024 // D, num_key_value_heads=1024 // D // groups,
                         use_cache=False, attn_implementation="sdpa", max_position_embeddings=4096)
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    B = 16384 // T
    tokens = torch.randint(8192, (B, T), device="cuda")
    there = torch.ones(B, T, dtype=torch.bool, device="cuda")

    def step(masked):
        mask = None
        if masked:
            causal = torch.ones(T, T, dtype=torch.bool, device="cuda").tril()
            mask = causal[None, None] & there[:, None, None, :]
        loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
PY
cat > $W/all.py <<'PY'
import statistics, sys, time
begun = time.time()
sys.path.insert(0, sys.argv[1])
import torch
import perfkit
from model import made
from torch.profiler import profile, ProfilerActivity

print(f"     imports {time.time() - begun:.0f} s", flush=True)
from perfkit.hardware import store

ceilings = store.load_or_measure("cuda:0")
print(f"     ceilings {time.time() - begun:.0f} s, of it {ceilings.duration_s:.0f}; bf16 {ceilings.compute.get('matrix_bf16', 0) / 1e12:.0f} TFLOP/s; warnings {ceilings.warnings[:2]}")
for one in ceilings.attention:
    print(f"     causal D {one.head} T {one.length}: forward {one.forward / 1e12:.0f}, backward {one.backward / 1e12:.0f} TFLOP/s", flush=True)


def kernels(step, masked):
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        step(masked)
        torch.cuda.synchronize()
    events = [e for e in p.key_averages() if e.self_device_time_total]
    ours = [e for e in events if any(w in e.key.lower() for w in ("fmha", "flash", "attention", "cudnn", "sdpa"))]
    total = sum(e.self_device_time_total for e in events) / 1e3
    own = sum(e.self_device_time_total for e in ours) / 1e3
    names = {e.key[:50]: (e.count, round(e.self_device_time_total / 1e3, 3)) for e in ours}
    return own, total - own, names


ok, seen = True, 0
for T, D, groups in ((1024, 64, 1), (2048, 128, 1), (2048, 64, 1), (1024, 128, 1), (2048, 64, 4)):
    if time.time() - begun > 75 and seen >= 2:
        print(f"     T {T} D {D}: no time left")
        continue
    step = made(T, D, groups)
    for masked in (True, False) * 3:
        step(masked)
    times = {True: [], False: []}
    for turn in range(8):
        for masked in (True, False) if turn % 2 else (False, True):
            for number in range(4):
                a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize(); a.record(); step(masked); b.record(); b.synchronize()
                if number:
                    times[masked].append(a.elapsed_time(b))
    masked_ms, plain_ms = statistics.median(times[True]), statistics.median(times[False])
    losses = [round(float(step(masked)), 4) for masked in (True, False)]
    out = f"{sys.argv[1]}/run-{T}-{D}-{groups}"
    with perfkit.profile(out, warmup=6, steps=3, lines=False) as p:
        for _ in range(14):
            step(True)
            p.step()
    report = perfkit.read(out).report
    backend = report.backends[0]
    finding = next((f for f in backend.findings if f.name == "needless-mask"), None)
    saves, predicted = masked_ms - plain_ms, finding.saving_ns / 1e6 if finding else 0.0
    miss = predicted / saves - 1
    judged = groups == 1  # where heads share keys, leaving the mask out also spares their copies
    good = abs(miss) <= 0.20
    seen += judged
    ok &= good or not judged
    with_, without = kernels(step, True), kernels(step, False)
    print(f"{('OK  ' if good else 'FAIL') if judged else '    '} T {T} D {D} groups {groups}: step {masked_ms:.3f} ms with, {plain_ms:.3f} without: saves {saves:.3f} ms; predicted {predicted:.3f} ms ({miss:+.1%}); half of the attention: {with_[0] / 2:.3f} ms ({with_[0] / 2 / saves - 1:+.1%})")
    print(f"     kernels: attention {with_[0]:.3f} -> {without[0]:.3f} ms, others {with_[1]:.3f} -> {without[1]:.3f} ms: saves {sum(with_[:2]) - sum(without[:2]):.3f} ms; losses {losses}")
    print(f"     {with_[2]} -> {without[2]}")
    print(f"     {finding.title if finding else None} | {finding.evidence if finding else [u for u in backend.unjudged][:3]} | warnings {backend.warnings[:2]}", flush=True)
    del step, p
    torch.cuda.empty_cache()
print(f"{'OK  ' if ok and seen >= 2 else 'FAIL'} {seen} sizes judged in {time.time() - begun:.0f} s")
sys.exit(not (ok and seen >= 2))
PY
timeout 110 python3 $W/all.py $W 2>$W/err | tee $OUT/mask.txt; rc=${PIPESTATUS[0]}
[ $rc = 0 ] && echo "mask.sh: OK" || { tail -5 $W/err; echo "mask.sh: FAIL ($rc)"; exit 1; }
