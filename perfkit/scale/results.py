"""Records of a predicted step. Times in ns, amounts in bytes; None is unknown."""

from __future__ import annotations

import msgspec


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One way to share work among `ranks` ranks. `scaling` is weak (each rank has the measured batch) or strong (all
    together have it).

    A step is computation, `added_ns` of copies and host work (`host_ns`) that the way needs, and `exposed_ns` of the
    `communication_ns`, which computation does not cover. Efficiency is throughput over that of as many single ranks.
    `samples_per_second` is of all ranks.
    """

    parallel: str
    ranks: int
    hosts: int
    scaling: str
    step_ns: float
    compute_ns: float
    added_ns: float
    host_ns: float
    communication_ns: float
    exposed_ns: float
    message_bytes: float
    samples_per_second: float | None
    efficiency: float
    memory_bytes: float | None


class ScaleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions from a run of one rank. `assumptions` and `problems` are sentences."""

    title: str
    backend: str
    device: str
    dtype: str
    sample_name: str
    step_ns: float
    memory_bytes: float | None
    parameters: int
    links: list[str]
    points: list[Prediction]
    assumptions: list[str]
    problems: list[str]
    schema: int = 1
