"""Work whose cost a user registered: GPU kernels by name, and operators with all that they call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfkit.columns import Integers
from perfkit.cost import CostModel, normalise
from perfkit.cost.model import Launch
from perfkit.readers.kernel_names import short_name
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.decode.events import KERNEL, OPERATOR, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall, call_of, describe

if TYPE_CHECKING:
    from perfkit.readers.kineto.measure.rows import HostRows


def with_registered(
    rows: HostRows, owner: Integers, host: HostEvents, device: DeviceEvents, launches: Launches, costs: CostModel
) -> tuple[HostRows, Integers]:
    """The `rows` with one more for each launch of a kernel with a registered cost, and `owner` that leads to them.

    The operator around it keeps its cost for its other kernels. The function gets the operator's arguments, where a
    trace has them, and the launch's grid and block.
    """
    known = {code: name for code, full in enumerate(device.names) if (name := _registered(full, costs))}
    if not known:
        return rows, owner
    mine = np.flatnonzero((device.kind == KERNEL) & np.isin(device.name, list(known)))
    around = np.full(len(mine), -1, np.int64)
    if len(host):
        working = host.nearest(rows.kind[: len(host)] >= 0)
        call = launches.call[mine]
        event = np.where(call >= 0, working[np.maximum(call, 0)], -1)
        around = np.where(event >= 0, host.call[np.maximum(event, 0)], -1).astype(np.int64)
    keys = np.stack([device.name[mine].astype(np.int64), around, device.shape[mine].astype(np.int64)])
    used, code = np.unique(keys, axis=1, return_inverse=True)
    kinds = [_kind(known[name], at, shape, host, device, costs) for name, at, shape in used.T.tolist()]
    made = owner.copy()
    made[mine] = len(rows.kind) + np.arange(len(mine))
    kind = np.concatenate([rows.kind, len(rows.kinds) + code.reshape(-1)])
    return replace(rows, kinds=[*rows.kinds, *kinds], kind=kind), made


def claim(events: HostEvents, rows: HostRows, costs: CostModel) -> None:
    """Let operators with a registered cost have the work of all operators inside them, in place: none counts twice."""
    known = np.array([*(kind.cost is not None for kind in rows.kinds), False], dtype=bool)
    claims = (events.category == OPERATOR) & known[rows.kind]
    claims &= events.named([normalise(name) in costs.own for name in events.names])
    outer, below = events.nearest(claims), events.parent >= 0
    inside = np.flatnonzero(below & (outer[np.maximum(events.parent, 0)] >= 0) & (rows.kind >= 0))
    used, code = np.unique(rows.kind[inside], return_inverse=True)
    rows.kind[inside] = len(rows.kinds) + code
    rows.kinds.extend(KindOfCall(rows.kinds[kind].shapes, None) for kind in used.tolist())


def _registered(full: str, costs: CostModel) -> str:
    """The name under which a kernel's cost is registered: its own, or its short one; "" for none."""
    return next((name for name in (full, short_name(full)) if name in costs.own), "")


def _kind(name: str, around: int, shape: int, host: HostEvents, device: DeviceEvents, costs: CostModel) -> KindOfCall:
    call = call_of(host.calls[around], "fp32", "fp32") if around >= 0 else None
    launched = device.shapes[shape] if shape >= 0 else None
    made = Launch(
        name,
        call.arguments if call else (),
        grid=launched.grid if launched else (),
        block=launched.block if launched else (),
    )
    return KindOfCall(describe(made), costs.registered_cost(made))
