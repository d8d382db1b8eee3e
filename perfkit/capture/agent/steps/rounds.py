"""Objects that take turns in a step (two optimizers, a model and its criterion), and which of them closes it."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from dataclasses import dataclass

# An object that stays away for _AWAY times what lies between its signals, and _PATTERN signals more, takes no turns
# any more; of one that came once, its number is taken for that, up to _ONCE.
_AWAY, _PATTERN, _ONCE = 3, 8, 128


class Key:
    """Stands for an object by its identity, which no later object shares. The object is not kept alive, and asked for
    nothing: it may compare with nothing, and have no hash."""

    __slots__ = ("_number", "_object")

    def __init__(self, thing: object) -> None:
        self._object, self._number = weakref.ref(thing), id(thing)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and not self.is_gone and self._object() is other._object())

    @property
    def is_gone(self) -> bool:
        """Return whether the object does not exist any more."""
        return self._object() is None


def key_of(thing: object) -> Hashable:
    """The key of an object, its number where nothing may refer to it weakly."""
    try:
        return Key(thing)
    except TypeError:
        return id(thing)


def role_of(thing: object) -> str:
    """Return the name of the class of an object, which it shares with those that may come in its place."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def is_gone(key: Hashable) -> bool:
    """Return whether the object of a key does not exist any more."""
    return isinstance(key, Key) and key.is_gone


@dataclass
class _Turn:
    """How often a key came, and as which signal for the first and the last time; `role` is what it has in common with
    those that may come in its place, such as the class of an optimizer."""

    role: Hashable
    count: int
    first: int
    last: int

    def stays(self, now: int) -> bool:
        """Return whether the key still takes turns: it has not stayed away for several times the usual distance of its
        signals."""
        between = (self.last - self.first) / (self.count - 1) if self.count > 1 else min(self.first, _ONCE)
        return now - self.last <= _AWAY * between + _PATTERN


class Rounds:
    """Keys that take turns. The last of those that come least often closes a step, or the first opens it.

    Objects come and go: an optimizer a trial, an epoch or a sample. What came once and is gone took no turn. Once
    the anchor is fixed, a new object of the same role takes its place, where the old one is gone, or where it was so
    before: one object followed the other for good more often than it came in between. Where one object alone closed all
    steps, any new one takes its place, until the old one comes back.
    """

    def __init__(self, last: bool) -> None:
        self._last = last
        self._turns: dict[Hashable, _Turn] = {}  # in the order of the first appearance
        self._now = 0
        self._fixed: Hashable = None
        self._role: Hashable = None
        self._known: set[Hashable] = set()
        self._followed = self._visited = 0
        self._alone = False  # one object took all turns until now
        self._before: Hashable = None  # whose place the fixed one took
        self._round: set[Hashable] = set()  # that came since the last boundary
        self.keys = 0  # how many different keys take turns: those of the last whole round

    def __call__(self, key: Hashable, role: Hashable = None) -> bool:
        """Return whether this signal is a boundary."""
        self._now += 1
        if len(self._turns) != 1 or key not in self._turns:
            self._leave(key)
        turn = self._turns.setdefault(key, _Turn(role, 0, self._now, self._now))
        turn.count += 1
        turn.last = self._now
        if self._fixed is not None:
            self._follow(key, role)
        boundary = key == (self._anchor() if self._fixed is None else self._fixed)
        self._count(key, boundary)
        return boundary

    def _count(self, key: Hashable, boundary: bool) -> None:
        """Count who came in this round."""
        if self._last:
            self._round.add(key)
        if boundary:
            self.keys = len(self._round)
            self._round = set()
        if not self._last:
            self._round.add(key)

    def _leave(self, key: Hashable) -> None:
        """Forget the keys that take no turns any more, and count the others anew, except for those of the dead."""
        gone = [known for known in self._turns if known != key and is_gone(known)]
        for known in gone:
            turn = self._turns.pop(known)
            newer = any(other.first > turn.first for other in self._turns.values())
            # What came for a moment, while an older one went on, was a visitor.
            self._visited += turn.count <= 2 and bool(self._turns) and key in self._turns and not newer
            self._followed += key not in self._turns
        now = self._now
        staying = {known: turn for known, turn in self._turns.items() if known == key or turn.stays(now)}
        if len(staying) < len(self._turns):
            self._followed += 1
            self._turns = {known: _Turn(turn.role, 1, turn.last, turn.last) for known, turn in staying.items()}

    def _anchor(self) -> Hashable:
        if len(self._turns) == 1:
            return next(iter(self._turns))
        least = min(turn.count for turn in self._turns.values())
        if self._last:
            return [key for key, turn in self._turns.items() if turn.count == least][-1]
        # What opens a step comes once more than what follows it, until that came as well.
        return next(key for key, turn in self._turns.items() if turn.count <= least + 1)

    def _follow(self, key: Hashable, role: Hashable) -> None:
        """Let another key take the place of the fixed one where that comes no more."""
        if key == self._fixed:
            return
        new = key not in self._known
        self._known.add(key)
        ended = self._fixed not in self._turns or is_gone(self._fixed)
        if new and (self._alone or (role == self._role and (ended or self._followed > self._visited))):
            self._before, self._fixed = self._fixed, key
        elif self._alone and key == self._before:
            self._fixed, self._alone = key, False
        elif ended or self._turns[key].count > 1 + self._turns[self._fixed].count + _PATTERN:
            self._fixed = self._anchor()
            self._role = self._turns[self._fixed].role

    def fix(self) -> None:
        """From now on the key that closes steps stays the same."""
        if self._turns:
            self._fixed = self._anchor()
            self._role = self._turns[self._fixed].role
            self._known = set(self._turns)
            self._alone = self._last and len(self._turns) == 1 and not self._visited
