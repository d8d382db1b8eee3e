"""The operation of XLA of each row: its family, and its work, which one of its kernels carries."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from perfkit.cost import CostModel
from perfkit.readers.gpu_lists import whole
from perfkit.readers.kernel_names import TF32
from perfkit.readers.xla.hlo import HloInstruction, Module
from perfkit.readers.xla.profile import Stats
from perfkit.readers.xla.work import XlaWork, family_of, work_of
from perfkit.table import FLOP_COLUMNS

_LIBRARY = re.compile(r"cublas|cutlass|xmma|gemm_f32|sgemm|nvjet|cijk_|cudnn|miopen|ck_", re.IGNORECASE)
_FP32 = "matrix_fp32"
_NUMBER = re.compile(r"[.]\d+$")
_SILENT = ("fusion", "ynn_fusion", "onednn_fusion", "call")  # names that do not say what was fused


class XlaOperation(NamedTuple):
    """The operation of a row: name and program, its name by scopes, and the instruction where the module is known."""

    name: str | None = None
    program: int | None = None
    scopes: str = ""
    one: HloInstruction | None = None
    module: Module | None = None


class _Key(NamedTuple):
    """An operation on a device."""

    device: str
    program: int | None
    computation: int
    name: str | None


def operation_of(stats: Stats, modules: dict[int, Module], instruction: str | None = None) -> XlaOperation:
    """Return the operation that an event names, or that of an `instruction` that is known otherwise."""
    name, program = instruction or stats.get("hlo_op"), whole(stats.get("program_id"))
    module = modules.get(program) if program is not None else None
    one = module.by_name.get(str(name)) if module and name else None
    scopes = one.operator if one else str(stats.get("name") or stats.get("tf_op") or "").rstrip(":")
    return XlaOperation(str(name) if name else None, program, scopes, one, module)


def work_columns(columns: dict[str, Any], operations: Sequence[XlaOperation], on_gpu: bool) -> dict[str, Any]:
    """Return family, FLOP, bytes and origins of the rows; copies and fills keep the bytes that `columns` has."""
    costs = CostModel()
    rows = list(zip(columns["name"], operations, columns["operator"], strict=True))
    made: dict[str, Any] = {
        "family": [_family(name, one, operator, costs) for name, one, operator in rows],
        "bytes_read": np.array(columns["bytes_read"], float),
        "bytes_written": np.array(columns["bytes_written"], float),
        **{column: np.full(len(rows), np.nan) for column in FLOP_COLUMNS},
    }
    flop_known, bytes_known = (np.zeros(len(rows), bool) for _ in range(2))
    for at, helpers, work in _carriers(columns, operations):
        flop = _units(work, str(columns["name"][at]), on_gpu)
        if flop is not None:
            flop_known[[at, *helpers]] = True
            for unit, amount in flop.items():
                made[f"flop_{unit}"][at], made[f"flop_{unit}"][helpers] = amount, 0.0
        if np.isfinite(work.read + work.written):
            bytes_known[[at, *helpers]] = True
            for column, amount in (("bytes_read", work.read), ("bytes_written", work.written)):
                made[column][at], made[column][helpers] = amount, 0.0
    made["flop_origin"] = np.where(flop_known, "model", "absent")
    made["bytes_origin"] = np.where(bytes_known, "model", columns["bytes_origin"])
    return made


def _family(name: str, operation: XlaOperation, operator: str | None, costs: CostModel) -> str:
    own = family_of(operation.one, operation.module) if operation.one and operation.module else None
    plain = _NUMBER.sub("", name)
    return own or ("other" if plain in _SILENT else costs.family_of_kernel(plain, operator))


def _carriers(columns: dict[str, Any], operations: Sequence[XlaOperation]) -> Iterator[tuple[int, list[int], XlaWork]]:
    """The row that carries an operation's work, its longest kernel, its other kernels, and the work, for each run.

    Kernels of one run of an operation have different names. Where an operation ran another number of times than most of
    its computation, its runs cannot be separated, and its work stays unknown.
    """
    runs: dict[_Key, list[list[int]]] = defaultdict(list)
    names, devices = columns["name"], columns["device"]
    for at, operation in enumerate(operations):
        if operation.one is None or columns["kind"][at] == "memset":  # a fill has its own bytes, and ends no run
            continue
        mine = runs[_Key(devices[at], operation.program, operation.one.computation, operation.name)]
        if not mine or names[at] in {names[other] for other in mine[-1]}:
            mine.append([])
        mine[-1].append(at)
    usual = _usual_runs(runs)
    for key, groups in runs.items():
        operation = operations[groups[0][0]]
        if operation.one is None or operation.module is None or len(groups) != usual[key[:3]]:
            continue
        work = work_of(operation.one, operation.module)
        for rows in groups:
            longest = max(rows, key=lambda at: columns["duration_ns"][at])
            yield longest, [at for at in rows if at != longest], work


def _usual_runs(runs: dict[_Key, list[list[int]]]) -> dict[tuple[Any, ...], int]:
    """Return how many times most operations of each computation of a program ran on a device."""
    counts: dict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    for key, groups in runs.items():
        counts[key[:3]][len(groups)] += 1
    return {key: count.most_common(1)[0][0] for key, count in counts.items()}


def _units(work: XlaWork, name: str, on_gpu: bool) -> dict[str, float] | None:
    """FLOP by unit. On a GPU products of fp32 may run in TF32, which only names of a library's kernels say."""
    if work.flop is None or _FP32 not in work.flop or not on_gpu:
        return work.flop
    if TF32.search(name):
        return {("matrix_tf32" if unit == _FP32 else unit): flop for unit, flop in work.flop.items()}
    return work.flop if _LIBRARY.search(name) else None
