"""Products and functions by a library that another one beats on this processor: MKL where that is not Intel's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.roofline.roof import BOUNDS
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.rules.chains import on_complex
from perfkit.hardware.ceilings import BUSY, FUNCTIONS

_UNIT, _OWN = "matrix_fp32", "torch.mm"  # as `Ceilings.libraries` has them
_PRODUCTS = ("aten::mm", "aten::addmm")
_INTEL = "GenuineIntel"
_SLOWER = 2  # times: exp and exp2 are as much work
# Functions that took less time on an AMD EPYC with MKL's code for Intel's processors (PyTorch 2.13).
_MKL_FUNCTIONS = tuple(
    f"aten::{name}{in_place}"
    for name in ("acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin", "sqrt",
                 "tan", "tanh", "trunc")
    for in_place in ("", "_")
)  # fmt: skip
_FASTER = 1.3  # times as fast in large products: less is not worth another library
_NOTABLE = 0.02  # of the step
# Products above the rate that was measured for their library come from it started otherwise, or from another one.
_ABOVE = 1.1
_LARGE = 0.5  # of the library's rate: what is further below is too small, and waits for something else

_FOR_MKL = (
    "Where PyTorch has MKL, let that choose its code by what the processor can do: `echo 'int "
    "mkl_serv_intel_cpu_true(void) { return 1; }' | gcc -shared -fPIC -o libmklchoice.so -x c -`, then start the "
    "program with LD_PRELOAD=$PWD/libmklchoice.so. This is an internal switch: read MKL's licence, and check the "
    "results (torch.ones(1).sqrt() as the first call helps: docs/numbers.md, Correctness)."
)
_OWN_FUNCTIONS = (
    "PyTorch's own functions are fast everywhere: F.gelu, sigmoid, rsqrt; torch.compile writes its own code for others."
)
_OTHERWISE = (
    "Take oneDNN instead: for inference torch.compile and torch.utils.mkldnn.to_mkldnn(model) multiply by it, and "
    "torch.autocast to bf16 in training too."
)


def _slow(rule: Rule, case: Case) -> Iterator[Finding]:
    rates = _rates(case, _UNIT)
    own_rate, best = rates.get(_OWN), max(rates, key=lambda name: rates[name], default="")
    if not own_rate or rates[best] < _FASTER * own_rate:
        return
    flop = np.nan_to_num(case.frame[f"flop_{_UNIT}"].to_numpy(float))
    time = np.nan_to_num(case.judged.time)
    rows = case.is_in("name", _PRODUCTS) & case.judged.judged & (case.judged.bound == BOUNDS.index(_UNIT))
    rows &= (flop >= _LARGE * own_rate * time / 1e9) & ~on_complex(case)  # of which the rates say nothing
    took = case.time(rows)
    if case.share(took) < _NOTABLE or (rate := flop[rows].sum() / time[rows].sum() * 1e9) > _ABOVE * own_rate:
        return
    yield rule.finding(
        case,
        f"fp32 products by {_OWN} take {units.text(took, 'ns')} where {best} is {rates[best] / own_rate:.1f} × as fast",
        f"Measured here: {_OWN} {units.text(own_rate, 'FLOP/s')}, {best} {units.text(rates[best], 'FLOP/s')}. These "
        f"products run at {units.text(rate, 'FLOP/s')}, {case.of_whole(took)}; as near to the rate "
        f"of {best} they would take {units.text(took * own_rate / rates[best], 'ns')}.{_maker(case)}",
        took,
        took - case.per_step(np.nansum(case.judged.roof[rows])),
        rows=rows,
        remedy=_OTHERWISE if _cpu(case).get("vendor") == _INTEL else "",
    )


def _rates(case: Case, of: str) -> Mapping[str, float]:
    """The measured rate of each library; none where other programs used the machine: such rates do not compare."""
    measured = case.ceilings
    return measured.libraries.get(of, {}) if measured and (measured.load or 0.0) <= BUSY else {}


def _cpu(case: Case) -> Mapping[str, Any]:
    return case.about.environment.get("cpu") or {}


def _maker(case: Case) -> str:
    """A sentence about a processor that MKL does not take for its own; "" of others."""
    cpu = _cpu(case)
    if cpu.get("vendor") in (None, _INTEL) or cpu.get("architecture") not in ("x86_64", "AMD64"):
        return ""
    return f" {cpu.get('model')} is not Intel's, and MKL keeps its fastest code for Intel's."


def _functions(rule: Rule, case: Case) -> Iterator[Finding]:
    rates = _rates(case, FUNCTIONS)
    exp, exp2 = rates.get("torch.exp"), rates.get("torch.exp2")
    if not exp or not exp2 or exp2 < _SLOWER * exp:
        return
    rows = case.is_in("name", _MKL_FUNCTIONS) & case.judged.judged
    took = case.time(rows)
    if case.share(took) < _NOTABLE:
        return
    numbers = np.nansum(case.frame["bytes_written"].to_numpy(float)[rows]) / 4
    if numbers / np.nansum(case.judged.time[rows]) * 1e9 > _SLOWER * exp:
        return  # memory aside, no slow code takes so many: the program was started otherwise than the measurement
    yield rule.finding(
        case,
        f"Functions of MKL take {units.text(took, 'ns')}, where PyTorch's own code is {exp2 / exp:.1f} × as fast",
        f"Measured here: torch.exp, which is MKL's, {units.text(exp, '')} numbers/s, and torch.exp2, which is "
        f"not, {units.text(exp2, '')}.{_maker(case)}",
        took,
        took - case.per_step(np.nansum(case.judged.roof[rows])),
        rows=rows,
        remedy=_OWN_FUNCTIONS if _cpu(case).get("vendor") == _INTEL else "",
    )


LIBRARY = Rule(
    name="slow-blas",
    summary="matrix products by a library that another one beats on this processor",
    where=ON_A_CPU,
    what="torch.mm on a CPU calls the BLAS that PyTorch was built with, on x86 mostly MKL. MKL asks who made the "
    "processor, and takes slower code on one that is not Intel's, whatever it can do. oneDNN, which PyTorch has as "
    "well, goes by the instructions that the processor has.",
    recognised=f"fp32 products by `mm` and `addmm` that are bound by arithmetic and take at least {_NOTABLE:.0%} of "
    f"the step, where `perfkit ceilings` found another library at least {_FASTER} times as fast, and the program's "
    "products run no faster than `torch.mm` did there.",
    estimate="Their time less their roof, which is the faster library's rate. The evidence says what they would take "
    "at the same share of that rate.",
    remedies=(_FOR_MKL, _OTHERWISE),
    example="On two cores of an AMD EPYC, fp32, by MKL's other code: a step of GPT-2 124M in eager 0.86 s instead of "
    "1.41, a training step of a NeRF 358 ms instead of 688.",
    find=_slow,
)
_VECTOR_MATH = Rule(
    name="slow-functions",
    summary="MKL's exp, log, tanh and sqrt by its slower code",
    where=ON_A_CPU,
    what="PyTorch takes exp, log, sqrt, tanh, erf, sin, cos and some others of fp32 and fp64 tensors from MKL's vector "
    "mathematics. On a processor that is not Intel's MKL runs code for any processor. sigmoid, gelu, softmax, rsqrt "
    "and exp2 are PyTorch's own, and fast everywhere.",
    recognised=f"Rows of these functions that take at least {_NOTABLE:.0%} of the step, where `perfkit ceilings` found "
    f"exp2 at least {_SLOWER:.0f} times as fast as exp.",
    estimate="Their time less their roof.",
    remedies=(_FOR_MKL, _OWN_FUNCTIONS),
    example="131,072 numbers on two cores of an AMD EPYC: tanh 134 µs, and 12 with MKL's other code; exp 41 and 7.5, "
    "sqrt 25 and 6.",
    find=_functions,
)  # fmt: skip
RULES = (LIBRARY, _VECTOR_MATH)
