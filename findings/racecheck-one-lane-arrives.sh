#!/bin/sh
# compute-sanitizer's racecheck follows an mbarrier only for the threads that arrive at it. Where a warp meets (__syncwarp) and one lane
# then arrives for all, as in kernels with rings of tiles, it reports a race between what the other 31 lanes read or wrote before
# and what the thread that waited does after, although both barriers order them. Where every lane arrives, it reports none. So its
# word on such a kernel needs a build in which all arrive.
# The file fails when any of this changes. It needs a GPU of compute capability 8.0 or more and compute-sanitizer (part of the CUDA
# toolkit) on the PATH; it downloads CuPy unless $PYTHON has it.
#
# Seen with compute-sanitizer 2025.3.1, CuPy 14.2.0, one H200:
#   every lane arrives: 0 hazards
#   one lane arrives for its warp: 1 hazard
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
if ! "$python" -c "import cupy" 2>/dev/null; then
    "$python" -m venv "$work/env"
    python=$work/env/bin/python
    "$python" -m pip install --quiet --no-cache-dir "cupy-cuda13x[ctk]==14.2.0"
fi
cat >"$work/ring.py" <<'PYTHON'
import sys

import cupy

SOURCE = r"""
typedef unsigned long long Barrier;

__device__ unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void make(Barrier *b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(arrivals) : "memory");
}
__device__ void arrive(Barrier *b, bool one_for_all) {
    if (one_for_all) __syncwarp();
    if (!one_for_all || threadIdx.x % 32 == 0)
        asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(at(b)) : "memory");
}
__device__ void wait(Barrier *b, int parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
}

// The first warp writes 32 numbers, the second reads them, turn after turn in the same place.
extern "C" __global__ void ring(float *sums, int turns, bool one_for_all) {
    __shared__ float place[32];
    __shared__ Barrier full, empty;
    int lane = threadIdx.x % 32;
    float sum = 0;
    if (threadIdx.x == 0) make(&full, one_for_all ? 1 : 32), make(&empty, one_for_all ? 1 : 32);
    __syncthreads();
    for (int turn = 0; turn < turns; turn++) {
        if (threadIdx.x < 32) {
            wait(&empty, (turn & 1) ^ 1);
            place[lane] = turn + lane;
            arrive(&full, one_for_all);
        } else {
            wait(&full, turn & 1);
            sum += place[31 - lane];
            arrive(&empty, one_for_all);
        }
    }
    if (threadIdx.x >= 32) sums[lane] = sum;
}
"""
sums = cupy.zeros(32, cupy.float32)
cupy.RawKernel(SOURCE, "ring", ("-std=c++17",))((1,), (64,), (sums, cupy.int32(3), cupy.bool_(sys.argv[1] == "one")))
assert (sums.get() == [3 * (31 - lane) + 3 for lane in range(32)]).all(), sums
PYTHON
compute-sanitizer --version | tail -1
status=0
for way in all one; do
    compute-sanitizer --tool racecheck "$python" "$work/ring.py" $way >"$work/$way.txt" 2>&1 || true
    found=$(sed -n 's/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$work/$way.txt")
    case $way in
    all) echo "every lane arrives: ${found:-no summary} hazards"; [ "$found" = 0 ] || status=1 ;;
    one) echo "one lane arrives for its warp: ${found:-no summary} hazards"; [ "${found:-0}" -gt 0 ] || status=1 ;;
    esac
done
exit $status
