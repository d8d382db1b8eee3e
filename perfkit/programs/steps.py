"""Which moments of a program end its steps: optimizer steps, else calls of the outermost module, else other marks.

Only counting: nothing here knows torch. A signal has a key (which optimizer, which module); several keys that take
turns make one step, and the key that comes least often closes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

OPTIMIZER, CALL, REPLAY, MARK = "optimizer", "call", "replay", "mark"
WORDS = {
    OPTIMIZER: "a step is one step of the optimizer",
    CALL: "a step is one call of the outermost module, and what follows until the next",
    REPLAY: "a step is one replay of a CUDA graph, and what follows until the next",
    MARK: "a step is what the program marked as one",
    "": "the whole program counts as one step",
}
# A key that stays away for _AWAY times what lies between its signals, and _PATTERN signals more, takes no turns any
# more; of one that came once, its number is taken for that, up to _ONCE.
_AWAY, _PATTERN, _ONCE = 3, 8, 128
_ALONE = 4  # replays without a call or an optimizer step between them: from here on they are the steps
# Calls of modules and seconds since the first, without any step of the optimizers that exist: from here on calls are
# the steps. A rollout or an evaluation that comes before the training has many calls, but takes no longer.
_PATIENCE, _PATIENCE_S = 200, 20.0
_MANY, _MORE = 16, 4  # calls before the first optimizer step, and times as many as a step has: they were another phase


@dataclass
class _Turn:
    """How often a key came, and as which signal for the first and the last time."""

    count: int
    first: int
    last: int

    def stays(self, now: int) -> bool:
        """Whether the key takes turns still: it has not stayed away for several times what lies between two of its
        signals."""
        between = (self.last - self.first) / (self.count - 1) if self.count > 1 else min(self.first, _ONCE)
        return now - self.last <= _AWAY * between + _PATTERN


class Turns:
    """Keys that take turns. The last of those that come least often closes a step, or the first opens it."""

    def __init__(self, last: bool) -> None:
        self._last = last
        self._turns: dict[Hashable, _Turn] = {}  # in the order of the first appearance
        self._now = 0
        self._fixed: Hashable = None

    def __call__(self, key: Hashable) -> bool:
        """Whether this signal is a boundary."""
        self._now += 1
        turn = self._turns.setdefault(key, _Turn(0, self._now, self._now))
        turn.count += 1
        turn.last = self._now
        self._leave()
        return key == (self._fixed if self._fixed is not None else self._anchor())

    def _leave(self) -> None:
        """Forget the keys that take no turns any more, and count the others anew."""
        staying = {key: turn for key, turn in self._turns.items() if turn.stays(self._now)}
        if len(staying) < len(self._turns):
            self._turns = {key: _Turn(1, turn.last, turn.last) for key, turn in staying.items()}

    def _anchor(self) -> Hashable:
        least = min(turn.count for turn in self._turns.values())
        if self._last:
            return [key for key, turn in self._turns.items() if turn.count == least][-1]
        # What opens a step comes once more than what follows it, until that came as well.
        return next(key for key, turn in self._turns.items() if turn.count <= least + 1)

    def fix(self) -> None:
        """From now on the key that closes steps stays the same."""
        self._fixed = self._anchor() if self._turns else None

    @property
    def keys(self) -> int:
        """How many different keys take turns."""
        return len(self._turns)


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
        self._turns = {OPTIMIZER: Turns(True), CALL: Turns(False), REPLAY: Turns(False), MARK: Turns(True)}
        self._calls = self._alone = 0
        self._is_fixed = False

    def signal(self, kind: str, key: Hashable = 0) -> bool:
        """Whether this signal ends a step (with `CALL` and `REPLAY`: whether one begins with it)."""
        self._alone = self._alone + 1 if kind == REPLAY else 0
        if kind == CALL:
            self._calls += 1
            self._begun = self._clock() if self._begun is None else self._begun
        boundary = self._turns[kind](key)
        if kind == OPTIMIZER:
            self._before = self._calls if self._before is None else self._before
            self._rounds += boundary
        if not self._is_fixed and self._outranks(kind):
            self.kind = kind
        return boundary and kind == self.kind

    def _outranks(self, kind: str) -> bool:
        if self._only:
            return False
        order = ["", MARK, REPLAY, CALL, OPTIMIZER]
        if kind == REPLAY and self._alone >= _ALONE:
            return True
        return order.index(kind) > order.index(self.kind) and not (self.kind == REPLAY and self._alone)

    def ready(self) -> bool:
        """Whether the kind of the steps is certain enough to record them."""
        if self.kind != CALL or self.waited or not self._trains():
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
        """What a step is, as the end of a sentence; with `whole` there is one."""
        if whole:
            return WORDS[""]
        turns = self._turns.get(self.kind)
        if self.kind == OPTIMIZER and turns is not None and turns.keys > 1:
            return f"a step is one round of the {turns.keys} optimizers"
        if self.kind == CALL and turns is not None and turns.keys > 1:
            return f"a step is one round of the {turns.keys} outermost modules"
        return WORDS[self.kind]
