"""Which accesses of a generated kernel can be made in vectors of eight elements."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
sympy = pytest.importorskip("sympy")

from torch.utils._sympy.functions import FloorDiv, ModularIndexing  # noqa: E402

from perfkit.inductor.instructions import _aligned  # noqa: E402

x, r, loaded = sympy.symbols("x r tmp0", integer=True)
SIZES = {x: 16384, r: 1024}


@pytest.mark.parametrize(
    ("index", "aligned"),
    [
        (1024 * x + r, True),
        (x + 768 * r, True),  # down the columns, one next to the other
        (r + 1024 * ModularIndexing(x, 1, 1024), True),  # a mask that every head reads again
        (r + 768 * loaded, True),  # a gather of rows
        (ModularIndexing(x, 1, 64) + 64 * FloorDiv(x, 64), True),
        (sympy.Integer(0), True),
        (r + 50257 * x, False),
        (r + 3, False),
        (768 * x, False),
        (2 * r, False),
        (8 * r + ModularIndexing(x, 64, 12), False),
    ],
)
def test_rows_that_begin_at_whole_vectors(index, aligned):
    assert _aligned(index, SIZES) is aligned
    assert not _aligned(x + r, {x: 10, r: 5})
