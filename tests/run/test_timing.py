"""Backends take turns while one watch looks at the GPU, and each gets what was seen within its own steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.run.backends import RunningBackend
from perfkit.run.stages import timing
from perfkit.run_folder import BackendRun, Power, Settings
from perfkit.workloads import find, resolve_settings


class Child:
    """A backend's process: each timed turn takes a second of a clock that all share."""

    now = 0.0

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def call(self, command: str, **_: Any) -> Any:
        if command == "time":
            self.spans.append((Child.now, Child.now + 1))
            Child.now += 1
            return [1e9]
        if command == "spans":
            return "uuid", list(self.spans)
        return {"settle": [], "peak_memory": (1.0, ""), "paging": (None, None)}.get(command)


class Watch:
    """Says how long the spans are that it is asked about."""

    open = 0

    def __enter__(self) -> Watch:
        Watch.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        Watch.open -= 1

    def during(self, uuid: str, spans: list[tuple[float, float]]) -> Power:
        assert uuid == "uuid" and Watch.open == 1
        return Power(watts=sum(end - start for start, end in spans))


def timed(device: str, monkeypatch: pytest.MonkeyPatch) -> list[RunningBackend]:
    monkeypatch.setattr(timing, "Watch", Watch)
    members = [RunningBackend(BackendRun(name=name), Path(name), Child()) for name in ("a", "b")]  # type: ignore[arg-type]
    settings: Settings = msgspec.structs.replace(resolve_settings(find("mlp"), steps=3), device=device)
    timing.time_in_turns(members, settings, lambda who, what: None)
    return members


def test_each_backend_has_the_power_of_its_own_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = timed("cuda", monkeypatch)
    assert first.record.power == second.record.power == Power(watts=3.0)
    assert first.child.spans == [(0, 1), (3, 4), (4, 5)]  # type: ignore[union-attr]
    assert Watch.open == 0


def test_nobody_watches_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [member.record.power for member in timed("cpu", monkeypatch)] == [None, None]
