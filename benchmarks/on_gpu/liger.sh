#!/bin/bash
# liger.sh: one GPU, about 90 s. The real kernels of liger-kernel, Triton's tutorials (softmax, matmul, layer norm with
# its backward) and a Helion kernel under `perfkit capture`: FLOP and bytes of each within 5 % of the counts by hand
# below, a point on the roofline each, nothing without a cost. liger_kernel (and helion) must be on PYTHONPATH: unpack
# their wheels into a folder, e.g. `python3 -m zipfile -e liger_kernel-0.8.5-py3-none-any.whl FOLDER`.
# Files: liger.txt, cap.err.
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # run it in the root of the repository
W=/tmp/liger; rm -rf $W; mkdir -p $W; OUT=${OUT:-$W/out}; mkdir -p $OUT; : > $OUT/liger.txt
rc=0; note() { echo "$@" | tee -a $OUT/liger.txt; }
cat > $W/tutorials.py <<'PY'
"""Kernels of Triton's tutorials 02, 03 and 05, as they are there; matmul with three of its configurations."""
import torch, triton, triton.language as tl


@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr,
                   num_stages: tl.constexpr):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float('inf'))
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx * output_row_stride
        output_ptrs = output_row_start_ptr + col_offsets
        tl.store(output_ptrs, softmax_output, mask=mask)


@triton.autotune(configs=[
    triton.Config({'BLOCK_SIZE_M': 128, 'BLOCK_SIZE_N': 256, 'BLOCK_SIZE_K': 64, 'GROUP_SIZE_M': 8}, num_stages=3, num_warps=8),
    triton.Config({'BLOCK_SIZE_M': 128, 'BLOCK_SIZE_N': 128, 'BLOCK_SIZE_K': 32, 'GROUP_SIZE_M': 8}, num_stages=4, num_warps=4),
    triton.Config({'BLOCK_SIZE_M': 64, 'BLOCK_SIZE_N': 256, 'BLOCK_SIZE_K': 32, 'GROUP_SIZE_M': 8}, num_stages=4, num_warps=4),
], key=['M', 'N', 'K'])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
                  GROUP_SIZE_M: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0); tl.assume(pid_n >= 0); tl.assume(stride_am > 0); tl.assume(stride_ak > 0)
    tl.assume(stride_bn > 0); tl.assume(stride_bk > 0); tl.assume(stride_cm > 0); tl.assume(stride_cn > 0)
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = tl.where(accumulator >= 0, accumulator, 0.01 * accumulator)
    c = accumulator.to(tl.float16)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


@triton.jit
def _layer_norm_fwd_fused(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    mean = 0
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
        x_hat = (x - mean) * rstd
        y = x_hat * w + b
        tl.store(Y + cols, y, mask=mask)


@triton.jit
def _layer_norm_bwd_dx_fused(DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP_SIZE_M: tl.constexpr,
                             BLOCK_SIZE_N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE_N)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = (x - mean) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.)
    wdy = tl.where(mask, wdy, 0.)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (xhat * c1 + c2)) * rstd
    tl.store(DX + cols, dx, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = (dy).to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def _layer_norm_bwd_dwdb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    pid = tl.program_id(0)
    cols = pid * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    dw = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_SIZE_M):
        rows = i + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.)
        db += tl.load(DB + offs, mask=mask, other=0.)
    sum_dw = tl.sum(dw, axis=0)
    sum_db = tl.sum(db, axis=0)
    tl.store(FINAL_DW + cols, sum_dw, mask=cols < N)
    tl.store(FINAL_DB + cols, sum_db, mask=cols < N)


def softmax(x, y, programs):
    n_rows, n_cols = x.shape
    softmax_kernel[(min(programs, n_rows), 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols,
                                                  triton.next_power_of_2(n_cols), 4, num_warps=8)


def matmul(a, b, c):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda META: (triton.cdiv(M, META['BLOCK_SIZE_M']) * triton.cdiv(N, META['BLOCK_SIZE_N']), )
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
                        ACTIVATION="")


def layer_norm(x, y, w, b, dy, dx, group):
    M, N = x.shape
    mean, rstd = (torch.empty((M, ), dtype=torch.float32, device=x.device) for _ in range(2))
    _layer_norm_fwd_fused[(M, )](x, y, w, b, mean, rstd, x.stride(0), N, 1e-5, BLOCK_SIZE=N, num_warps=8, num_ctas=1)
    locks = torch.zeros(2 * group, dtype=torch.int32, device=w.device)
    _dw, _db = (torch.zeros((group, N), dtype=x.dtype, device=w.device) for _ in range(2))
    dw, db = (torch.empty((N, ), dtype=w.dtype, device=w.device) for _ in range(2))
    _layer_norm_bwd_dx_fused[(M, )](dx, dy, _dw, _db, x, w, mean, rstd, locks, x.stride(0), N, BLOCK_SIZE_N=N,
                                    GROUP_SIZE_M=group, num_warps=8)
    _layer_norm_bwd_dwdb[(triton.cdiv(N, 128), )](_dw, _db, dw, db, min(group, M), N, BLOCK_SIZE_M=32, BLOCK_SIZE_N=128,
                                                  num_ctas=1)
