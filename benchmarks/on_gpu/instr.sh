#!/bin/bash
# instr.sh: one GPU, about 120 s, prints as it goes; files in $OUT (<= 8, small).
# 1 regions: benchmarks/timed_regions.py (5 %) and SASS with the header off = SASS without the header.
# 2 costs: tutorials' and Liger-like Triton kernels, and CuPy kernels with registered costs, under `perfkit capture`:
#   FLOP and bytes within 5 % of a count by hand; roofline points; nothing without a cost.
# 3 proton: a real chrome trace and hatchet file of Proton's intra-kernel mode (fixtures).
# 4 dram: DRAM bytes of one step, by kernel (perfkit's reading of ncu) against the range as a whole (app-range replay).
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/instr; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W}; mkdir -p $OUT
rc=0; note() { echo "$@" | tee -a $OUT/instr.txt; }
note "== 1 regions at $SECONDS s"
timeout 60 python3 benchmarks/timed_regions.py time $W/regions 2>&1 | tee -a $OUT/instr.txt
timeout 30 python3 benchmarks/timed_regions.py check $W/regions 2>&1 | tee -a $OUT/instr.txt
cp $W/regions/timed.regions $OUT/ 2>/dev/null; [ "$(stat -c %s $OUT/timed.regions 2>/dev/null || echo 0)" -lt 3000000 ] || rm -f $OUT/timed.regions
sed -e 's|#include <perfkit/profile.cuh>|static int perfkit_write_regions(const char*) { return 0; }|' -e '/PERFKIT_\(BEGIN\|END\)/d' benchmarks/timed_regions.cu > $W/plain.cu
sed -e '/NOTHING/d' benchmarks/timed_regions.cu > $W/off.cu
for k in plain off; do nvcc -O3 -arch=sm_90 -I perfkit/kernels/include -cubin $W/$k.cu -o $W/$k.cubin && cuobjdump -sass $W/$k.cubin | grep -v '^ *$\|host\|identifier\|compile_size\|Fatbin' > $W/$k.sass; done
[ -s $W/off.sass ] && cmp -s $W/plain.sass $W/off.sass && note "OK   SASS with the header off equals SASS without it ($(wc -l < $W/off.sass) lines)" || { note "FAIL SASS differs with the header off"; diff $W/plain.sass $W/off.sass | head -5; rc=1; }

note "== 2 costs at $SECONDS s"
cat > $W/costs.py <<'PY'
import perfkit
from perfkit.cost import Cost
N = 1 << 24
@perfkit.register_cost("raw_saxpy")
def raw(launch):
    return Cost({"vector_fp32": 2 * N}, bytes_read=8 * N, bytes_written=4 * N)
@perfkit.register_cost("elementwise_squared_diff")
def elementwise(launch):
    return Cost({"vector_fp32": 2 * N}, bytes_read=8 * N, bytes_written=4 * N)
PY
cat > $W/kernels.py <<'PY'
import json, sys, torch, triton, triton.language as tl
@triton.jit
def t_softmax(out, inp, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row_start = tl.program_id(0); row_step = tl.num_programs(0)
    for row in tl.range(row_start, n_rows, row_step, num_stages=STAGES):
        cols = tl.arange(0, BLOCK); mask = cols < n_cols
        x = tl.load(inp + row * in_stride + cols, mask=mask, other=-float("inf"))
        num = tl.exp(x - tl.max(x, axis=0))
        tl.store(out + row * out_stride + cols, num / tl.sum(num, axis=0), mask=mask)
@triton.jit
def t_layernorm(X, Y, Wt, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0); Y += row * stride; X += row * stride
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        _mean += tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.); _var += x * x
    rstd = 1 / tl.sqrt(tl.sum(_var, axis=0) / N + eps)
    tl.store(Mean + row, mean); tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK); mask = cols < N
        w = tl.load(Wt + cols, mask=mask); b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)
