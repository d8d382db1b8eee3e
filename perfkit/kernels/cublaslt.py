"""Matrix products by cuBLASLt, the library under PyTorch's own products on a GPU: the language "cublaslt".

PyTorch runs the algorithm that the library's heuristic puts first, and offers few of its epilogues. Here the first
product of a form runs all algorithms that the heuristic offers, and the fastest is kept for this machine.

Constants and layouts are those of cublasLt.h. The library's matrices lie column by column: a row-major (R, S) is its
(S, R), so out = a · b is asked for as outᵀ = bᵀ · aᵀ.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perfkit.errors import RunFailed
from perfkit.kernels.measured import kept, replayed_ns

OFFERED = 8  # algorithms that the heuristic is asked for
WORKSPACE = 32 << 20  # bytes: what PyTorch gives the library on Hopper
CALLS = 4  # in a graph that is timed

_TYPES = {  # CUDA_R_32F, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2
    torch.float32: 0, torch.bfloat16: 14, torch.float8_e4m3fn: 28, torch.float8_e5m2: 29,
}  # fmt: skip
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS, _AUX, _AUX_STRIDE = 3, 4, 7, 8, 11, 12  # CUBLASLT_MATMUL_DESC_…
_SCALE_A, _SCALE_B, _FAST = 17, 18, 25  # CUBLASLT_MATMUL_DESC_…
_MOST_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_…: of A, B, C and D
_LARGEST_ALIGNMENT = 256


class Epilogue(enum.IntEnum):
    """Operations on a product before it is written."""

    NONE = 1
    BIAS = 4  # + bias (columns)
    GELU_AUX_BIAS = 164  # + bias, kept in aux, then GELU in its tanh form
    DGELU = 192  # times the derivative of GELU at aux


class Scales(NamedTuple):
    """What numbers of fp8 are multiplied by, () in fp32; `fast` sums are kept with fewer bits."""

    of_a: Tensor
    of_b: Tensor
    fast: bool = False


class ProductShape(NamedTuple):
    """All that the choice of an algorithm depends on: out (rows, columns) = a · b, a sum of `inner` terms each.

    `turned`: whether a is given as (inner, rows), and b as (columns, inner). `dtypes` are those of a, b and out.
    """

    rows: int
    columns: int
    inner: int
    turned: tuple[bool, bool]
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype]
    epilogue: Epilogue
    add: bool
    tf32: bool
    fast: bool
    alignment: int  # bytes: of all addresses
    device: int


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Offer(ctypes.Structure):
    _fields_ = [
        ("algorithm", _Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


def unavailable() -> str | None:
    """One sentence why no product can be made by cuBLASLt here, or None."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return "PyTorch finds no CUDA GPU on this machine, which cuBLASLt needs."
    try:
        _library()
    except OSError as error:
        return f"cuBLASLt cannot be loaded: {error}."
    return None


def product(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    turned: tuple[bool, bool] = (False, False),
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    aux: Tensor | None = None,
    add: bool = False,
    scales: Scales | None = None,
) -> bool:
    """out (R, S) = a (R, K) · b (K, S), or with `add` its sum with what `out` holds; False where the library cannot.

    All contiguous, on one GPU and of one precision; of fp8, with `scales`, are a and b alone, and b is turned.
    `turned`: a is (K, R), b is (S, K). `bias` (S) and `aux` (R, S) are what the epilogue reads or writes.
    """
    tensors = [t for t in (a, b, out, bias, aux) if t is not None]
    dtypes = a.dtype, b.dtype, out.dtype
    if not all(dtype in _TYPES for dtype in dtypes) or not all(t.numel() for t in tensors):
        return False
    rows, columns = out.shape
    inner = a.shape[0 if turned[0] else 1]
    tf32 = out.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    form = ProductShape(
        rows, columns, inner, turned, dtypes, epilogue, add, tf32, scales is not None and scales.fast,
        _alignment(tensors), out.get_device(),
    )  # fmt: skip
    more = bias, aux, scales
    with torch.cuda.device(form.device):
        plan = _plan(form, lambda new: _fastest(new, a, b, out, more))
        if plan is not None:
            plan(a, b, out, more)
    return plan is not None


