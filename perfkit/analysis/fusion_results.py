"""Records of what fusing could save, and of what a compiler made of it: a part of `perfkit.analysis.results`."""

from __future__ import annotations

import msgspec


class FusionPart(msgspec.Struct, kw_only=True):
    """The fusible kernels of one pass, a step: as they ran, as predicted when fused, and as a compiler fused them."""

    name: str  # forward (all before the backward pass) or backward
    kernels: float
    time_ns: float
    bytes: float
    predicted_kernels: float
    predicted_ns: float
    predicted_bytes: float
    achieved_kernels: float | None = None
    achieved_ns: float | None = None
    achieved_bytes: float | None = None  # None where those of some kernel are not known
    efficiency: float | None = None  # of the compiler's kernels
    why: str = ""  # prediction and achievement part


class FusionGroup(msgspec.Struct, kw_only=True):
    """Chains of the same operators in one pass, a step: as they ran, and as one kernel each."""

    name: str  # such as "forward add → gelu → mul"
    count: float
    kernels: float
    time_ns: float
    predicted_ns: float


class FusedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that a compiler fused, a step: predicted from the operators that it replaces, and measured.

    `eager_ns` is its part of what these operators took in eager; None where that is not the same work, and `apart` says
    why. `predicted_ns` is None if none is possible, and `why` then says so; else `why` explains
    predictions that are far from the measurement.
    """

    name: str
    pass_: str
    operators: list[str]
    count: float
    eager_ns: float | None
    predicted_ns: float | None
    measured_ns: float
    bound: str = ""  # what sets the prediction: memory, arithmetic or start
    why: str = ""
    apart: str = ""


class Fusion(msgspec.Struct, kw_only=True):
    """Savings of fusing in a step (`perfkit.analysis.fusion`), and the result of the run's compiled backend."""

    parts: list[FusionPart]
    groups: list[FusionGroup]  # those first on which fusing saves most
    launch_ns: float  # between kernels, that fusing ends
    step_ns: float
    predicted_step_ns: float
    achieved_by: str = ""
    achieved_step_ns: float | None = None
    step_why: list[str] = []  # where the achieved step parts from the predicted one, the largest part first
    kernels: list[FusedKernel] = []  # of the compiler, the longest first
    kernels_error: float | None = None  # Σ |predicted − measured| / Σ measured of those with a prediction
    kernels_known: float | None = None  # the share of the fused kernels' time that has one
