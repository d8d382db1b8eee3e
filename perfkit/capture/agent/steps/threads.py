"""The threads of a program, and which of them the steps are of: one thread, or in a server whichever gets a request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from perfkit.capture.agent.steps.ends import CALL, OPTIMIZER
from perfkit.capture.agent.steps.module_ranges import ModuleRanges

_TAKES_OVER = 4  # of the last signals, all of another thread: from here on the steps are its
_SERVES = 8  # of the last signals, of several other threads: from here on a request on any of them is a step


class WatchedThread:
    """The calls that one thread is in. An object, not the thread's number, which a later thread gets again."""

    def __init__(self, marks: ModuleRanges) -> None:
        self.marks = marks
        known = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        # Threads of libraries, such as autograd's, are unknown to Python, or known as dummies once they called it.
        self.of_python = known is not None and not isinstance(known, threading._DummyThread)
        self.is_main = known is threading.main_thread()
        self._known = known
        self.depth = 0  # of calls of modules
        self.loading = 0  # of calls of a loader
        self.optimizing = 0
        self.stepped = False  # an optimizer did, since it was last asked

    @property
    def has_ended(self) -> bool:
        """Return whether the thread runs no more."""
        return self._known is None or not self._known.is_alive()


class WatchedThreads(threading.local):
    """The `WatchedThread` of whoever asks, in `own`."""

    def __init__(self, marks: Callable[[], ModuleRanges]) -> None:
        self.own = WatchedThread(marks())


class StepOwner:
    """Whose signals count: one thread's, or with `serving` those of any thread that the program started.

    The first thread that gives a signal owns the steps, until another one gives all of the last few, or is the one
    whose optimizers step. A call on another thread while the owner is in a call of its own is a part of that one.
    """

    def __init__(self) -> None:
        self.thread: WatchedThread | None = None
        self.serving = False
        self._recent: deque[WatchedThread] = deque(maxlen=_SERVES)
        self._optimizes = False  # the owner's optimizers step
        self._own = self._run = 0  # the owner's signals, and those of the last thread since another one gave any

    def follow(self, thread: WatchedThread, kind: str) -> None:
        """Let `thread` take the place of an owner that has ended: the optimizer of each step in a new thread."""
        owner = self.thread
        ended = owner is not None and owner is not thread and owner.has_ended
        if ended and self._optimizes and kind == OPTIMIZER and not self.serving:
            assert owner is not None
            thread.marks, self.thread = owner.marks, thread

    def takes(self, thread: WatchedThread, kind: str) -> bool:
        """Count a signal; return whether it changed who owns the steps."""
        if self.thread is None:
            self.thread = thread
            self._optimizes = kind == OPTIMIZER
            return False
        self._run = self._run + 1 if self._recent and self._recent[-1] is thread else 1
        self._own += thread is self.thread
        self._recent.append(thread)
        if thread is self.thread and not self.serving:
            self._optimizes = self._optimizes or kind == OPTIMIZER
            return False
        if self.serving:
            return kind == OPTIMIZER and self._hand_over(thread, kind)
        if kind == OPTIMIZER and not self._optimizes:
            return self._hand_over(thread, kind)
        if self._optimizes and kind != OPTIMIZER:
            return False
        # Of two that train at a time each has its turns: a burst of one is shorter than what the other did.
        if self._run >= max(_TAKES_OVER, 2 * self._own * self._optimizes):
            return self._hand_over(thread, kind)
        last = list(self._recent)
        others = {id(one) for one in last}
        if kind == CALL and len(last) == _SERVES and len(others) > 1 and not any(one.is_main for one in last):
            self.serving = True
            return True
        return False

    def _hand_over(self, thread: WatchedThread, kind: str) -> bool:
        self.thread, self.serving, self._optimizes = thread, False, kind == OPTIMIZER
        self._own = self._run
        if kind == OPTIMIZER:  # which says more than the calls of several threads that came before
            self._recent.clear()
        return True

    def owns(self, thread: WatchedThread) -> bool:
        """Return whether the signals of `thread` may end steps."""
        return thread.of_python if self.serving else thread is self.thread

    def is_part(self, thread: WatchedThread) -> bool:
        """Return whether what `thread` calls now is a part of a call that the owner is in."""
        owner = self.thread
        return not self.serving and owner is not None and thread is not owner and owner.depth > 0