More = tuple[Tensor | None, Tensor | None, Scales | None]  # bias, aux, scales


class _Plan:
    """A product of one form, out = alpha · a · b + beta · out: what the library knows it by, and the algorithm."""

    def __init__(self, form: ProductShape) -> None:
        self.form = form
        self.algorithm = _Algorithm()
        self._lock = threading.Lock()  # of the addresses, which the description holds
        compute = _COMPUTE_32F_FAST_TF32 if form.tf32 else _COMPUTE_32F
        self._description = _made("MatmulDesc", compute, _TYPES[torch.float32])
        # The library computes the transpose: outᵀ = bᵀ · aᵀ.
        self._set(_TRANSPOSE_A, ctypes.c_int32(form.turned[1]))
        self._set(_TRANSPOSE_B, ctypes.c_int32(form.turned[0]))
        self._set(_EPILOGUE, ctypes.c_int32(form.epilogue))
        if form.fast:
            self._set(_FAST, ctypes.c_int8(1))
        of_a, of_b, of_out = form.dtypes
        self._of_a = self._layout(of_a, form.rows, form.inner, form.turned[0])
        self._of_b = self._layout(of_b, form.inner, form.columns, form.turned[1])
        self._of_out = self._layout(of_out, form.rows, form.columns, False)
        self._alpha, self._beta = ctypes.c_float(1.0), ctypes.c_float(1.0 if form.add else 0.0)

    def offers(self, more: More) -> list[_Algorithm]:
        """Return the algorithms that the heuristic offers, the best first."""
        wanted = _made("MatmulPreference")
        _set("MatmulPreference", wanted, _MOST_WORKSPACE, ctypes.c_size_t(WORKSPACE))
        for attribute in _ALIGNMENTS:
            _set("MatmulPreference", wanted, attribute, ctypes.c_uint32(self.form.alignment))
        self._point(*more)
        found, count = (_Offer * OFFERED)(), ctypes.c_int()
        layouts = self._of_b, self._of_a, self._of_out, self._of_out
        code = _library().cublasLtMatmulAlgoGetHeuristic(
            _handle(self.form.device), self._description, *layouts, wanted, OFFERED, found, ctypes.byref(count)
        )
        _library().cublasLtMatmulPreferenceDestroy(wanted)
        return [] if code else [_Algorithm(offer.algorithm.data) for offer in found[: count.value] if not offer.state]

    def __call__(self, a: Tensor, b: Tensor, out: Tensor, more: More) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        space = _workspace(self.form.device, stream)
        place, address = self._of_out, ctypes.c_void_p(out.data_ptr())
        with self._lock:
            self._point(*more)
            code = _library().cublasLtMatmul(
                _handle(self.form.device), self._description,
                ctypes.byref(self._alpha), ctypes.c_void_p(b.data_ptr()), self._of_b,
                ctypes.c_void_p(a.data_ptr()), self._of_a, ctypes.byref(self._beta), address, place, address, place,
                ctypes.byref(self.algorithm), ctypes.c_void_p(space.data_ptr()), ctypes.c_size_t(WORKSPACE),
                ctypes.c_void_p(stream),
            )  # fmt: skip
        _require(code, "run a product")

    def _point(self, bias: Tensor | None, aux: Tensor | None, scales: Scales | None) -> None:
        if bias is not None:
            self._set(_BIAS, ctypes.c_void_p(bias.data_ptr()))
        if aux is not None:
            self._set(_AUX, ctypes.c_void_p(aux.data_ptr()))
            self._set(_AUX_STRIDE, ctypes.c_int64(self.form.columns))
        if scales is not None:  # the library's A is b
            self._set(_SCALE_A, ctypes.c_void_p(scales.of_b.data_ptr()))
            self._set(_SCALE_B, ctypes.c_void_p(scales.of_a.data_ptr()))

    def _set(self, attribute: int, value: ctypes._SimpleCData[Any]) -> None:
        _set("MatmulDesc", self._description, attribute, value)

    def _layout(self, dtype: torch.dtype, rows: int, columns: int, turned: bool) -> ctypes.c_void_p:
        """Describe a row-major matrix (rows, columns), or one given as (columns, rows), to the library."""
        long, short = (rows, columns) if turned else (columns, rows)
        sizes = ctypes.c_uint64(long), ctypes.c_uint64(short), ctypes.c_int64(long)
        return _made("MatrixLayout", _TYPES[dtype], *sizes)


