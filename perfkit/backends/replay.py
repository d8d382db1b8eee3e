"""Forward and backward of an autograd program as CUDA graphs: launched once as they are, captured, then replayed.

The step that the capture of PyTorch's own manual describes: a batch is copied to where the graph reads it, the replay
leaves gradients where the graph put them, and the optimizer steps outside of it. Only batches of the first one's form
(shapes, precisions, and values other than tensors) are replayed, and nothing while a profiler or a tool listens.

A step that generates tokens replays its passes: one graph of the prompt's, one of every further token's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfkit import ranges
from perfkit.workloads import batch_formats

if TYPE_CHECKING:
    import torch

    from perfkit.handwritten.graphs import Graphs
    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Batch

REPLAYS = (
    "The timed steps replay forward and backward as CUDA graphs; the profiled ones launch the same kernels one by one, "
    "and what that takes longer is part of the profiler's overhead."
)
PASSES = (
    "The timed passes are replayed as CUDA graphs; the profiled ones launch the same kernels one by one, and what that "
    "takes longer is part of the profiler's overhead."
)
_LONGEST = 200  # characters of PyTorch's message in a sentence


class NotCaptured(Exception):
    """A step cannot be captured; the message says why."""


def asked(settings: Settings, usual: bool | None) -> bool:
    """Return whether steps are to be replayed; `usual` is the backend's own choice, None where it never can."""
    possible = settings.device.startswith("cuda") and not settings.in_group
    wanted = usual if settings.cuda_graphs == "default" else settings.cuda_graphs == "all"
    return bool(possible and wanted and usual is not None)


class Replay:
    """Replays what a program does with a batch, for the parameters whose gradients it leaves."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], make: Callable[[], Graphs] | None = None) -> None:
        self._parameters = list(parameters)
        self._make = make or _graphs
        self._graphs: Graphs | None = None
        self._form = ""  # of the first batch, whose first step runs as it is
        self._refused = ""
        self.replayed = False
        self._fresh = False  # whether something was replayed since there was a look at what the graphs hold

    def warnings(self) -> list[str]:
        """The report's sentence on it."""
        if self._refused:
            return [f"The step could not be captured as CUDA graphs, and runs without: {self._refused}"]
        return [REPLAYS] if self.replayed else []

    def ready(self, batches: Sequence[Batch]) -> bool:
        """Return whether the step of these batches is to be replayed."""
        if ranges.listening():
            self._make_room()
            return False
        found = {_form(batch) for batch in batches}
        if not self._form:
            self._form = min(found)
            return False
        return not self._refused and found == {self._form}

    def run(self, part: str, batch: Batch, run: Callable[[Batch], Any]) -> Any:
        """Return the results of `run(batch)` from its graph, with its gradients; the same tensors at each replay.

        Raises `NotCaptured` where `run` cannot be captured; no later step is ready then.
        """
        self._graphs = self._graphs or self._make()
        tensors = iter(self._graphs.inputs([tensor for _, tensor in batch_formats.tensors(batch)]))
        given = batch_formats.mapped(batch, lambda _: next(tensors))
        try:
            result, gradients = self._graphs.run(part, lambda: (run(given), [p.grad for p in self._parameters]))
        except RuntimeError as error:  # of PyTorch, for want of memory too
            self._refused = _cause(error)
            self._graphs = None
            raise NotCaptured(self._refused) from error
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self.replayed = self._fresh = True
        return result

    def _make_room(self) -> None:
        """Forget the graphs where what they hold is more than the GPU has left for steps without them."""
        if self._graphs is None or not self._fresh:
            return
        self._fresh = False
        import torch

        if self._graphs.held > torch.cuda.mem_get_info()[0]:
            self._graphs = None
            for parameter in self._parameters:
                parameter.grad = None


class ReplayedPass:
    """A pass of a step that generates: called once as it is, then captured, then replayed, all with one cache.

    It gives the same tensors at each replay.
    """

    def __init__(self, call: Callable[..., Any], make: Callable[[], Graphs] | None = None) -> None:
        self._call = call
        self._make = make or _graphs
        self._graphs: Graphs | None = None
        self._form = ""
        self._refused = ""

    def __call__(self, tokens: torch.Tensor, cache: Any, *position: torch.Tensor) -> Any:
        given, form = (tokens, *position), _form((tokens, *position))
        if ranges.listening() or self._refused or self._form not in ("", form):
            return self._call(tokens, cache, *position)
        if not self._form:
            self._form = form
            return self._call(tokens, cache, *position)
        self._graphs = self._graphs or self._make()
        own, *place = self._graphs.inputs(given)
        try:
            return self._graphs.run("pass", lambda: self._call(own, cache, *place))
        except RuntimeError as error:
            self._refused = _cause(error)
            self._graphs = None
            return self._call(tokens, cache, *position)

    def warnings(self) -> list[str]:
        """The report's sentence on it."""
        if self._refused:
            return [f"A pass could not be captured as a CUDA graph, and runs without: {self._refused}"]
        return [PASSES] if self.replayed else []

    @property
    def replayed(self) -> bool:
        """Return whether the step is replayed."""
        return self._graphs is not None


def _cause(error: BaseException) -> str:
    """Return PyTorch's first message: when a failed capture ends, it only says that it failed."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    text = str(error).split("\n", 1)[0]
    return f"{text.rstrip('.')}." if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} …"


def _form(batch: Any) -> str:
    return repr(batch_formats.mapped(batch, lambda tensor: (tuple(tensor.shape), tensor.dtype)))


def _graphs() -> Graphs:
    from perfkit.handwritten.graphs import Graphs

    return Graphs(ran=True)
