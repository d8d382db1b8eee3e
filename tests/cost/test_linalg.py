"""Factorisations: against the operations of textbook loops, and the bytes of what PyTorch takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perfkit.cost import Argument, Call, CostModel, TensorSpec

torch = pytest.importorskip("torch")
aten = torch.ops.aten

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.complex64: "complex64"}


def spec(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return TensorSpec(tuple(value.shape), NAMES.get(value.dtype, "int32"), value.stride())
    return value


def cost_of(name: str, *arguments: Any, precision: str = "fp32") -> Any:
    return CostModel().cost(Call(f"aten::{name}", tuple(map(spec, arguments)), precision))


def flop_of(name: str, *arguments: Any) -> float:
    (flop,) = cost_of(name, *arguments).flop.values()
    return float(flop)


def shape(*sizes: int) -> TensorSpec:
    return TensorSpec(sizes, "fp64")


# Multiplications and additions of a loop over the columns; square roots and divisions are of lower order.
def cholesky(n: int) -> int:
    """Each column of the rest less the products of the column before it, below the diagonal alone."""
    return sum(2 * (i - k) for k in range(n) for i in range(k + 1, n))


def lu(m: int, n: int) -> int:
    return sum(2 * (m - k - 1) * (n - k - 1) for k in range(min(m, n)))


def substitution(n: int, k: int) -> int:
    return sum(2 * i * k for i in range(n))


def householder(m: int, n: int) -> int:
    """Each reflector is taken off the columns after it: a dot product and an addition of 2·length each."""
    return sum(4 * (m - k) * (n - k - 1) for k in range(min(m, n)))


M, N = 900, 400
LOOPS: dict[str, tuple[Callable[[], float], int]] = {
    "cholesky": (lambda: flop_of("linalg_cholesky_ex", shape(N, N)), cholesky(N)),
    "ldl": (lambda: flop_of("linalg_ldl_factor_ex", shape(N, N)), cholesky(N)),
    "lu, square": (lambda: flop_of("linalg_lu_factor_ex", shape(N, N)), lu(N, N)),
    "lu, tall": (lambda: flop_of("linalg_lu_factor_ex", shape(M, N)), lu(M, N)),
    "lu, wide": (lambda: flop_of("linalg_lu_factor_ex", shape(N, M)), lu(N, M)),
    "triangle": (lambda: flop_of("linalg_solve_triangular", shape(N, N), shape(N, 7)), substitution(N, 7)),
    "triangle, from the right": (
        lambda: flop_of("linalg_solve_triangular", shape(N, N), shape(7, N), True, False), substitution(N, 7)),
    "triangle, the old name": (lambda: flop_of("triangular_solve", shape(N, 7), shape(N, N)), substitution(N, 7)),
    "two triangles": (lambda: flop_of("_cholesky_solve_helper", shape(N, 7), shape(N, N)), 2 * substitution(N, 7)),
    "lu, solved": (
        lambda: flop_of("linalg_lu_solve", shape(N, N), shape(N), shape(N, 7)), 2 * substitution(N, 7)),
    "inverse": (lambda: flop_of("cholesky_inverse", shape(N, N)), 2 * cholesky(N)),
    "reflectors, tall": (lambda: flop_of("geqrf", shape(M, N)), householder(M, N)),
    "reflectors, wide": (lambda: flop_of("geqrf", shape(N, M)), householder(N, M)),
    "q of reflectors": (
        lambda: flop_of("linalg_householder_product", shape(M, N), shape(N)), householder(M, N)),
    "qr": (lambda: flop_of("linalg_qr", shape(M, N)), 2 * householder(M, N)),
    "r alone": (lambda: flop_of("linalg_qr", shape(M, N), "r"), householder(M, N)),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOPS)
def test_the_count_is_that_of_a_textbook_loop(case: str) -> None:
    counted, loop = LOOPS[case]
    assert counted() == pytest.approx(loop, rel=0.01)


def test_all_of_q_takes_more_than_a_part_of_it() -> None:
    """Each of its m columns meets n reflectors, where the reduced one has n columns."""
    every = sum(4 * (M - k) * (M - k) for k in range(N))
    assert flop_of("linalg_qr", shape(M, N), "complete") == pytest.approx(householder(M, N) + every, rel=0.01)


square = torch.eye(12).repeat(3, 1, 1) + 0.1
right, tall = torch.randn(3, 12, 5), torch.randn(3, 12, 5)
factors, pivots = torch.linalg.lu_factor(square)
TRIANGLE, SQUARE = 4 * 3 * 12 * 13 // 2, 4 * 3 * 12 * 12
BYTES = {
    "linalg_cholesky_ex": (lambda: cost_of("linalg_cholesky_ex", square), TRIANGLE, torch.linalg.cholesky(square)),
    "cholesky_inverse": (lambda: cost_of("cholesky_inverse", square), TRIANGLE, torch.cholesky_inverse(square)),
    "linalg_lu_factor_ex": (lambda: cost_of("linalg_lu_factor_ex", square), SQUARE, (factors, pivots)),
    "linalg_ldl_factor_ex": (
        lambda: cost_of("linalg_ldl_factor_ex", square), TRIANGLE, tuple(torch.linalg.ldl_factor(square))),
    "linalg_solve_triangular": (
        lambda: cost_of("linalg_solve_triangular", square, right), TRIANGLE + 720,
        torch.linalg.solve_triangular(square, right, upper=True)),
    "broadcast": (
        lambda: cost_of("linalg_solve_triangular", square[0], right), TRIANGLE // 3 + 720,
        torch.linalg.solve_triangular(square[0], right, upper=True)),
    "linalg_lu_solve": (
        lambda: cost_of("linalg_lu_solve", factors, pivots, right), SQUARE + 4 * 36 + 720,
        torch.linalg.lu_solve(factors, pivots, right)),
    "linalg_qr": (lambda: cost_of("linalg_qr", tall), 720, tuple(torch.linalg.qr(tall))),
    "linalg_qr, complete": (
        lambda: cost_of("linalg_qr", tall, "complete"), 720, tuple(torch.linalg.qr(tall, mode="complete"))),
    "geqrf": (lambda: cost_of("geqrf", tall), 720, tuple(torch.geqrf(tall))),
    "linalg_householder_product": (
        lambda: cost_of("linalg_householder_product", *torch.geqrf(tall)), 720 + 60,
        torch.linalg.householder_product(*torch.geqrf(tall))),
}  # fmt: skip


@pytest.mark.parametrize("case", BYTES)
def test_bytes_are_of_what_is_read_and_returned(case: str) -> None:
    cost, read, returned = BYTES[case]
    found = cost()
    results = returned if isinstance(returned, tuple) else (returned,)
    assert (found.bytes_read, found.bytes_written) == (read, sum(t.numel() * t.element_size() for t in results))


def test_batches_multiply_and_complex_numbers_count_four_times() -> None:
    one = flop_of("linalg_cholesky_ex", torch.eye(12))
    assert flop_of("linalg_cholesky_ex", square) == 3 * one
    assert flop_of("linalg_cholesky_ex", square.to(torch.complex64)) == 12 * one


def test_no_factorisation_runs_in_tf32() -> None:
    assert list(cost_of("linalg_cholesky_ex", square, precision="tf32").flop) == ["matrix_fp32"]


def test_iterations_have_no_count() -> None:
    for name in ("_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq"):
        assert cost_of(name, square) is None
