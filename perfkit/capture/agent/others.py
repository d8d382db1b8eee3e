"""Profilers of the program's own: two cannot record at a time, and the program's goes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfkit.capture.agent.around import End, Observer, around
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.tracing.session import ProfilerSession


class OtherProfilers:
    """Counts the profilers of the program's own that are `active`; `begins()` is called when one starts."""

    def __init__(self, session: ProfilerSession, begins: Callable[[], None]) -> None:
        self._session, self._begins = session, begins
        self.active = 0

    def install(self, watcher: Observer, patches: Patches) -> None:
        """Begin to count."""
        for owner, begins, ends in (
            (torch.autograd.profiler.profile, "_prepare_trace", "__exit__"),
            (torch.profiler.ExecutionTraceObserver, "start", "stop"),
        ):
            patches.wrap(owner, begins, around(watcher, self._begun))
            patches.wrap(owner, ends, around(watcher, self._ending))

    def _begun(self, args: Any, kwargs: Any) -> End:
        if not self._session.is_touched_here:
            self.active += 1
            self._begins()
        return None

    def _ending(self, args: Any, kwargs: Any) -> End:
        return None if self._session.is_touched_here else self._ended

    def _ended(self) -> None:
        self.active = max(0, self.active - 1)
