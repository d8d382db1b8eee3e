"""What launched each activity of a GPU.

The way is kernel → correlation id → runtime or driver call → innermost operator around that call. An External id is not
trusted: before 2024 it may name an unrelated operator. All kernels of a CUDA graph have the correlation of the graph's
launch, and its place: which operators the graph was captured from the trace does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.kineto.decode.events import OPERATOR, RUNTIME, DeviceEvents, HostEvents

_REPLAY = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


@dataclass
class Launches:
    """For each activity the runtime or driver call that launched it (−1: none in the trace) and the innermost operator
    around that call; `replayed` marks what a CUDA graph's launch started."""

    call: Integers
    operator: Integers
    replayed: Booleans

    @property
    def around(self) -> Integers:
        """For each activity the host event that tells its place: the operator, else the call; −1 for none."""
        return np.where(self.operator >= 0, self.operator, self.call)


def find_launches(host: HostEvents, device: DeviceEvents) -> Launches:
    """Find out who launched what."""
    call = _calls(host, device)
    if not len(host):
        return Launches(call, call.copy(), np.zeros(len(call), bool))
    operator = np.where(call >= 0, host.nearest(host.category == OPERATOR)[np.maximum(call, 0)], -1)
    replay = host.named([n.startswith(_REPLAY) for n in host.names])
    return Launches(call, operator, (call >= 0) & replay[np.maximum(call, 0)])


def _calls(host: HostEvents, device: DeviceEvents) -> Integers:
    """The runtime or driver call that launched each activity, or −1."""
    calls = np.flatnonzero((host.category == RUNTIME) & (host.correlation >= 0))
    if not len(calls):
        return np.full(len(device), -1, np.int64)
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[calls]
    at = np.searchsorted(ids, device.correlation, side="right") - 1
    hit = (at >= 0) & (ids[np.maximum(at, 0)] == device.correlation)
    return np.where(hit, calls[np.maximum(at, 0)], -1)
