"""Watches a program from inside: finds its steps by what the wrappers of torch's functions tell, and records them.

When the steps are recorded the wrappers are taken out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

import torch

from perfkit.programs import facts, names
from perfkit.programs.building import is_building
from perfkit.programs.compilation import Compilation
from perfkit.programs.graphs import Graphs
from perfkit.programs.marks import Marks
from perfkit.programs.models import Models
from perfkit.programs.patches import Patches
from perfkit.programs.recorder import DONE, RECORDING, STARTING, WARMING, Recorder, captures_graph
from perfkit.programs.steps import CALL, MARK, OPTIMIZER, REPLAY, StepFinder
from perfkit.programs.wrappers import Wrappers


class Watcher:
    """Finds the steps of the program around it, and records them with `recorder`; `ended()` is called after the last.

    What goes wrong in here ends the watching, never the program.
    """

    def __init__(self, recorder: Recorder, ended: Callable[[], None], only: str = "") -> None:
        self.recorder, self._ended = recorder, ended
        self._of_program = not only  # it watches a whole program, once
        self.steps = StepFinder(self._trains, only)
        self._optimizer = False
        self.models = Models()
        self.marks = Marks(self.models.path_of)
        self.idle = False
        self._compilation = Compilation(self.models)
        self._conditions = facts.Conditions()
        self._others = 0
        self._patches = Patches()
        self._wrappers = Wrappers(self)
        self.graphs = Graphs(recorder, self._wrappers)

    def install(self) -> None:
        """Begin to watch; where the whole program is one step, begin to record it."""
        self._wrappers.install(self._patches)
        self._patches.wrap(torch.autograd.profiler.profile, "_prepare_trace", self._other_profiler)
        self._patches.wrap(torch.autograd.profiler.profile, "__exit__", self._other_ended)
        self._compilation.install(self._patches)
        if self._of_program:
            self.graphs.install(self._patches)
        if self.recorder.order.whole:
            self._guarded(self._begin_whole)

    def remove(self) -> None:
        """Stop watching; what is recorded stays in the recorder.

        In a program where something may be compiled the wrapper of modules' calls stays: Dynamo guards it, and would
        compile all again.
        """
        self.idle = True
        self.graphs.close()
        stays = self._of_program and "torch._dynamo" in sys.modules
        self._patches.restore((torch.nn.Module, "__call__") if stays else None)
        self._compilation.close()
        self.models.clear()

    # What the program does -----------------------------------------------------------------------------------------

    def called(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """The program calls a module that is in no other."""

        def act() -> None:
            if facts.in_worker():
                self.remove()
                return
            if self.recorder.state == WARMING and is_building():
                return
            self.marks.outermost_call()
            self.models.add(module)
            if self.recorder.state != RECORDING:
                self._conditions = facts.conditions((args, kwargs))
            # A criterion may be made anew for each call.
            key: Any = type(module) if next(module.parameters(), None) is None else id(module)
            self._signal(CALL, key)

        self._guarded(act)

    def signal(self, kind: str, key: Hashable) -> None:
        """The program did what may end a step."""
        if not self.idle:
            self._guarded(lambda: self._signal(kind, key))

    def mark(self) -> None:
        """The program says that a step is over."""
        self.signal(MARK, 0)

    # Profilers of the program's own --------------------------------------------------------------------------------

    def _other_profiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Two profilers cannot record at a time: the program's goes first."""

        def _prepare_trace(profiler: Any) -> Any:
            if not (self.idle or self.recorder.touches_profiler):
                self._others += 1
                if self.recorder.state in (STARTING, RECORDING):
                    self._guarded(self._give_way)
            return original(profiler)

        return _prepare_trace

    def _other_ended(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(profiler: Any, *args: Any) -> Any:
            if not (self.idle or self.recorder.touches_profiler):
                self._others = max(0, self._others - 1)
            return original(profiler, *args)

        return __exit__

    def _give_way(self) -> None:
        self.recorder.give_way("The program started a torch.profiler of its own, which ended the recording.")
        if self.recorder.state == DONE:
            self._end()

    # Steps ---------------------------------------------------------------------------------------------------------

    def _signal(self, kind: str, key: Hashable) -> None:
        if captures_graph():
            return  # nothing runs now: what is called is written down for replays
        before = self.steps.kind
        boundary = self.steps.signal(kind, key)
        if self.steps.kind != before:
            self.recorder.restart()
        if not boundary or self.recorder.state == DONE:
            return
        state = self.recorder.state
        self.marks.boundary()
        if self.recorder.order.whole:
            return
        over = self.recorder.boundary(lambda: self._others == 0 and self.steps.ready())
        if state == WARMING and self.recorder.state == STARTING:
            self._begin()
        if over:
            self._end()

    def _trains(self) -> bool:
        """Whether the program holds an optimizer. Looking costs up to a tenth of a second: never again once it does."""
        self._optimizer = self._optimizer or facts.trains()
        return self._optimizer

    def _begin(self) -> None:
        self.steps.fix()
        if self.steps.waited:
            self.recorder.result.notes.append(facts.NO_OPTIMIZER_STEP)
        if self.steps.kind == REPLAY:
            self.recorder.outer_pass = ""  # a graph holds all passes, and nothing tells its kernels apart
        # The graph of a compiled model runs once in a call, and that is how its calls are told apart.
        self.marks.calls_are_forward = self.models.wrappers_are_models
        if self.recorder.marks:
            self._wrappers.install_passes(self._patches)

    def _begin_whole(self) -> None:
        self.marks.calls_are_forward = True
        self._wrappers.install_passes(self._patches)
        self.recorder.begin_whole()

    def finish(self) -> None:
        """End here: what is recorded is kept, and the result says why there is not more."""
        recorder = self.recorder
        was, wanted, result = recorder.state, recorder.order, recorder.result
        recorder.finish()
        if was == RECORDING and result.recorded and len(result.step_ns) < wanted.steps:
            result.notes.append(f"The program ended when {len(result.step_ns)} of {wanted.steps} steps were recorded.")
        elif not (result.problem or result.recorded):
            waits = self.steps.kind == CALL and self._optimizer
            result.problem = facts.too_few(result.found, wanted, waits)
        self._end()

    def _end(self) -> None:
        self.describe()
        self.remove()
        self._ended()

    def describe(self) -> None:
        """Add to the result what the program tells of itself."""
        result = self.recorder.result
        result.steps_are = self.steps.words(self.recorder.order.whole)
        models = self.models.found()
        result.layers = names.layers(models, names.paths(models))
        # A step may change the parameters itself, without an optimizer.
        training = self.steps.kind == OPTIMIZER or self.marks.trains or (self.steps.kind == REPLAY and facts.trains())
        facts.add(result, models, self._conditions, training)
        if result.recorded and self._wrappers.of_another_thread:
            result.notes.append(facts.OTHER_THREAD)
        if result.recorded and not (result.samples_ns or self.recorder.order.whole):
            result.notes.append(facts.NOT_TIMED)
        before, each = self.steps.phase_before()
        if result.recorded and before:
            result.notes.append(facts.phase_before(before, each))
        if result.recorded:
            result.compiled = self._compilation.content()
            self._compilation.write(self.recorder.folder)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.recorder.result.problem = f"perfkit failed in the program: {type(error).__name__}: {error}"
            self.remove()
            self._ended()
