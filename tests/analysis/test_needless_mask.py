"""The saving of a needless mask, by hand: what makes it goes, and a causal kernel of known rate takes its place."""

from __future__ import annotations

import msgspec
import pytest

from perfkit.hardware.attention import CausalRate
from tests.support.analysis.faults import CEILINGS, Row, gpu, named, on_gpu, report

HEADS, T, D = 16, 512, 64
FLOP = 2 * 2 * HEADS * T * T * D  # of all pairs, two products
CAUSAL = FLOP * (T + 1) / (2 * T)
MASK = f"bool[1×1×{T}×{T}]"
RATES = [CausalRate(head=D, length=T, forward=CAUSAL / 100e-6, backward=2.5 * CAUSAL / 400e-6)]
KNOWN = msgspec.structs.replace(CEILINGS, device="cuda:0", attention=RATES)


def attention(us: float, dtype: str = "bf16", backward: bool = False, flop: float | None = FLOP) -> Row:
    operands = [f"{dtype}[1×{HEADS}×{T}×{D}]"] * (4 if backward else 3)
    name = "_scaled_dot_product_efficient_attention" + "_backward" * backward
    work = {} if flop is None else {f"flop_matrix_{dtype}": flop * (2.5 if backward else 1)}
    row = gpu("fmha_cutlass", us, "attention", by=name, shapes=", ".join([*operands, f"bf16[1×1×{T}×{T}]"]), **work)
    return {**row, "pass": "backward" if backward else "forward"}


def converted(us: float, shapes: str = f"{MASK}, bf16[], bf16[]", family: str = "elementwise") -> Row:
    return gpu("where", us, family, by="where", shapes=shapes)


@pytest.mark.parametrize(
    ("rows", "us"),
    [
        ([attention(500)], 400),  # its causal twin takes 100
        ([attention(500), attention(900, backward=True)], 400 + 500),
        ([attention(500), converted(40)], 440),
        ([attention(500), converted(40, f"bf16[1×{HEADS}×{T}×{D}]")], 400),  # not of the mask's places
        ([attention(500), converted(40, f"{MASK}", "optimizer")], 400),
        ([attention(500), converted(40, f"bool[3×1×{T}×{T}]")], 400),  # another batch
        ([attention(500, "fp32")], 250),  # there is no rate of fp32: half
        ([attention(500, flop=None)], 250),
        ([attention(500), attention(30, flop=0.0)], 430),  # prepares the other's products: part of the rate
        ([attention(80)], 0),  # as fast as causal attention already
    ],
)
def test_saving(rows: list[Row], us: float) -> None:
    step = 1000 + sum(row["duration_ns"] for row in rows) / 1e3
    found = named(report([on_gpu(1000), *rows], step, KNOWN)).get("needless-mask")
    assert (found.saving_ns / 1e3 if found else 0) == pytest.approx(us, rel=1e-6)


def test_without_a_rate_half_of_the_attention_and_all_of_what_makes_the_mask() -> None:
    found = named(report([on_gpu(1000), attention(500), converted(40)], 1540, CEILINGS))["needless-mask"]
    assert found.saving_ns == pytest.approx(290e3) and found.time_ns == pytest.approx(540e3) and found.count == 2
    assert "1 more make or convert it" in found.evidence and "rate of causal attention" not in found.evidence
