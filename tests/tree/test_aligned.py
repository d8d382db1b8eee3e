"""Places by alignment: kernels without marks between anchors that are certain."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit import table
from perfkit.tree import shares
from perfkit.tree.aligned import align_places, dimensions

LAYERS = 3
WIDE, NARROW = "fp32[8×4], fp32[4×16]", "fp32[8×16], fp32[16×4]"


def row(name: str, family: str, place: str = "", shapes: str | None = None, moved: float = 64.0) -> dict[str, Any]:
    """A row of the forward; `place` is module|operator, "" for one without marks."""
    made: dict[str, Any] = {"name": name, "family": family, "shapes": shapes, "duration_ns": 10.0, "step": 0}
    made |= {"bytes_read": moved / 2, "bytes_written": moved / 2}
    if place:
        module, operator = place.split("|")
        words = module.split(".")
        made |= {"pass": "forward", "module": module, "operator": f"aten::{operator}", "placed_by": "range"}
        made["layer"] = int(words[1]) if words[0] == "h" else None
    return made


def frame(rows: list[dict[str, Any]]) -> Any:
    placed = [r | {"order": i, "start_ns": float(10 * i)} for i, r in enumerate(rows)]
    return table.build(placed).frame


def reference() -> Any:
    rows = [row("aten::embedding", "embedding", "wte|embedding", "fp32[99×4], int64[8]")]
    for i in range(LAYERS):
        rows += [
            row("aten::native_layer_norm", "normalization", f"h.{i}.ln|layer_norm", moved=64),
            row("aten::addmm", "matmul", f"h.{i}.fc|linear", f"fp32[16], {WIDE}"),
            row("aten::gelu", "activation", f"h.{i}|gelu"),
            row("aten::addmm", "matmul", f"h.{i}.proj|linear", f"fp32[4], {NARROW}"),
            row("aten::add", "elementwise", f"h.{i}|add", moved=192),
        ]
    return frame(rows)


def test_fused_kernels_belong_to_what_lies_between_the_anchors() -> None:
    rows = [row("gather", "embedding", shapes="fp32[99×4], int64[8]"), row("triton_norm", "fused")]
    for _ in range(LAYERS):
        rows += [
            row("gemm", "matmul", shapes=WIDE), row("triton_act", "fused"), row("gemm", "matmul", shapes=NARROW),
            row("triton_add_norm", "fused"),
        ]  # fmt: skip
    found = align_places(frame(rows), reference())
    assert set(found["placed_by"]) == {"alignment"}
    assert found["module"].tolist()[:5] == ["wte", "h.0.ln", "h.0.fc", "h.0", "h.0.proj"]
    assert found["operator"].tolist()[3] == "aten::gelu"
    assert found["layer"].tolist()[2::4] == [0, 1, 2]
    # The sum of layer 0 moves three times the bytes of the LayerNorm of layer 1, which the same kernel does.
    served = shares.read(found["serves"][5])
    assert [(m.module, m.operator, m.share) for m in served] == [
        ("h.0", "aten::add", 0.75), ("h.1.ln", "aten::layer_norm", 0.25),
    ]  # fmt: skip
    assert found["module"][5] == "h.0" and found["serves"].isna()[3]


def test_several_kernels_between_two_anchors_have_what_their_places_have_in_common() -> None:
    rows = [row("gather", "embedding", shapes="fp32[99×4], int64[8]"), row("triton_norm", "fused")]
    for _ in range(LAYERS):
        rows += [
            row("gemm", "matmul", shapes=WIDE), row("triton_a", "fused"), row("triton_b", "fused"),
            row("gemm", "matmul", shapes=NARROW), row("triton_c", "fused"), row("triton_d", "fused"),
        ]  # fmt: skip
    found = align_places(frame(rows), reference())
    assert found["module"].tolist()[3:5] == ["h.0", "h.0"]  # both of gelu: its only place
    between_layers = found.iloc[6]  # the sum in layer 0 or the norm in layer 1: only the pass and the list are certain
    assert (between_layers["pass"], between_layers["module"]) == ("forward", "h")
    assert found["layer"].isna()[6]


def test_marked_rows_keep_their_place() -> None:
    rows = [row("gemm", "matmul", "elsewhere|linear", WIDE), row("unknown", "other")]
    found = align_places(frame(rows), reference())
    assert found["module"][0] == "elsewhere" and found["placed_by"][0] == "range"
    marked = reference()
    assert align_places(marked, marked) is marked


def test_a_missing_product_does_not_shift_those_behind_it() -> None:
    """Layer 1 lacks its first product: the order of the others leaves no other choice for any of them."""
    rows = []
    for i in range(LAYERS):
        rows += [row("gemm", "matmul", shapes=WIDE)] if i != 1 else []
        rows += [row("gemm", "matmul", shapes=NARROW)]
    found = align_places(frame(rows), reference())
    assert found["module"].tolist() == ["h.0.fc", "h.0.proj", "h.1.proj", "h.2.fc", "h.2.proj"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ("fp32[8×4], fp32[4×16]", (1, 8, 16, 4)),
        ("fp32[16×4], fp32[4×8]", (1, 8, 16, 4)),  # the same product, transposed
        ("fp32[16], fp32[8×4], fp32[4×16], fp32[8×16]", (1, 8, 16, 4)),
        ("fp32[8×16], fp32[8×4], fp32[4×16]", (1, 8, 16, 4)),  # a matrix that is added
        ("fp32[6×8×4], fp32[6×4×8]", (6, 8, 8, 4)),
        ("", ()),
        ("fp32[8×4]", ()),
    ],
)
def test_dimensions_of_a_product(shapes: str, expected: tuple[int, ...]) -> None:
    assert dimensions(shapes, "matmul") == expected
