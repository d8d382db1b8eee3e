"""Matrix products by a library that another one beats on this processor: MKL on processors that are not Intel's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.roofline.roof import BOUNDS
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.words import percent

_UNIT, _OWN = "matrix_fp32", "torch.mm"  # as `Ceilings.libraries` has them
_PRODUCTS = ("aten::mm", "aten::addmm")
_INTEL = "GenuineIntel"
_FASTER = 1.3  # times as fast in large products: less is not worth another library
_NOTABLE = 0.02  # of the step
# Products above the rate that was measured for their library come from it started otherwise, or from another one.
_ABOVE = 1.1

_FOR_MKL = (
    "Where PyTorch is built with MKL (torch.__config__.show() says so), let MKL choose its code by what the processor "
    "can do, not by who made it: `echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | gcc -shared -fPIC -o "
    "libmklchoice.so -x c -`, then start the program with LD_PRELOAD=$PWD/libmklchoice.so. This is an internal switch "
    "of MKL: check the results, and read its licence."
)
_OTHERWISE = (
    "Take the faster library where the program can: for inference torch.compile and "
    "torch.utils.mkldnn.to_mkldnn(model) multiply by oneDNN, and so does torch.autocast to bf16, in training too."
)


def _slow(rule: Rule, case: Case) -> Iterator[Finding]:
    rates = case.ceilings.libraries.get(_UNIT, {}) if case.ceilings else {}
    own, best = rates.get(_OWN), max(rates, key=lambda name: rates[name], default="")
    if not case.on_cpu or not own or rates[best] < _FASTER * own:
        return
    flop = np.nan_to_num(case.frame[f"flop_{_UNIT}"].to_numpy(float))
    time = np.nan_to_num(case.judged.time)
    rows = case.is_in("name", _PRODUCTS) & case.judged.judged & (case.judged.bound == BOUNDS.index(_UNIT))
    took = case.time(rows)
    if case.share(took) < _NOTABLE or (rate := flop[rows].sum() / time[rows].sum() * 1e9) > _ABOVE * own:
        return
    cpu = case.about.environment.get("cpu") or {}
    foreign = cpu.get("vendor") not in (None, _INTEL) and cpu.get("architecture") in ("x86_64", "AMD64")
    maker = f" {cpu.get('model')} is not Intel's, and MKL keeps its fastest code for Intel's." if foreign else ""
    yield rule.finding(
        case,
        f"fp32 products by {_OWN} take {units.text(took, 'ns')} where {best} is {rates[best] / own:.1f} × as fast",
        f"Measured here: {_OWN} {units.text(own, 'FLOP/s')}, {best} {units.text(rates[best], 'FLOP/s')}. These "
        f"products run at {units.text(rate, 'FLOP/s')}, {percent(case.share(took))} of the step.{maker}",
        took,
        min(took * (1 - own / rates[best]), took - case.per_step(np.nansum(case.judged.roof[rows]))),
        rows=rows,
        remedy=_OTHERWISE if cpu.get("vendor") == _INTEL else "",
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
    estimate="Their time at the same share of the faster library's rate, and no less than their roof.",
    remedies=(_FOR_MKL, _OTHERWISE),
    example="GPT-2 124M on an AMD EPYC, two cores, fp32: a step of 1.41 s, and of 0.86 s with MKL's other code.",
    find=_slow,
)
RULES = (LIBRARY,)