PY
cat > $W/kernels.py <<'PY'
"""The calls of all kernels, and counts by hand: python kernels.py HAND.json [STEPS]"""
import json, sys, torch
import tutorials
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction

DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cuda"
SMS = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 132
BF, HALF = torch.bfloat16, torch.float16


def made(*shape, dtype=BF, grad=False):
    return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_(grad)


# By hand, from the sources: R rows of N, B tokens of V logits, S positions of a batch of 2 with 32 heads and 8 of keys, 128
# wide. FLOP: each addition, product, division, exponential, root, maximum and negation on floats is one, a reduction of n
# n - 1; lanes that a mask switches off count (N is a power of two; V is padded to 4 blocks of 32768, 2.2 % more). Bytes:
# each tensor once, read and written.
R, N, B, V, S, HEADS = 4096, 4096, 1024, 128256, 4096, 40
M, GROUP, K = 1024, 64, 2048
hand = {
    # maximum, sum; x - m, * log2(e), exp2 | the same three, / d; z-loss * and +, - eps, / tokens. X in place, int64
    # targets, losses in bf16.
    "liger_cross_entropy_kernel": (13 * B * V, 4 * B * V + 10 * B),
    # x * x, sum, * rstd, offset + w, *; a row: / n, + eps, rsqrt. X, Y, W; RSTD in fp32.
    "_rms_norm_forward_kernel": (5 * R * N + 3 * R, 4 * R * N + 2 * N + 4 * R),
    # dy * w, * rstd, m * x, sum, scale * x, * rstd, +, x * rstd, dy *, dW +; a program: w + offset. dX in a tensor of its
    # own; dW in fp32 of each multiprocessor.
    "_rms_norm_backward_kernel": (10 * R * N + SMS * N, 6 * R * N + 2 * N + 4 * R + 4 * SMS * N),
    # sum, x - mean, square, sum, * rstd, * w, + b; a row: / n, / n, + eps, rsqrt. X, Y, W, B; mean and rstd in fp32.
    "_layer_norm_forward_kernel": (7 * R * N + 4 * R, 4 * R * N + 4 * N + 8 * R),
    # x - mean, * rstd, w * dy, x_hat *, sum, sum, x_hat * c1, + c2, wdy -, * rstd, dy * x_hat, dW +, db +.
    "_layer_norm_backward_kernel": (13 * R * N, 6 * R * N + 2 * N + 8 * R + 8 * SMS * N),
    # Of each pair four products, a difference and a sum: three an element. In place; half of cos and sin.
    "_triton_rope": (3 * 2 * S * HEADS * 128, 4 * 2 * S * HEADS * 128 + 2 * 2 * S * 64),
    # * multiplier; sigmoid: -, exp, 1 +, 1 /; a *, * b.
    "_swiglu_forward_kernel": (7 * R * N, 6 * R * N),
    # the first five, a * sigmoid; dc * silu; 1 -, *, +, dc *, * b, * multiplier. dA and dB in place of A and B.
    "_swiglu_backward_kernel": (13 * R * N, 10 * R * N),
    # maximum, x - max, exp, sum, /.
    "softmax_kernel": (5 * R * N, 8 * R * N),
    "matmul_kernel": (2 * K**3, 6 * K**2),
    # One block a row, so both sums are over N: +, sum; x - mean, square, +, sum; x - mean, * rstd, * w, + b.
    "_layer_norm_fwd_fused": (10 * M * N, 4 * M * N + 4 * N + 8 * M),
    # x - mean, * rstd, w * dy, x_hat *, sum, sum, x_hat * c1, + c2, wdy -, * rstd, dy * x_hat; and the two partial sums,
    # but for the first row of each group. DW and DB are read and written.
    "_layer_norm_bwd_dx_fused": (11 * M * N + 2 * (M - GROUP) * N, 6 * M * N + 2 * N + 8 * M + 8 * GROUP * N),
    # Two sums over the group, in blocks of 32 rows from zero, which are then summed.
    "_layer_norm_bwd_dwdb": (2 * (GROUP + 31) * N, 4 * GROUP * N + 4 * N),
}
x, w, dy = made(R, N, grad=True), made(N, grad=True), made(R, N)
b = made(N, grad=True)
q, k = (made(2, S, heads, 128).transpose(1, 2).requires_grad_() for heads in (32, 8))
dq, dk = (torch.randn_like(t) for t in (q, k))
cos, sin = made(1, S, 128), made(1, S, 128)
gate, up = made(R, N, grad=True), made(R, N, grad=True)
logits, target = made(B, V, grad=True), torch.randint(V, (B,), device=DEVICE)
f, g = made(R, N, dtype=torch.float32), torch.empty(R, N, device=DEVICE)
left, right, out = (made(K, K, dtype=HALF) for _ in range(3))
xh, yh, dyh, dxh = (made(M, N, dtype=HALF) for _ in range(4))
wh, bh = (made(N, dtype=HALF) for _ in range(2))
calls = [
    lambda: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False).backward(dy),
    lambda: LigerLayerNormFunction.apply(x, w, b, 1e-6).backward(dy),
    lambda: torch.autograd.backward(LigerRopeFunction.apply(q, k, cos, sin), (dq, dk)),
    lambda: LigerSiLUMulFunction.apply(gate, up).backward(dy),
    lambda: LigerCrossEntropyFunction.apply(logits, target, None)[0].backward(),
    lambda: tutorials.softmax(f, g, 4 * SMS),
    lambda: tutorials.matmul(left, right, out),
    lambda: tutorials.layer_norm(xh, yh, wh, bh, dyh, dxh, GROUP),
]
try:
    import helion, helion.language as hl

    @helion.kernel(config=helion.Config(block_sizes=[1], num_warps=8), static_shapes=True)
    def helion_softmax(given: torch.Tensor) -> torch.Tensor:
        n, _ = given.size()
        result = torch.empty_like(given)
        for tile in hl.tile(n):
            values = given[tile, :]
            part = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
            result[tile, :] = part / torch.sum(part, dim=1, keepdim=True)
        return result

    if DEVICE == "cuda":
        error = float((helion_softmax(f) - torch.softmax(f, 1)).abs().max())
        assert error < 1e-5, f"softmax differs by {error}"
    calls.append(lambda: helion_softmax(f))
    hand["_helion_helion_softmax"] = (5 * R * N, 8 * R * N)