_plans: dict[ProductShape, _Plan | None] = {}


def _plan(form: ProductShape, fastest: Callable[[_Plan], list[int] | None]) -> _Plan | None:
    """The plan of a form, measured at its first use; None where the library has no algorithm for it."""
    if form in _plans:
        return _plans[form]
    plan = _Plan(form)
    if torch.cuda.is_current_stream_capturing():  # nothing can be timed now; the next call may
        first = plan.offers((None, None, None))
        plan.algorithm = first[0] if first else plan.algorithm
        return plan if first else None
    facts = [torch.cuda.get_device_name(form.device), torch.__version__, _version()]
    facts += [str(value) for value in form._replace(device=0)]
    found = kept("products", facts, lambda: fastest(plan))
    if found:
        plan.algorithm = _Algorithm((ctypes.c_uint64 * 8)(*found))
    _plans[form] = plan if found else None
    return _plans[form]


def _fastest(plan: _Plan, a: Tensor, b: Tensor, out: Tensor, more: More) -> list[int] | None:
    """The data of the algorithm that takes least time for these tensors, which are written as by one call."""
    place = torch.empty_like(out) if plan.form.add else out  # timing adds many times

    def run(algorithm: _Algorithm) -> None:
        plan.algorithm = algorithm
        plan(a, b, place, more)

    able = []
    for algorithm in plan.offers(more):
        try:
            run(algorithm)
        except RunFailed:  # offered, and not for these addresses
            continue
        able.append(algorithm)
    if not able:
        return None
    times = replayed_ns([functools.partial(run, algorithm) for algorithm in able], CALLS)
    return list(able[times.index(min(times))].data)


@functools.cache
def _library() -> ctypes.CDLL:
    """The one that PyTorch has loaded: of the same major version of CUDA."""
    assert torch.version.cuda is not None
    library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return library


def _version() -> int:
    return int(_library().cublasLtGetVersion())


@functools.cache
def _handle(device: int) -> ctypes.c_void_p:
    """The library's context of a GPU, the current one."""
    handle = ctypes.c_void_p()
    _require(_library().cublasLtCreate(ctypes.byref(handle)), "begin")
    return handle


@functools.cache
def _workspace(device: int, stream: int) -> Tensor:
    """Memory for the algorithms, a stream's own: products on several streams may run at once."""
    return torch.empty(WORKSPACE, dtype=torch.uint8, device=f"cuda:{device}")


def _made(kind: str, *arguments: object) -> ctypes.c_void_p:
    thing = ctypes.c_void_p()
    _require(getattr(_library(), f"cublasLt{kind}Create")(ctypes.byref(thing), *arguments), f"make a {kind}")
    return thing


def _set(kind: str, thing: ctypes.c_void_p, attribute: int, value: ctypes._SimpleCData[Any]) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    code = getattr(_library(), f"cublasLt{kind}SetAttribute")(thing, attribute, ctypes.byref(value), size)
    _require(code, f"take attribute {attribute} of a {kind}")


def _alignment(tensors: list[Tensor]) -> int:
    """Bytes to which all addresses are aligned: a power of two, up to what the library asks about."""
    bits = _LARGEST_ALIGNMENT
    for tensor in tensors:
        bits |= tensor.data_ptr()
    return bits & -bits


def _require(code: int, what: str) -> None:
    if code:
        raise RunFailed(f"cuBLASLt could not {what}: status {code}.", "Set PERFKIT_KERNEL_VERSION=1 to do without it.")
