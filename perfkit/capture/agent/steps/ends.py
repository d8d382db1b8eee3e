"""Which moments of a program end its steps: optimizer steps, else calls of the outermost module, else other marks.

Only counting: nothing here knows torch. A signal has a kind, a key (which optimizer, which module) and a role (its
class); several keys that take turns make one step (`perfkit.capture.agent.steps.rounds`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from perfkit.capture.agent.steps.rounds import Rounds

OPTIMIZER, CALL, REPLAY, MARK, BARE = "optimizer", "call", "replay", "mark", "bare"
ITERATION = "iteration"
WORDS = {
    OPTIMIZER: "a step is one step of the optimizer",
    CALL: "a step is one call of the outermost module, and what follows until the next",
    REPLAY: "a step is one replay of a CUDA graph, and what follows until the next",
    MARK: "a step is what the program marked as one",
    ITERATION: "a step is one iteration of the serving engine, from its mark until the next",
    BARE: "a step is one call of the outermost module, which has no parameters, and what follows until the next",
    "": "the whole program counts as one step",
}
COMPILED = "a step is one call of the outermost compiled function, and what follows until the next"
REQUEST = "a step is one request: a call of the outermost module, on whatever thread, until it returns"
# A kind outranks those before it.
_ORDER = ("", BARE, MARK, REPLAY, CALL, OPTIMIZER, ITERATION)
_ALONE = 4  # replays without a call or an optimizer step between them: from here on they are the steps
# Calls of modules and seconds since the first, without any step of the optimizers that exist: from here on calls are
# the steps. A rollout or an evaluation that comes before the training has many calls, but takes no longer.
_PATIENCE, _PATIENCE_S = 200, 20.0
_MANY, _MORE = 16, 4  # calls before the first optimizer step, and times as many as a step has: they were another phase


class StepFinder:
    """Takes signals, and says of each whether it is a boundary between steps.

    `kind` is what the boundaries are made of; it may change until `fix`. `trains()` says whether the program has an
    optimizer, so that steps of it may still come. With `only` no other kind of signal counts. `clock()` gives seconds.
    """

    def __init__(
        self, trains: Callable[[], bool] = lambda: False, only: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.kind = self._only = only
        self.waited = False  # for a step of the optimizers that exist, in vain
        self._trains, self._clock = trains, clock
        self._begun: float | None = None  # the first call
        self._before: int | None = None  # calls before the first optimizer step
        self._rounds = 0  # optimizer steps
        self._turns = {kind: Rounds(last=kind in (OPTIMIZER, MARK)) for kind in _ORDER if kind}
        self._roles: dict[str, Hashable] = {}
        self._calls = self._alone = 0
        self._is_fixed = False

    def signal(self, kind: str, key: Hashable = 0, role: Hashable = None) -> bool:
        """Return whether this signal ends a step (with calls and replays: whether one begins with it)."""
        self._alone = self._alone + 1 if kind == REPLAY else 0
        if kind in (CALL, BARE):
            self._calls += 1
            self._begun = self._clock() if self._begun is None else self._begun
        boundary = self._turns[kind](key, role)
        self._roles[kind] = role
        if kind == OPTIMIZER:
            self._before = self._calls if self._before is None else self._before
            self._rounds += boundary
        if not self._is_fixed and self._outranks(kind):
            self.kind = kind
        return boundary and kind == self.kind

    def _outranks(self, kind: str) -> bool:
        if self._only or self.kind == ITERATION:
            return False
        if kind == REPLAY and self._alone >= _ALONE:
            return True
        return _ORDER.index(kind) > _ORDER.index(self.kind) and not (self.kind == REPLAY and self._alone)

    def ready(self) -> bool:
        """Return whether the kind of the steps is certain enough to record them."""
        if self.kind not in (CALL, BARE) or self.waited or not self._trains():
            return True
        assert self._begun is not None
        self.waited = self._calls >= _PATIENCE and self._clock() - self._begun >= _PATIENCE_S
        return self.waited

    def phase_before(self) -> tuple[int, float]:
        """Calls of modules before the first optimizer step, and those of a step, where they were no part of a step."""
        before = self._before or 0
        each = (self._calls - before) / max(1, self._rounds - 1)
        return (before, each) if before >= _MANY and before > _MORE * each else (0, each)

    def fix(self) -> None:
        """From now on steps are what they are."""
        self._is_fixed = True
        self._turns[self.kind].fix()

    def words(self, whole: bool = False) -> str:
        """Return the meaning of a step, as the end of a sentence; with `whole` there is one."""
        if whole:
            return WORDS[""]
        turns = self._turns.get(self.kind)
        if self.kind == OPTIMIZER and turns is not None and turns.keys > 1:
            return f"a step is one round of the {turns.keys} optimizers"
        if self.kind == CALL and turns is not None and turns.keys > 1:
            return f"a step is one round of the {turns.keys} outermost modules"
        if self.kind == CALL and self._roles.get(CALL) == COMPILED:
            return COMPILED
        return WORDS[self.kind]
