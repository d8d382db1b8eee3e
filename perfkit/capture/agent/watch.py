"""Watches a program from inside: finds its steps by what the wrappers of torch's functions report, and records them.

When the steps are recorded the wrappers are taken out, all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

from perfkit.capture.agent.models import conditions, names
from perfkit.capture.agent.models.building import is_building
from perfkit.capture.agent.models.compilation import Compilation
from perfkit.capture.agent.models.outermost import Models
from perfkit.capture.agent.order import TRACE
from perfkit.capture.agent.others import OtherProfilers
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.recording import own_costs
from perfkit.capture.agent.recording.graphs import GraphCaptures
from perfkit.capture.agent.recording.recorder import (
    DONE,
    LINING,
    RECORDING,
    STARTING,
    WARMING,
    Recorder,
    captures_graph,
)
from perfkit.capture.agent.recording.shortage import Shortage
from perfkit.capture.agent.steps.ends import BARE, CALL, ITERATION, OPTIMIZER, REPLAY, REQUEST, StepFinder
from perfkit.capture.agent.steps.module_ranges import ModuleRanges
from perfkit.capture.agent.steps.rounds import key_of, role_of
from perfkit.capture.agent.steps.threads import StepOwner, WatchedThread, WatchedThreads
from perfkit.capture.agent.tracing import owned_tensors
from perfkit.capture.agent.wrappers import Wrappers


class Watcher:
    """Finds the steps of the program around it, and records them with `recorder`; `ended()` is called after the last.

    What goes wrong in here ends the watching, never the program.
    """

    def __init__(self, recorder: Recorder, ended: Callable[[], None], only: str = "") -> None:
        self.recorder, self._ended, self._only = recorder, ended, only
        self._of_program = not only  # it watches a whole program, once
        self.steps = StepFinder(self._trains, only)
        self._optimizer = False
        self.models = Models()
        self.shortage = Shortage(recorder.folder, self.models)
        self.threads = WatchedThreads(lambda: ModuleRanges(self.models.path_of))
        self.idle = False
        self._lock = threading.RLock()
        self._owner = StepOwner()
        self._apart: WatchedThread | None = None  # whose request is the step that is recorded now
        self._pending = False  # a step ends at the next moment that is safe
        self._compilation = Compilation(self.models)
        self._conditions = conditions.Conditions()
        self._others = OtherProfilers(recorder.session, self._other_begins)
        self._hindered = False  # by a profiler of the program's own, when the steps were ready
        self._patches = Patches()
        self._wrappers = Wrappers(self)
        self.graphs = GraphCaptures(recorder)

    def install(self) -> None:
        """Begin to watch; where the whole program is one step, begin to record it."""
        self._wrappers.install()
        self._others.install(self, self._patches)
        self._compilation.install(self._patches)
        if self._of_program:
            self.graphs.install(self._patches)
            self.recorder.loads.install(self._patches, self.remove)
            if self.recorder.order.memory:
                self.shortage.install(self._patches)
        if self.recorder.order.whole:
            self._guarded(self._begin_whole)

    def forked(self) -> bool:
        """Leave this process alone, a copy of the watched one; return whether that one had run nothing yet."""
        is_fresh = self._owner.thread is None and not (self.idle or self._others.active)
        self._lock = threading.RLock()  # another thread, which is not here, may have held it
        self.remove()
        return is_fresh

    def remove(self) -> None:
        """Stop watching; what is recorded stays in the recorder."""
        self.idle = True
        self.recorder.loads.close()
        self.shortage.stop()
        self.graphs.close()
        self._patches.restore()
        self._wrappers.remove()
        self._compilation.close()
        self.models.clear()

    # What the program does -----------------------------------------------------------------------------------------

    def called(self, thread: WatchedThread, module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
        """Note the call of an outermost module; return whether it is a request that is a step by itself."""
        found = False

        def act() -> None:
            nonlocal found
            if conditions.in_worker():
                self.remove()
                return
            self.graphs.called(module, role_of(module))
            state = self.recorder.state
            if state == DONE or conditions.is_traced() or (state == WARMING and is_building()):
                return
            self._wrappers.wrap_what_came_late()
            thread.marks.outermost_call(torch.is_grad_enabled() or conditions.recomputes())
            self.models.add(module)
            if state != RECORDING and self.recorder.is_near:
                self._conditions = conditions.conditions((args, kwargs))
            # A criterion may be made anew for each call.
            bare = self.models.is_bare(module)
            key = role_of(module) if bare else key_of(module)
            found = self._signal(thread, BARE if bare else CALL, key, role_of(module))

        self._guarded(act)
        return found

    def returned(self, thread: WatchedThread) -> None:
        """A request is answered."""

        def act() -> None:
            if self._apart is thread:
                self._apart = None
                if self.recorder.end():
                    self._end()

        self._guarded(act)

    def is_apart(self, thread: WatchedThread) -> bool:
        """Return whether what the thread calls now is work next to the recorded step: another request."""
        return self._apart is not None and self._apart is not thread

    def signal(self, kind: str, key: Hashable, role: Hashable = None) -> None:
        """The program did what may end a step."""

        def act() -> None:
            self._signal(self.threads.own, kind, key, role)

        if not self.idle:
            self._guarded(act)

    def note_held(self, optimizer: torch.optim.Optimizer) -> None:
        """Note what the models and an optimizer hold, where allocations are recorded."""

        self._guarded(lambda: self.recorder.held.note(owned_tensors.named(*self.models.tensors(), [optimizer])))

    def safe_now(self) -> None:
        """A backward pass is over, in which a step may have ended: optimizers that step as gradients arrive."""
        if self._pending and not self.idle and self._owner.owns(self.threads.own):
            self._guarded(self._end_late)

    def _other_begins(self) -> None:
        if self.recorder.state in (STARTING, RECORDING, LINING):
            self._guarded(self._give_way)

    def _give_way(self) -> None:
        self.threads.own.marks.close()  # a range that ends in the profile of another session crashes PyTorch
        self.recorder.give_way("The program started a torch.profiler of its own, which ended the recording.")
        self._hindered = True
        if (owner := self._owner.thread) is not None:
            owner.marks.training = False  # until steps are recorded again
        if self.recorder.state == DONE:
            self._end()

    # Steps ---------------------------------------------------------------------------------------------------------

    def _signal(self, thread: WatchedThread, kind: str, key: Hashable, role: Hashable) -> bool:
        """Take a signal; return whether a request begins with it that is a step by itself."""
        if captures_graph() or self.recorder.state == DONE:
            return False  # nothing runs now: what is called is written down for replays
        if not thread.of_python and self._owner.thread is not None and conditions.in_autograd():
            thread = self._owner.thread  # autograd works for it
        if not thread.of_python or self._owner.is_part(thread):
            return False
        self._owner.follow(thread, kind)
        if self.recorder.state == WARMING and not self._only and self._owner.takes(thread, kind):
            self.steps = StepFinder(self._trains)
            self.recorder.restart()
        if not (self._only or self._owner.owns(thread)):
            return False
        if self._pending and not conditions.in_autograd():
            self._end_late()
        before = self.steps.kind
        boundary = self.steps.signal(kind, key, role)
        if self.steps.kind != before:
            self.recorder.restart()
        if not boundary or self.recorder.state == DONE or self.recorder.order.whole:
            return False
        if self._owner.serving:
            return self._begin_request(thread)
        self._pending = conditions.in_autograd()  # the profiler neither starts nor stops in there
        if not self._pending:
            self._boundary(thread)
        return False

    def _end_late(self) -> None:
        self._pending = False
        self._boundary(self.threads.own)

    def _boundary(self, thread: WatchedThread) -> None:
        state = self.recorder.state
        thread.marks.boundary()
        self.shortage.step_over(self.recorder.result.found)
        over = self.recorder.boundary(self._ready)
        if state == WARMING and self.recorder.state == STARTING:
            self._begin(thread)
        if over:
            self._end()
        else:
            thread.marks.begun()

    def _begin_request(self, thread: WatchedThread) -> bool:
        if self._apart is not None:
            return False
        state = self.recorder.state
        self.shortage.step_over(self.recorder.result.found)
        over = self.recorder.begin(self._ready)
        if state == WARMING and self.recorder.state == STARTING:
            self._begin(thread)
        thread.marks.calls_are_forward = self.models.wrappers_are_models
        self._apart = thread
        if over:
            self._end()
        return not over

    def _ready(self) -> bool:
        if not self.steps.ready():
            return False
        self._hindered |= self._others.active > 0
        return not self._others.active

    def _trains(self) -> bool:
        """Return whether the program holds an optimizer. Looking takes up to 0.1 s: never again once it does."""
        self._optimizer = self._optimizer or conditions.trains()
        return self._optimizer

    def _begin(self, thread: WatchedThread) -> None:
        self.steps.fix()
        if self.steps.waited:
            self.recorder.result.notes.append(conditions.NO_OPTIMIZER_STEP)
        if self.steps.kind in (REPLAY, ITERATION):
            # A graph holds all passes, and nothing tells its kernels apart; the passes of an engine are its phases.
            self.recorder.outer_pass = ""
        # The graph of a compiled model runs once in a call, and that is how its calls are told apart.
        thread.marks.calls_are_forward = self.models.wrappers_are_models and self.steps.kind != ITERATION
        thread.marks.training = self.steps.kind == OPTIMIZER
        self.models.complete()

    def _begin_whole(self) -> None:
        self.threads.own.marks.calls_are_forward = True
        self.recorder.begin_whole()

    def finish(self) -> None:
        """End here: what is recorded is kept, and the result says why there is not more."""
        recorder = self.recorder
        was, wanted, result = recorder.state, recorder.order, recorder.result
        recorder.finish()
        if was == RECORDING and result.recorded and len(result.step_ns) < wanted.steps:
            result.notes.append(f"The program ended when {len(result.step_ns)} of {wanted.steps} steps were recorded.")
        elif not (result.problem or result.recorded):
            waits = self.steps.kind in (CALL, BARE) and self._optimizer
            result.problem = (
                conditions.OWN_PROFILER if self._hindered else conditions.too_few(result.found, wanted, waits)
            )
            result.hint = conditions.WITHOUT_PROFILER if self._hindered else conditions.WHOLE if waits else ""
        self._end()

    def _end(self) -> None:
        self.describe()
        self.remove()
        self._ended()

    def describe(self) -> None:
        """Add facts about the program to the result."""
        result = self.recorder.result
        serving = self._owner.serving
        result.steps_are = REQUEST if serving else self.steps.words(self.recorder.order.whole)
        self.models.complete()
        models = self.models.found()
        result.layers = names.layers(models, names.paths(models))
        owner = self._owner.thread
        # A step may change the parameters itself, without an optimizer.
        trains = owner is not None and owner.marks.trains
        training = self.steps.kind == OPTIMIZER or trains or (self.steps.kind == REPLAY and conditions.trains())
        conditions.add(result, models, self._conditions, training)
        if result.recorded:
            elsewhere = owner is not None and not (owner.is_main or serving)
            result.notes += conditions.notes(result, elsewhere, self.recorder.order.whole, *self.steps.phase_before())
            self.recorder.loads.write()
            result.compiled = self._compilation.content()
            self._compilation.write(self.recorder.folder)
            result.costs = own_costs.joined(self.recorder.folder / TRACE, self.recorder.launches.costs())

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            with self._lock, conditions.unseen():
                action()
        except Exception as error:
            if conditions.is_of_a_signal(error):
                raise
            self.recorder.result.problem = f"perfkit failed in the program: {type(error).__name__}: {error}"
            self.remove()
            self._ended()
