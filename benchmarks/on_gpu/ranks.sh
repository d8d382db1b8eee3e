#!/bin/bash
# ranks.sh: `perfkit capture -- torchrun --nproc-per-node 2 PROGRAM` over NCCL, with
# DDP whose rank 1 sleeps 30 ms before backward, and with FSDP2. Checked: output and exit code of the program; the
# ranks' report (late rank by 30 ms, its line, what the step without the sleep is shorter by, waiting, exposed
# communication) in the terminal, HTML, Markdown, JSON;
# waiting and communication against the traces by plain Python; FSDP2 without a "!" or a failing check.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/ranks; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W}
TR=$(command -v torchrun || echo "python3 -m torch.distributed.run")
env | grep -E '^NCCL|^TORCH_NCCL' | sed 's/^/    /'
cat > $W/job.py <<'PY'
import os, sys, time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

way = sys.argv[1]
rank = int(os.environ["LOCAL_RANK"])
ROWS = 32768  # a step is the GPU's, also where the profiler slows the host
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


model = nn.Sequential(*(Block(1536) for _ in range(8)), nn.Linear(1536, 512)).cuda().bfloat16()
if way != "fsdp2":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
else:
    from torch.distributed.fsdp import fully_shard

    for block in model:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(100 + rank)
times, begun = [], time.perf_counter()
for step in range(24):
    x, y = torch.randn(ROWS, 1536, device="cuda", dtype=torch.bfloat16), torch.randint(512, (ROWS,), device="cuda")
    loss = F.cross_entropy(model(x), y)
    if way != "fsdp2":
        torch.cuda.synchronize()  # both ranks launch the backward pass when the forward pass is over
        if rank == 1 and way == "ddp":
            time.sleep(0.03)  # planted
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    times, begun = [*times, time.perf_counter() - begun], time.perf_counter()
print(f"rank {rank} step {sorted(times[5:])[len(times[5:]) // 2] * 1e3:.2f} ms", file=sys.stderr, flush=True)
total = loss.detach().float()
dist.all_reduce(total)
if rank == 0:
    print(f"loss {total.item():.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()
PY
cat > $W/judge.py <<'PY'
import gzip, json, re, sys
from pathlib import Path

W, ok = Path(sys.argv[1]), True


def check(name, good, figures):
    global ok
    ok &= bool(good)
    print(f"{'OK  ' if good else 'FAIL'} {name}: {figures}")


def union(spans):
    total, end = 0.0, float("-inf")
    for a, b in sorted(spans):
        total += max(0.0, b - max(a, end))
        end = max(end, b)
    return total


def by_plain_python(folder):
    """Of each rank: us a step of collectives that no other kernel covers, from the trace's JSON."""
    found = {}
    for path in sorted(folder.glob("program-rank*/*.json.gz")) + sorted(folder.glob("program-rank*/*.json")):
        if "lines" in path.name or "trace" not in path.name:
            continue
        data = json.loads((gzip.open(path) if path.suffix == ".gz" else path.open("rb")).read())
        events = data["traceEvents"]
        steps = {e["name"] for e in events if str(e.get("name", "")).startswith("perfkit:step:")} or range(3)
        gpu = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        nccl = [(e["ts"], e["ts"] + e["dur"]) for e in gpu if "nccl" in e["name"].lower()]
        rest = [(e["ts"], e["ts"] + e["dur"]) for e in gpu if e["cat"] == "kernel" and "nccl" not in e["name"].lower()]
        number = int(re.search(r"rank(\d+)", path.parent.name)[1])
        found[number] = ((union(nccl + rest) - union(rest)) / max(len(steps), 1) / 1e3, union(nccl) / max(len(steps), 1) / 1e3, len(steps))
    return found


for way in ("ddp", "fsdp2"):
    folder = W / way
    codes = [(W / f"{way}{x}.rc").read_text().strip() for x in ("-alone", "")]
    check(f"{way}: exit codes", codes == ["0", "0"], codes)
    outs = [(W / f"{way}{x}.out").read_text() for x in ("-alone", "")]
    near = [float(re.search(r"loss ([\d.]+)", o)[1]) if re.search(r"loss ([\d.]+)", o) else None for o in outs]
    check(f"{way}: output", None not in near and abs(near[0] - near[1]) <= 0.002 * near[0], near)
    print("    alone:", re.findall(r"rank \d step [\d.]+ ms", (W / f"{way}-alone.err").read_text()))
    text = " ".join((W / f"{way}.err").read_text().split())
    try:
        made = json.loads((folder / "report.json").read_text())
    except Exception as error:
        check(f"{way}: report.json", False, error)
        continue
    check(f"{way}: pages", all((folder / f"report.{x}").is_file() for x in ("html", "md", "txt", "json", "csv")), [p.name for p in folder.glob("report.*")])
    pages = {x: (folder / f"report.{x}").read_text() for x in ("html", "md", "txt")}
    for what in ("Ranks: where a step goes", "in detail"):
        check(f"{way}: '{what}' on the terminal and all pages", what in text and all(what in p for p in pages.values()), [x for x, p in pages.items() if what in p])
    shown = text.lower().replace("--backend", "").replace("torch.backends.", "")
    named = re.findall(r".{0,40}backend.{0,40}", shown)
    check(f"{way}: nothing called a backend", not named, named[:2])
    plain = by_plain_python(folder)
    for part in made["parts"]:
        own = part["waiting_ns"] + part["exposed_ns"]
        shown, count, steps = plain.get(part["rank"], (float("nan"), float("nan"), 0))
        print(f"    rank {part['rank']}: step {part['step_ns'] / 1e6:.2f} ms = compute {part['compute_ns'] / 1e6:.2f} + waiting {part['waiting_ns'] / 1e6:.2f} + exposed {part['exposed_ns'] / 1e6:.2f} + copy {part['copy_ns'] / 1e6:.2f} + idle {part['idle_ns'] / 1e6:.2f}; overlapped {part['overlapped_ns'] / 1e6:.2f}")
        check(f"{way}: rank {part['rank']}: waiting and exposed by plain Python", abs(own / 1e6 - shown) <= 0.05 * shown + 0.3, f"{own / 1e6:.2f} of {shown:.2f} ms, {steps} steps")
        whole = sum(part[k] for k in ("compute_ns", "waiting_ns", "exposed_ns", "copy_ns", "idle_ns"))
        check(f"{way}: rank {part['rank']}: parts add up", abs(whole / part["step_ns"] - 1) < 0.01, f"{whole / part['step_ns']:.4f}")
    if way == "ddp":
        twin = json.loads((W / "even" / "report.json").read_text())
        for part in twin["parts"]:
            print(f"    without the sleep, rank {part['rank']}: step {part['step_ns'] / 1e6:.2f} ms, compute {part['compute_ns'] / 1e6:.2f}, waiting {part['waiting_ns'] / 1e6:.2f}, idle {part['idle_ns'] / 1e6:.2f}")
        print("    without the sleep, late:", [(s["rank"], round(s["late_ns"]["value"] / 1e6, 2)) for s in twin["stragglers"]])
    print("    headline:", *made["headline"][:3], "| problems:", made["problems"])
    late = [(s["rank"], s["late_ns"]["value"] / 1e6, s["late_steps"], s["steps"], [c["kind"] + ": " + c["text"][:80] for c in s["causes"]]) for s in made["stragglers"]]
    if way == "ddp":
        check("ddp: rank 1 is late by 30 ms", [s[0] for s in late] == [1] and 28 <= late[0][1] <= 34, late)
        waits = {p["rank"]: p["waiting_ns"] / 1e6 for p in made["parts"]}
        check("ddp: rank 0 waits for it, rank 1 for nobody", waits.get(0, 0) > 10 and waits.get(1, 99) < 3, {r: round(w, 2) for r, w in waits.items()})
        slow, even = (float(re.search(r"step ([\d.]+) ms", (W / f"{x}-alone.err").read_text())[1]) for x in ("ddp", "even"))
        saves = [s["exposed_ns"]["value"] / 1e6 for s in made["stragglers"]]
        check("ddp: what fixing it saves (within 20 %, and at most)", saves and -0.05 <= saves[0] / (slow - even) - 1 <= 0.2, f"{saves}, measured {slow - even:.2f} ms")
        check("ddp: said on the terminal and all pages", all(re.search(r"Rank 1 is late", p) for p in (text, *pages.values())), "")
        named = [f["name"] for f in made["findings"] if 1 in f["ranks"]]
        places = [(l["file"].rsplit("/")[-1], l["line"], l["function"], round(l["share"], 2)) for f in made["findings"] if 1 in f["ranks"] for l in f["lines"]]
        planted = next(n for n, t in enumerate((W / "job.py").read_text().splitlines(), 1) if t.endswith("# planted"))
        check("ddp: straggler's line", any(p[:2] == ("job.py", planted) for p in places), (named, places[:3]))
    else:
        print("    late:", late)
        failing = [c["says"] for b in made["detail"]["backends"] for c in b["trace_checks"] if c["holds"] is False]
        check("fsdp2: no trace check fails", not failing, failing)
        said = (W / "fsdp2.err").read_text()
        marks = [m for m in re.findall(r"^! .*(?:\n(?!!|Report).*)*|\S+!\S*|\S*!\S+", said.replace("!=", ""), re.MULTILINE) if "the profiler slows the host" not in " ".join(m.split())]
        check('fsdp2: no "!" but of a profiler that slows the host', not marks, marks[:4])
        above = [b["above_kernels"] for b in made["detail"]["backends"] if b["above_roof"]]
        check("fsdp2: nothing above its roof", not above, above)
        print("    detail warnings:", [b["warnings"] for b in made["detail"]["backends"]][:1])
    for one in made["collectives"][:6]:
        print(f"    {one['operation']} {one['message_bytes'] and one['message_bytes'] / 1e6} MB x {one['count']}: own {one['latency_ns'] / 1e3:.0f} us, bus {one['bus_bandwidth'] and one['bus_bandwidth'] / 1e9:.1f} GB/s")
sys.exit(not ok)
PY
timeout 40 $TR --standalone --nproc-per-node 2 $W/job.py even >$W/even-alone.out 2>$W/even-alone.err
timeout 70 python3 -m perfkit capture --out $W/even -- $TR --standalone --nproc-per-node 2 $W/job.py even >$W/even.out 2>$W/even.err
for way in ddp fsdp2; do
  ( timeout 40 $TR --standalone --nproc-per-node 2 $W/job.py $way >$W/$way-alone.out 2>$W/$way-alone.err; echo $? >$W/$way-alone.rc )
  ( timeout 70 python3 -m perfkit capture --out $W/$way -- $TR --standalone --nproc-per-node 2 $W/job.py $way >$W/$way.out 2>$W/$way.err; echo $? >$W/$way.rc )
  tail -70 $W/$way.err | cut -c1-200 >$OUT/ranks-$way.err
done
timeout 30 python3 $W/judge.py $W 2>&1 | tee $OUT/ranks.txt; rc=${PIPESTATUS[0]}
[ $rc = 0 ] && echo "ranks.sh: OK" || { echo "ranks.sh: FAIL"; exit 1; }
