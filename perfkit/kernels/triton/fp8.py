"""Numbers of fp8 in Triton, as bytes: e4m3 (3 bits of mantissa, up to 448) and e5m2 (2 bits, up to 57344)."""

import triton
import triton.language as tl

from perfkit.kernels.triton.availability import interpreted

LEAST_AMAX: tl.constexpr = tl.constexpr(2.0**-100)  # of a largest value: its scale is not 0


def converts() -> bool:
    """Return whether the GPU converts to both formats by itself: from compute capability 8.9 on."""
    if interpreted():
        return False
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return target.backend == "cuda" and target.arch >= 89


@triton.jit
def magnitude(value):
    """|value| by its bits: as integers they are in the same order, with infinity and then NaN at the end."""
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def raise_amax(amax, largest):
    """The number at `amax` becomes the larger of it and of `largest`, a magnitude; most are not."""
    place = amax.to(tl.pointer_type(tl.int32), bitcast=True)
    if largest > tl.load(place, volatile=True):
        tl.atomic_max(place, largest)


@triton.jit
def largest_of(value, out):
    """The largest magnitude of a tile as it is stored at `out`. Rounding keeps the order: of the largest it will do."""
    bits = magnitude(value)
    largest = tl.max(tl.max(bits, 1), 0) if len(bits.shape) == 2 else tl.max(bits, 0)
    kept = largest.to(tl.float32, bitcast=True).to(out.dtype.element_ty).to(tl.float32)
    return kept.to(tl.int32, bitcast=True)


@triton.jit
def scale_of(amax, MOST: tl.constexpr):
    """What a stored number divides by."""
    return tl.div_rn(tl.where(amax < LEAST_AMAX, LEAST_AMAX, amax), MOST)


@triton.jit
def to_fp8(value, MANTISSA: tl.constexpr, BIAS: tl.constexpr, MOST: tl.constexpr, CONVERTS: tl.constexpr):
    """The byte of the nearest number of the format, ties to even; beyond the largest, that one; NaN stays NaN."""
    if CONVERTS:
        value = tl.clamp(value, -MOST, MOST, propagate_nan=tl.PropagateNan.ALL)
        form: tl.constexpr = tl.float8e4nv if MANTISSA == 3 else tl.float8e5
        return value.to(form).to(tl.uint8, bitcast=True)
    bits = value.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    most = tl.full(value.shape, MOST, tl.float32).to(tl.int32, bitcast=True)
    least = tl.minimum(size, most)
    DROPPED: tl.constexpr = 23 - MANTISSA
    # Below the smallest normal number: added to this one, the last bit that is kept is that of the smallest number.
    step: tl.constexpr = (128 - BIAS + DROPPED) << 23
    step_of = tl.full(value.shape, step, tl.int32).to(tl.float32, bitcast=True)
    small = (least.to(tl.float32, bitcast=True) + step_of).to(tl.int32, bitcast=True) - step
    rounded = least + (1 << (DROPPED - 1)) - 1 + ((least >> DROPPED) & 1)
    normal = (rounded >> DROPPED) - ((127 - BIAS) << MANTISSA)
    found = tl.where(least < ((128 - BIAS) << 23), small, normal)
    found = tl.where(size > 0x7F800000, 0x7F, found)
    return (found | ((bits >> 24) & 0x80)).to(tl.uint8)