except Exception as error:  # it needs a torch that it knows
    print("FAIL Helion:", type(error).__name__, str(error)[-300:], file=sys.stderr)
if __name__ == "__main__":
    json.dump(hand, open(sys.argv[1], "w"))
    optimizer = torch.optim.SGD([w, b], lr=1e-6)
    for _ in range(int(sys.argv[2])):
        optimizer.zero_grad(set_to_none=True)
        for tensor in (x, q, k, gate, up, logits):
            tensor.grad = None
        for call in calls:
            call()
        optimizer.step()
    torch.cuda.synchronize()
PY
cat > $W/check.py <<'PY'
import json, sys, warnings; warnings.simplefilter("ignore")
import perfkit
from perfkit import table as columns
hand = json.load(open(sys.argv[2])); reading = perfkit.read(sys.argv[1]); f = reading.table.frame; wrong = 0
f = f[f.kind == "gpu_kernel"]
for name, (flop, size) in hand.items():
    rows = f[(f.name == name) | (f.short_name == name)]
    if not len(rows):
        print("FAIL", name, "has no row"); wrong += 1; continue
    done, moved = rows[list(columns.FLOP_COLUMNS)].sum(axis=1, min_count=1), rows.bytes_read + rows.bytes_written
    off, gone = done / flop - 1, moved / size - 1
    good = bool((off.abs() <= .05).all() and (gone.abs() <= .05).all()); wrong += not good
    print("OK  " if good else "FAIL", f"{name}: {len(rows)} rows, FLOP by hand {flop:.4g} ({off.min():+.2%} to {off.max():+.2%}), bytes {size:.4g} ({gone.min():+.2%} to {gone.max():+.2%}); {rows.duration_ns.median() / 1e3:.1f} us, {rows.flop_origin.iloc[0]}")
backend = reading.report.backends[0]
# Kernels of less than 5 us are too small to judge, and have no point.
asked = [n for n in hand if f.duration_ns[(f.name == n) | (f.short_name == n)].median() >= 5e3]
missing = [n for n in asked if not any(n in str(point) for point in backend.points)]
print("FAIL" if missing else "OK  ", f"roofline names {len(asked) - len(missing)} of {len(asked)}: missing {missing}")
said = [str(w) for w in backend.warnings if "cost" in str(w) or "not known from" in str(w)]
print("     warnings:", said); wrong += bool(missing)
sys.exit(wrong > 0)
PY
python3 -c "import liger_kernel.ops, importlib.metadata as m; print('liger-kernel', m.version('liger-kernel'))" 2>$W/import.err | tee -a $OUT/liger.txt
[ ${PIPESTATUS[0]} = 0 ] || { note "FAIL liger_kernel is not on PYTHONPATH: $(tail -1 $W/import.err)"; exit 1; }
python3 -c "import torch, triton; print('torch', torch.__version__, 'triton', triton.__version__)" | tee -a $OUT/liger.txt
timeout 130 python3 -m perfkit capture --out $W/cap --overwrite --warmup 4 --steps 2 --no-lines --limit 5 -- python3 $W/kernels.py $W/hand.json 9 >$W/cap.txt 2>$W/cap.err; note "capture rc $?, $SECONDS s"
grep -a "FAIL\|rror" $W/cap.err | head -5 | tee -a $OUT/liger.txt; cp $W/cap.err $OUT/
timeout 60 python3 $W/check.py $W/cap $W/hand.json 2>&1 | tee -a $OUT/liger.txt; [ ${PIPESTATUS[0]} = 0 ] || rc=1
grep -q ^FAIL $OUT/liger.txt && rc=1
note "== end at $SECONDS s, rc $rc"; exit $rc