@triton.jit
def t_matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0); pm = tl.cdiv(M, BM); pn = tl.cdiv(N, BN)
    ing = G * pn; gid = pid // ing; first = gid * G; gsz = min(pm - first, G)
    m = first + ((pid % ing) % gsz); n = (pid % ing) // gsz
    om = (m * BM + tl.arange(0, BM)) % M; on = (n * BN + tl.arange(0, BN)) % N; ok = tl.arange(0, BK)
    ap = a + (om[:, None] * sam + ok[None, :] * sak); bp = b + (ok[:, None] * sbk + on[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(ap, mask=ok[None, :] < K - k * BK, other=0.0); y = tl.load(bp, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc); ap += BK * sak; bp += BK * sbk
    om = m * BM + tl.arange(0, BM); on = n * BN + tl.arange(0, BN)
    tl.store(c + scm * om[:, None] + scn * on[None, :], acc.to(tl.float16), mask=(om[:, None] < M) & (on[None, :] < N))
@triton.jit
def t_attention(Q, K, V, O, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * T * D; m = tl.program_id(0) * BM + tl.arange(0, BM); d = tl.arange(0, D)
    q = tl.load(Q + head + m[:, None] * D + d[None, :])
    mi = tl.full([BM], -float("inf"), tl.float32); li = tl.zeros([BM], tl.float32); acc = tl.zeros([BM, D], tl.float32)
    for s in range(0, T, BN):
        s = tl.multiple_of(s, BN); n = s + tl.arange(0, BN)
        k = tl.load(K + head + n[None, :] * D + d[:, None])
        qk = tl.dot(q, k) * scale
        mij = tl.maximum(mi, tl.max(qk, 1)); p = tl.math.exp2(qk - mij[:, None]); alpha = tl.math.exp2(mi - mij)
        li = li * alpha + tl.sum(p, 1); acc = acc * alpha[:, None]
        v = tl.load(V + head + n[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc); mi = mij
    tl.store(O + head + m[:, None] * D + d[None, :], (acc / li[:, None]).to(tl.float16))
@triton.jit
def liger_like_rope(q, qs, cos, cs, sin, ss, sl, NH: tl.constexpr, HD: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64); q = q + pid * qs; row = pid % sl
    half = tl.arange(0, HD // 2); c = tl.load(cos + row * cs + half); s = tl.load(sin + row * ss + half)
    o1 = tl.arange(0, NH)[:, None] * HD + half[None, :]; o2 = o1 + HD // 2
    x1 = tl.load(q + o1).to(tl.float32); x2 = tl.load(q + o2).to(tl.float32)
    tl.store(q + o1, (x1 * c - x2 * s).to(tl.bfloat16)); tl.store(q + o2, (x2 * c + x1 * s).to(tl.bfloat16))
@triton.jit
def liger_like_cross_entropy(X, xs, Y, loss_ptr, n_cols, n_non_ignore, ignore_index, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64); y = tl.load(Y + pid); X += pid * xs
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK):
            o = i + tl.arange(0, BLOCK); tl.store(X + o, 0.0, mask=o < n_cols)
        return
    m = float("-inf"); d = 0.0; ori = tl.load(X + y).to(tl.float32)
    for i in range(0, n_cols, BLOCK):
        o = i + tl.arange(0, BLOCK); x = tl.load(X + o, mask=o < n_cols, other=float("-inf")).to(tl.float32)
        bm = tl.max(x); mn = tl.maximum(m, bm); d = d * tl.exp(m - mn) + tl.sum(tl.exp(x - mn)); m = mn
    lse = m + tl.log(d)
    for i in range(0, n_cols, BLOCK):
        o = i + tl.arange(0, BLOCK); x = tl.load(X + o, mask=o < n_cols, other=float("-inf")).to(tl.float32)
        x = tl.exp(x - m) / d
        x = tl.where(o != y, x / n_non_ignore, (x - 1) / n_non_ignore)
        tl.store(X + o, x, mask=o < n_cols)
    tl.debug_barrier()
    tl.store(loss_ptr + pid, (lse - ori) / n_non_ignore)
@triton.jit
def liger_like_rms_norm(Y, ys, X, xs, Wt, R, n_cols, eps, offset, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64); o = tl.arange(0, BLOCK); mask = o < n_cols
    x = tl.load(X + row * xs + o, mask=mask, other=0).to(tl.float32); w = tl.load(Wt + o, mask=mask, other=0)
    r = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps); tl.store(R + row, r)
    tl.store(Y + row * ys + o, (x * r * (offset + w)).to(tl.bfloat16), mask=mask)
@triton.jit
def liger_like_swiglu(A, B, C, stride, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0).to(tl.int64); o = tl.arange(0, BLOCK); mask = o < n_cols
    a = tl.load(A + p * stride + o, mask=mask, other=0).to(tl.float32); b = tl.load(B + p * stride + o, mask=mask, other=0)
    tl.store(C + p * stride + o, (a * tl.sigmoid(a)).to(tl.bfloat16) * b, mask=mask)
g = "cuda"
R, N = 4096, 4096; X = torch.randn(R, N, device=g); Y = torch.empty_like(X); w = torch.randn(N, device=g); b = torch.randn(N, device=g); mean = torch.empty(R, device=g); rstd = torch.empty(R, device=g)
M = Nn = K = 2048; a = torch.randn(M, K, device=g).half(); bb = torch.randn(K, Nn, device=g).half(); c = torch.empty(M, Nn, device=g).half()
H, T, D = 32, 2048, 64; q, k, v = (torch.randn(H, T, D, device=g).half() for _ in range(3)); o = torch.empty_like(q)
S, NH, HD = 8192, 32, 128; heads = torch.randn(S, NH, HD, device=g).bfloat16(); cos = torch.randn(S, HD // 2, device=g); sin = torch.randn(S, HD // 2, device=g)
B, V = 2048, 32768; logits = torch.randn(B, V, device=g).bfloat16(); target = torch.randint(V, (B,), device=g); loss = torch.empty(B, device=g)
xb = torch.randn(R, N, device=g).bfloat16(); yb = torch.empty_like(xb); wb = torch.randn(N, device=g).bfloat16(); zb = torch.randn(R, N, device=g).bfloat16()
# By hand: FLOP of the arithmetic as written (an exp, a division, a maximum: one each), bytes of each tensor once.
# t_layernorm, counted a second time from the kernel alone, a row of N = 4096 in 4 blocks of 1024 lanes:
#   first loop   _mean += x                                  N
#   then         tl.sum of the 1024 lanes of _mean, / N      1023 + 1
#   second loop  x - mean, x * x, _var += (the where: none)  3 N
#   then         tl.sum of _var, / N, + eps, sqrt, 1 /       1023 + 4
#   third loop   x - mean, * rstd, * w, + b                  4 N
# 8 N + 2051 = 34819 a row, 142 618 624 for 4096 rows; the first count left out the scalars (0.009 % less). A kernel with its
# whole row in one block would sum over N instead: 10 N. Bytes: X and Y 8 R N; W and B 8 N; Mean and Rstd 8 R.
hand = {
 "t_softmax": (5 * R * N, 8 * R * N), "t_layernorm": (8 * R * N + 2051 * R, 8 * R * N + 8 * N + 8 * R),
 "t_matmul": (2 * M * Nn * K, 2 * 3 * M * K), "t_attention": (4 * H * T * T * D + 6 * H * T * T + 2 * H * T * D * (T // 64) // 2, 8 * H * T * D),
 "liger_like_rope": (3 * S * NH * HD, 4 * S * NH * HD + 8 * S * HD // 2), "liger_like_cross_entropy": (10 * B * V, 4 * B * V + 12 * B),
 "liger_like_rms_norm": (4 * R * N + R * N, 4 * R * N + 2 * N + 4 * R), "liger_like_swiglu": (6 * R * N, 6 * R * N),
}
calls = [
 lambda: t_softmax[(528,)](Y, X, N, N, R, N, BLOCK=4096, STAGES=2, num_warps=8),
 lambda: t_layernorm[(R,)](X, Y, w, b, mean, rstd, N, N, 1e-5, BLOCK=1024),
 lambda: t_matmul[(16 * 16,)](a, bb, c, M, Nn, K, K, 1, Nn, 1, Nn, 1, BM=128, BN=128, BK=64, G=8, num_warps=8),
 lambda: t_attention[(T // 128, H)](q, k, v, o, T, 0.18, BM=128, BN=64, D=D, num_warps=8),
 lambda: liger_like_rope[(S,)](heads, NH * HD, cos, HD // 2, sin, HD // 2, S, NH=NH, HD=HD),
 lambda: liger_like_cross_entropy[(B,)](logits, V, target, loss, V, B, -100, BLOCK=4096, num_warps=16),
 lambda: liger_like_rms_norm[(R,)](yb, N, xb, N, wb, rstd, N, 1e-5, 0.0, BLOCK=4096, num_warps=8),
 lambda: liger_like_swiglu[(R,)](xb, zb, yb, N, n_cols=N, BLOCK=4096, num_warps=8),
]
try:
    import cupy
    n = 1 << 24; u, s = cupy.arange(n, dtype="float32"), cupy.ones(n, dtype="float32"); z = cupy.empty_like(u)
    raw = cupy.RawKernel('extern "C" __global__ void raw_saxpy(const float* x, const float* y, float* z, float a, int n){int i=blockIdx.x*blockDim.x+threadIdx.x; if(i<n) z[i]=a*x[i]+y[i];}', "raw_saxpy")
    diff = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "elementwise_squared_diff")
    calls += [lambda: raw((n // 256,), (256,), (u, s, z, cupy.float32(2), cupy.int32(n))), lambda: diff(u, s, z)]
    hand |= {"raw_saxpy": (2 * n, 12 * n), "elementwise_squared_diff": (2 * n, 12 * n)}
    print("CuPy", cupy.__version__, file=sys.stderr)
except Exception as error:
    print("FAIL CuPy:", error, file=sys.stderr)
json.dump(hand, open(sys.argv[1], "w"))
p = torch.nn.Parameter(torch.zeros(8, device=g)); optimizer = torch.optim.SGD([p], lr=0.1)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 9):
    for call in calls: call()
    p.grad = torch.ones_like(p); optimizer.step()
torch.cuda.synchronize()
PY
cat > $W/check.py <<'PY'
import json, sys, warnings; warnings.simplefilter("ignore")
import perfkit
from perfkit import table as columns
hand = json.load(open(sys.argv[2])); reading = perfkit.read(sys.argv[1]); f = reading.table.frame; wrong = 0
text = lambda x: f"{x:.6g}"
for name, (flop, size) in hand.items():
    rows = f[f.name.str.contains(name) & (f.kind == "gpu_kernel")]
    if not len(rows): print("FAIL", name, "has no row"); wrong += 1; continue
    row = rows.iloc[0]; got = float(row[list(columns.FLOP_COLUMNS)].sum()); moved = float(row.bytes_read + row.bytes_written)
    good = abs(got / flop - 1) <= .05 and abs(moved / size - 1) <= .05 if got == got else False; wrong += not good
    print("OK  " if good else "FAIL", f"{name}: FLOP {text(got)} by hand {text(flop)} ({got/flop-1:+.2%}); bytes {text(moved)} by hand {text(size)} ({moved/size-1:+.2%}); {row.duration_ns/1e3:.1f} us, {row.flop_origin}, {row.bytes_origin}")
report = reading.report; backend = report.backends[0]
print("warnings:", [str(w)[:300] for w in backend.warnings])
seen = [n for n in hand if any(n in str(point) for point in backend.points)]
print("OK  " if len(seen) == len(hand) else "FAIL", f"roofline names {len(seen)} of {len(hand)}: missing {[n for n in hand if n not in seen]}")
sys.exit(wrong > 0)
PY
timeout 100 python3 -m perfkit capture --out $W/cap --overwrite --warmup 4 --steps 2 --costs $W/costs.py -- python3 $W/kernels.py $W/hand.json 2> $W/cap.err; note "capture rc $?"
timeout 40 python3 $W/check.py $W/cap $W/hand.json 2>&1 | tee -a $OUT/instr.txt; [ ${PIPESTATUS[0]} = 0 ] || rc=1
grep -i "without a cost\|unknown\|FAIL\|CuPy" $W/cap.err && note "see cap.err"; cp $W/cap.err $OUT/cap.err

note "== 3 proton at $SECONDS s"
cat > $W/proton.py <<'PY'
import sys, torch, triton, triton.language as tl, triton.profiler as proton, triton.profiler.language as pl
print("triton", triton.__version__)
pl.enable_semantic("triton")
@triton.jit
def staged(x, y, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    pl.enter_scope("whole")
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pl.enter_scope("load")
    v = tl.load(x + o, mask=o < n)
    pl.exit_scope("load")
    for _ in range(ROUNDS):
        with pl.scope("arithmetic"):
            v = tl.exp(v * 0.5) - v
    pl.enter_scope("store")
    tl.store(y + o, v, mask=o < n)
    pl.exit_scope("store")
    pl.exit_scope("whole")
x = torch.randn(8 * 512, device="cuda"); y = torch.empty_like(x); out = sys.argv[1]
for data, extra in (("trace", {}), ("tree", {})):
    session = proton.start(f"{out}/proton-{data}", data=data, backend="instrumentation", mode=proton.mode.Default(optimizations="clock32") if hasattr(proton, "mode") else "default")
    with proton.scope("step"):
        for _ in range(2): staged[(8,)](x, y, x.numel(), 4, 512, num_warps=4)
    torch.cuda.synchronize(); proton.finalize()
PY
timeout 60 python3 $W/proton.py $W > $W/proton.log 2>&1; note "proton rc $?"; tail -4 $W/proton.log; ls -la $W/proton-*; for f in $W/proton-*.*; do [ $(stat -c %s $f) -lt 2000000 ] && cp $f $OUT/; done
for f in $OUT/proton-*; do timeout 20 python3 -m perfkit inspect $f 2>&1 | head -25 | tee -a $OUT/instr.txt; done

note "== 4 dram at $SECONDS s"
cat > $W/step.py <<'PY'
import torch
from torch import nn
torch.manual_seed(0)
m = nn.Sequential(*[l for _ in range(3) for l in (nn.Linear(4096, 4096), nn.GELU(), nn.LayerNorm(4096))]).cuda().bfloat16()
opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True); x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
def step():
    opt.zero_grad(); loss = m(x).float().square().mean(); loss.backward(); opt.step()
for _ in range(3): step()
torch.cuda.synchronize(); torch.cuda.cudart().cudaProfilerStart(); step(); torch.cuda.synchronize(); torch.cuda.cudart().cudaProfilerStop()
PY
NCU=$(command -v ncu || ls /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | head -1)
timeout 90 python3 -m perfkit capture --tool ncu --cache-control none --clock-control none --profiler-api --out $W/step.ncu-rep --overwrite --no-report -- python3 $W/step.py > $W/ncu1.log 2>&1; note "ncu by kernel rc $?"; tail -2 $W/ncu1.log
timeout 60 $NCU --replay-mode app-range --cache-control none --clock-control none --metrics dram__bytes_read.sum,dram__bytes_write.sum,dram__bytes.sum --csv --page raw --print-units base python3 $W/step.py > $W/range.csv 2> $W/range.err; note "ncu of the range rc $?"
tail -3 $W/range.csv
timeout 40 python3 - $W <<'PY' 2>&1 | tee -a $OUT/instr.txt
import csv, sys, perfkit
f = perfkit.read(sys.argv[1] + "/step.ncu-rep").table.frame
ours = {"read": f.dram_read_bytes.sum(), "write": f.dram_write_bytes.sum(), "all": f.dram_bytes.sum()}
lines = [l for l in open(sys.argv[1] + "/range.csv") if l.startswith('"')]; rows = list(csv.DictReader(lines))
row = [r for r in rows if any(v for k, v in r.items() if k and k.startswith("dram__bytes"))][-1]
theirs = {"read": "dram__bytes_read.sum", "write": "dram__bytes_write.sum", "all": "dram__bytes.sum"}
for key, name in theirs.items():
    value = float(row[name].replace(",", "")); off = ours[key] / value - 1
    print("OK  " if abs(off) <= .10 else "FAIL", f"DRAM bytes ({key}): by kernel {ours[key]/1e9:.4f} GB over {len(f)} kernels, range {value/1e9:.4f} GB ({off:+.1%})")
PY
note "== end at $SECONDS s, rc $rc"; ls -la $OUT; exit $rc
