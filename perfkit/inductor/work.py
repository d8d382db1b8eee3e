"""The work of calls in generated code by the cost model, as plain data that any process can write down."""

from __future__ import annotations

from typing import Any

from perfkit.cost import CostModel
from perfkit.cost.shapes import vector_unit
from perfkit.inductor.fused import GeneratedKernel
from perfkit.inductor.loops import call_of
from perfkit.tree.shares import Work


def work_of(kernel: GeneratedKernel) -> dict[str, Any]:
    """The fields of a `DeclaredKernel`: its FLOP by the cost model, 1 an element for an operation that it has not.

    One that only moves data has 0 FLOP; of one that was not counted none are known.
    """
    model = CostModel()
    flop: dict[str, float] = {}
    for call in kernel.calls if kernel.counted else ():
        cost = model.cost(call)
        one_each = {vector_unit(call.tensor(0).dtype): float(call.tensor(0).numel)} if call.tensors else {}
        for unit, amount in (one_each if cost is None else cost.flop).items():
            flop[unit] = flop.get(unit, 0.0) + amount
    if kernel.counted and not flop:
        flop["vector_fp32"] = 0.0
    return {
        "flop": flop,
        "bytes_read": kernel.bytes_read,
        "bytes_written": kernel.bytes_written,
        "operators": tuple(name for name in kernel.operators if model.kind(name) == "work"),
        "loops": kernel.loops,
        "family": _family({model.family(call.name) for call in kernel.calls}),
    }


def _family(families: set[str]) -> str:
    """The kind of kernel that computes calls of these families."""
    return next((family for family in ("attention", "matmul") if family in families), "fused")


def work_of_kernel(kernel: GeneratedKernel) -> Work:
    """The work of one call of a generated kernel."""
    work = work_of(kernel)
    return Work(work["flop"], work["bytes_read"], work["bytes_written"])


def work_of_node(node: Any) -> Work | None:
    """The work of the operator that an FX node calls; None where the cost model does not know it.

    Products of fp32 are listed as such: the names of their kernels say what runs them.
    """
    model, call = CostModel(), call_of(node)
    cost = model.cost(call)
    return Work(cost.flop, cost.bytes_read, cost.bytes_written, model.parts(call)) if cost is not None else None
