"""What a report says of a run in fp8: two roofs, and what scales and casts take."""

from __future__ import annotations

import msgspec
import pytest

from perfkit import table
from perfkit.analysis.report.analyse import analyse
from perfkit.readers.run import Run
from tests.support.analysis.examples import FACTS, backend, ceilings, run

PARTS = {"qkv": 2e9, "projection": 1e9, "mlp": 5e9, "attention_scores": 1e9, "logits": 1e9}


def in_fp8(parts: dict[str, float], tables: dict[str, table.KernelTable] | None = None, **rates: float) -> Run:
    known = ceilings()
    known.compute.update(rates)
    source = run(backend("eager", 100), tables=tables or {}, ceilings=msgspec.to_builtins(known))
    source.manifest.settings = msgspec.structs.replace(source.manifest.settings, dtype="fp8")
    source.manifest.workload.model_flop = parts
    return source


def test_mfu_has_each_part_at_the_ceiling_of_its_precision() -> None:
    (eager,) = analyse(in_fp8(PARTS, matrix_fp8=800e9, matrix_bf16=400e9)).backends
    assert eager.mfu == pytest.approx((8e9 / 800e9 + 2e9 / 400e9) / 0.1)
    assert eager.step_flop == 10e9
    assert eager.mfu_ceiling == (
        "the measured fp8 matmul ceiling (800.0 GFLOP/s) and the measured bf16 matmul ceiling (400.0 GFLOP/s), each "
        "for its part of the FLOP (fp8 80%, bf16 20%)"
    )


@pytest.mark.parametrize(
    ("parts", "rates"),
    [
        (PARTS, {"matrix_bf16": 400e9}),  # as on a CPU, which multiplies no fp8
        ({"forward": 1e9}, {"matrix_fp8": 800e9, "matrix_bf16": 400e9}),  # which part is in fp8 is not known
    ],
)
def test_without_both_roofs_or_known_parts_there_is_no_mfu(parts: dict[str, float], rates: dict[str, float]) -> None:
    assert analyse(in_fp8(parts, **rates)).backends[0].mfu is None


# name, module, operator, ns, and what a fused kernel serves.
ROWS = (
    ("aten::amax", "h.0.fc", "aten::amax", 2e3, None),
    ("aten::copy_", "h.0.fc", "aten::to", 3e3, None),
    ("aten::_scaled_mm", "h.0.fc", "aten::_scaled_mm", 50e3, None),
    ("aten::sum", "h.0.fc", "aten::sum", 1e3, None),
    ("fp8_cast_kernel", "h.0.fc", "perfkit::fp8_cast", 2e3, None),
    ("fp8_amax_kernel", "h.0.fc", "fp8_cast", 1e3, None),
    ("nvjet_qqtst", "h.0.fc", "perfkit::fp8_linear_backward_weight", 20e3, None),
    ("gelu_bias", "h.0", "perfkit::gelu_bias_amax_backward", 8e3, "backward|h.0|gelu|0.75;backward|h.0.fc|linear|0.25"),
    ("fused", "h.0.fc", "aten::amax", 10e3, "forward|h.0.norm|layer_norm|0.6;forward|h.0.fc|amax|0.4"),
    ("aten::to", "h.0.norm", "aten::to", 34e3, None),
)


def test_what_scales_and_casts_take_is_said_beside_their_products() -> None:
    rows = [
        {
            "name": name, "short_name": name, "family": "other", "kind": "cpu_op", "order": order, "step": 0,
            "pass": "forward", "module": module, "operator": operator, "duration_ns": ns, "serves": serves,
        }
        for order, (name, module, operator, ns, serves) in enumerate(ROWS)
    ]  # fmt: skip
    source = in_fp8(PARTS, {"eager": table.build(rows, facts={**FACTS, "steps": 1, "step_ns": [400e3]})})
    source.manifest.workload.fp8_layers = ["h.0.fc"]
    said = [text for text in analyse(source).backends[0].warnings if "fp8" in text]
    assert said == [
        "scales, casts and transposes of fp8 take 12.00 µs a step, 9.2% of the kernel time; the products that they are "
        "for take 73.00 µs"
    ]
    source.manifest.workload.fp8_layers = []
    assert not any("fp8" in text for text in analyse(source).backends[0].warnings)
