"""Factorisations of dense matrices and solving with them: the leading terms of LAPACK's operation counts.

They are the counts of LAPACK Working Note 41 (appendix C) by which libraries state their rates; a multiplication and an
addition are 2 FLOP, of complex numbers 8. They are counted on the matrix units, where blocked algorithms spend them,
and never in TF32. Eigenvalues and singular values are found by iteration: their work depends on the numbers, and has no
formula here.
"""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import broadcast, dense, is_complex, matrix_unit, part, product, work

_EXACT = "highest"  # the precision of products: TF32 is for those of torch.matmul alone


def _matrix(x: TensorSpec) -> tuple[int, int, int]:
    """(matrices, rows, columns) of a batch."""
    return product(x.shape[:-2]), x.shape[-2], x.shape[-1]


def _flop(dtype: str, count: float) -> dict[str, float]:
    return {matrix_unit(part(dtype), _EXACT): count * (4 if is_complex(dtype) else 1)}


def _triangle(x: TensorSpec) -> TensorSpec:
    """Return the part of its square that a triangular factor holds."""
    batch, n, _ = _matrix(x)
    return dense((batch, n * (n + 1) // 2), x.dtype)


def _solved(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    """The solution for matrices `a` (…, n, n) and right-hand sides `b` (…, n, k), whose batches broadcast."""
    return dense((*broadcast((a.shape[:-2], b.shape[:-2])), *b.shape[-2:]), b.dtype)


def cholesky(call: Call) -> Cost:
    """linalg_cholesky_ex(A (…, n, n)): n³/3 a matrix. Half of A is read; the factor is written with its zeros."""
    x = call.tensor(0)
    batch, n, _ = _matrix(x)
    return work(_flop(x.dtype, batch * n**3 / 3), (_triangle(x),), (dense(x.shape, x.dtype),))


def cholesky_inverse(call: Call) -> Cost:
    """cholesky_inverse(L (…, n, n)): 2·n³/3 a matrix."""
    x = call.tensor(0)
    batch, n, _ = _matrix(x)
    return work(_flop(x.dtype, 2 * batch * n**3 / 3), (_triangle(x),), (dense(x.shape, x.dtype),))


def lu(call: Call) -> Cost:
    """linalg_lu_factor_ex(A (…, m, n)): m·n² − n³/3 for m ≥ n, else with the two exchanged; factors, int32 pivots."""
    x = call.tensor(0)
    batch, m, n = _matrix(x)
    long, short = max(m, n), min(m, n)
    pivots = dense((*x.shape[:-2], short), "int32")
    return work(_flop(x.dtype, batch * (long * short**2 - short**3 / 3)), (x,), (dense(x.shape, x.dtype), pivots))


def ldl(call: Call) -> Cost:
    """linalg_ldl_factor_ex(A (…, n, n)): n³/3 a matrix; the factor and int32 pivots."""
    x = call.tensor(0)
    batch, n, _ = _matrix(x)
    pivots = dense(x.shape[:-1], "int32")
    return work(_flop(x.dtype, batch * n**3 / 3), (_triangle(x),), (dense(x.shape, x.dtype), pivots))


def solve(a: int, b: int, products: int, pivots: int | None = None) -> Callable[[Call], Cost]:
    """Solving with a factor (…, n, n) at argument `a` for right-hand sides (…, n, k), or (…, k, n), at `b`:
    `products`·n²·k, 1 for one triangle and 2 for two. With `pivots` the factor is a whole square."""

    def cost(call: Call) -> Cost:
        factor, right = call.tensor(a), call.tensor(b)
        solved = _solved(factor, right)
        n = factor.shape[-1]
        read = (_triangle(factor), right) if pivots is None else (factor, call.tensor(pivots), right)
        return work(_flop(right.dtype, products * n * solved.numel), read, (solved,))

    return cost


def qr(call: Call) -> Cost:
    """linalg_qr(A (…, m, n), mode): the reflectors, and Q of min(m, n) columns out of them, 2·m·n² − 2·n³/3 each for
    m ≥ n. Without a recorded mode it is taken for "reduced", the default."""
    x = call.tensor(0)
    mode = call.arguments[1] if len(call.arguments) > 1 else None
    batch, m, n = _matrix(x)
    k = min(m, n)
    columns = m if mode == "complete" else k
    flop = _reflectors(m, n) + (0 if mode == "r" else _formed(m, columns, k))
    q = dense((*x.shape[:-2], m, columns), x.dtype)
    r = dense((*x.shape[:-2], columns, n), x.dtype)
    return work(_flop(x.dtype, batch * flop), (x,), (r,) if mode == "r" else (q, r))


def reflectors(call: Call) -> Cost:
    """geqrf(A (…, m, n)): 2·m·n² − 2·n³/3 for m ≥ n, else with the two exchanged; the reflectors and their factors."""
    x = call.tensor(0)
    batch, m, n = _matrix(x)
    tau = dense((*x.shape[:-2], min(m, n)), x.dtype)
    return work(_flop(x.dtype, batch * _reflectors(m, n)), (x,), (dense(x.shape, x.dtype), tau))


def formed(call: Call) -> Cost:
    """linalg_householder_product(A (…, m, n), tau (…, k)): 4·m·n·k − 2·(m + n)·k² + 4·k³/3."""
    x, tau = call.tensor(0), call.tensor(1)
    batch, m, n = _matrix(x)
    return work(_flop(x.dtype, batch * _formed(m, n, tau.shape[-1])), (x, tau), (dense(x.shape, x.dtype),))


def _reflectors(m: int, n: int) -> float:
    long, short = max(m, n), min(m, n)
    return 2.0 * long * short**2 - 2.0 * short**3 / 3


def _formed(m: int, n: int, k: int) -> float:
    return 4.0 * m * n * k - 2.0 * (m + n) * k**2 + 4.0 * k**3 / 3


def operators() -> list[Operator]:
    """Factorisations, and what solves with them."""
    family, factor = "linalg", "n³/3"
    triangle, square = "a triangle, right-hand sides; solution", "factors, pivots, right-hand sides; solution"
    return [
        *same("linalg_cholesky_ex cholesky", family, cholesky, factor, "half of the matrix; factor"),
        *same("cholesky_inverse", family, cholesky_inverse, "2·n³/3", "a triangle; inverse"),
        *same("linalg_lu_factor_ex", family, lu, "m·n² − n³/3 for m ≥ n", "matrix; factors, pivots"),
        *same("linalg_ldl_factor_ex", family, ldl, factor, "half of the matrix; factor, pivots"),
        *same("linalg_solve_triangular", family, solve(0, 1, 1), "n²·k", triangle),
        *same("triangular_solve", family, solve(1, 0, 1), "n²·k", triangle),
        *same("_cholesky_solve_helper", family, solve(1, 0, 2), "2·n²·k", triangle),
        *same("linalg_lu_solve", family, solve(0, 2, 2, pivots=1), "2·n²·k", square),
        *same("linalg_qr", family, qr, "4·m·n² − 4·n³/3 for m ≥ n (Q of n columns; a trace records no mode)",
              "matrix; Q, R", delegates=("geqrf",)),
        *same("geqrf", family, reflectors, "2·m·n² − 2·n³/3 for m ≥ n", "matrix; reflectors"),
        *same("linalg_householder_product", family, formed, "4·m·n·k − 2·(m + n)·k² + 4·k³/3", "reflectors; Q"),
    ]  # fmt: skip
