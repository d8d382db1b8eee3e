"""`perfkit.profile`: records a few steps of a loop in the program's own code, and makes a run folder of them.

    with perfkit.profile("runs/mine", warmup=5, steps=3) as p:
        for batch in loader:
            train_step(batch)
            p.step()

Before the recording and after it a step costs a test; torch is imported when the block is entered, unless it is there.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from perfkit.capture.agent.order import Order, ProcessResult
from perfkit.capture.agent.steps.ends import MARK
from perfkit.capture.agent.tracing import profiler
from perfkit.errors import PerfkitError, UsageError
from perfkit.run_folder import usual_folder

if TYPE_CHECKING:
    from perfkit.api import Reading
    from perfkit.capture.agent.watch import Watcher

P = ParamSpec("P")
R = TypeVar("R")


class Profile:
    """A recording of `steps` steps after `warmup` others, into the run folder `out`, and of the source `lines` of one
    further step (None: where that costs little).

    A context manager whose `step` the loop calls at the end of each step, or a decorator of a function that is one
    step: it ends by itself after the recorded steps. In a notebook it shows its report. Raises `UsageError` for numbers
    or a folder that cannot be, `RunFailed` from `reading` where nothing was recorded.
    """

    def __init__(
        self,
        out: str | os.PathLike[str] | None = None,
        warmup: int = 5,
        steps: int = 3,
        memory: bool = False,
        backend: str = "program",
        overwrite: bool = False,
        lines: bool | None = None,
    ) -> None:
        if warmup < 1 or steps < 1:
            raise UsageError(f"warmup and steps are at least 1; they are {warmup} and {steps}.")
        self.out = Path(out) if out is not None else usual_folder("profile")
        self._order = Order(warmup=warmup, steps=steps, memory=memory, lines=lines)
        self._backend, self._overwrite = backend, overwrite
        self._watcher: Watcher | None = None
        self._result: ProcessResult | None = None
        self._problem: PerfkitError | None = None
        self._over = False

    def __enter__(self) -> Profile:
        from perfkit.capture import folders

        folders.check_out(self.out, self._overwrite)
        import torch  # noqa: F401

        from perfkit.capture.agent.recording.recorder import Recorder
        from perfkit.capture.agent.watch import Watcher

        self._scratch = tempfile.TemporaryDirectory(prefix="perfkit-profile-")
        self._watcher = Watcher(Recorder(self._order, Path(self._scratch.name) / "own"), self._ended, only=MARK)
        self._watcher.install()
        return self

    def step(self) -> None:
        """Note that a step of the loop is over."""
        if self._watcher is not None:
            self._watcher.signal(MARK, 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.finish()
        self._make(said=error is None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, each call of which is a step."""

        @functools.wraps(function)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._over:
                return function(*args, **kwargs)
            if self._watcher is None:
                self.__enter__()
            result = function(*args, **kwargs)
            self.step()
            if self._watcher is None:
                self._make(said=True)
            return result

        return step

    def _ended(self) -> None:
        """Nothing is recorded any more: the rest of the loop is not watched."""
        assert self._watcher is not None
        recorder, self._watcher = self._watcher.recorder, None
        self._result = recorder.result
        if recorder.result.recorded:
            self._result.event_cost_ns = profiler.event_cost_ns()

    def _make(self, said: bool) -> None:
        """Make the run folder; where that fails say so, and keep the reason."""
        from perfkit.capture import folders, program

        if self._over or self._result is None:
            return
        self._over = True
        path = Path(self._scratch.name) / "own"
        command = list(getattr(sys, "orig_argv", sys.argv))
        try:
            with folders.made(self.out) as folder:
                program.assemble(folder, [(path, self._result)], self._backend, command, lambda who, what: None)
        except PerfkitError as problem:
            self._problem = problem
            if said:
                print(f"perfkit: {problem}", file=sys.stderr)
        finally:
            self._scratch.cleanup()

    @property
    def reading(self) -> Reading:
        """The run folder, read (`perfkit.read`). Raises `RunFailed` where nothing was recorded."""
        from perfkit.api import Reading

        if self._problem is not None:
            raise self._problem
        if not self._over:
            raise UsageError("The recording is not over.", "Leave the block, or run more steps.")
        return Reading.of(self.out)

    def _repr_html_(self) -> str:
        return self.reading._repr_html_()
