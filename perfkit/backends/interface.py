"""The backend interface: how to turn a workload's model into steps that can be run, checked, timed and profiled.

A backend knows nothing of profilers, readers and reports. It makes a `Program`; the capture drives it and writes files.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from perfkit import ranges
from perfkit.backends import generation
from perfkit.backends.own_step import OwnStep
from perfkit.backends.replay import NotCaptured, Replay, ReplayedPass, asked
from perfkit.cost import TensorSpec
from perfkit.errors import UsageError
from perfkit.fp8 import check_layers
from perfkit.inductor.names import dtype_name
from perfkit.run_folder import Check, DeclaredKernel, Settings, Symbol
from perfkit.tree.shares import CallSite
from perfkit.workloads import batch_formats

if TYPE_CHECKING:
    import torch

    from perfkit.backends.generation import Generation
    from perfkit.backends.parallel import Parallel
    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload

    Result = tuple[Outputs, torch.Tensor | None]
    Run = Callable[[str, Batch, Callable[[Batch], Result]], Result]  # part of a step, its batch, what it does


class Program(ABC):
    """A workload made executable by one backend."""

    # True where hooks on the model's modules run at each forward, so that ranges by module are possible.
    keeps_modules: bool = False
    # True where the outputs of the next step are read; otherwise a program may overwrite them.
    outputs_wanted: bool = True
    # The precision in which the optimizer computes and keeps its moments, such as "fp32"; "" for the parameters'.
    updates_in: str = ""
    # Parameters that other ranks hold and this one does not, by name.
    elsewhere: frozenset[str] = frozenset()
    model: torch.nn.Module

    @abstractmethod
    def forward(self, batch: Batch) -> tuple[Outputs, torch.Tensor | None]:
        """Outputs (`perfkit.workloads.batch_formats.normal`) and loss (None without targets) of one batch."""

    @abstractmethod
    def train_step(self, batches: Sequence[Batch]) -> tuple[Outputs, torch.Tensor | None]:
        """One optimizer step over `batches` (several with gradient accumulation); outputs and loss of the last batch.

        The outputs hold what they say only with `outputs_wanted`. The gradients of the step stay readable through
        `gradients` until the next call.
        """

    @abstractmethod
    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradient by parameter name, as `model.named_parameters()` names them; of several ranks that of all together.

        Several ranks call it alike: what they hold in parts is put together.
        """

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters by name as the optimizer holds them: its own copies, where it keeps some in higher precision.

        Several ranks call it alike.
        """
        return dict(self.model.named_parameters())

    def checks(self) -> list[Check]:
        """Checks that the program makes of parts of itself, after the first steps; each is part of the verdict."""
        return []

    def symbols(self) -> list[Symbol]:
        """Which symbols of the executed program ran on which kernel, known after the first step."""
        return []

    def declared_kernels(self) -> dict[str, DeclaredKernel]:
        """Kernels that the backend generated, by the name that a profiler shows."""
        return {}

    def call_sites(self) -> list[list[CallSite]]:
        """Return for each graph of generated code what its calls of kernels serve, in the order in which they run."""
        return []

    def stepped(self) -> list[list[TensorSpec]]:
        """The tensors that the optimizer steps, which have a gradient: one list for each of its groups."""
        return []

    def generated(self) -> str:
        """The program as the backend made it (a Thunder trace, Inductor's code), as text; "" for none."""
        return ""

    def warnings(self) -> list[str]:
        """Sentences for the report about the program (graph breaks, kernels that nothing is known of)."""
        return []

    @property
    def replayed(self) -> bool:
        """Return whether steps were replayed as CUDA graphs, which never happens while a profiler listens."""
        return False

    def compiler(self) -> dict[str, Any] | None:
        """The compiler's counts (`BackendRun.compiler`); None without a compiler, or where it counts nothing."""
        return None

    def problems(self) -> list[str]:
        """Sentences on how the program is not what it should be (an expected kernel did not run): each is a failure."""
        return []


class AutogradProgram(Program):
    """The common form: a callable with the model's signature, PyTorch's autograd, and the workload's optimizer.

    A workload's own loss is computed by PyTorch from what `call` returns; a workload's own step is called with `call`
    as its model. Several ranks train together by `parallel` (`perfkit.backends.parallel.begin`).
    """

    # True where a GPU's steps are replayed as CUDA graphs unless the settings say otherwise; None: they never are.
    replays: ClassVar[bool | None] = False
    replays_passes: ClassVar[bool | None] = False  # the same of the passes of a step that generates

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        call: Callable[..., Any],
        optimizer: torch.optim.Optimizer | None,
        keeps_modules: bool = False,
        parallel: Parallel | None = None,
    ) -> None:
        self.workload = workload
        self.model = model
        self.call = call
        self.optimizer = optimizer
        self.keeps_modules = keeps_modules
        self.parallel = parallel
        self.elsewhere = parallel.elsewhere if parallel else frozenset()
        self.replay: Replay | None = None  # of a program whose forward and backward are replayed
        self.generation: Generation | None = None  # of a program whose step generates tokens, by these two calls
        self.generating: tuple[Any, Any] = generation.calls(call)
        self.passes: tuple[ReplayedPass, ...] = ()  # where these are replayed
        own = optimizer and workload.has("step")
        self._own_step = OwnStep(workload, self._present, optimizer) if own else None

    def replay_where_asked(self, settings: Settings) -> None:
        """Replay the steps where that is asked for; a workload's own step does what it likes, and is not."""
        if settings.generate and asked(settings, self.replays_passes):
            prefill, decode = (ReplayedPass(call) for call in self.generating)
            self.passes = self.generating = prefill, decode
        elif not settings.generate and asked(settings, self.replays) and not self.workload.has("step"):
            self.replay = Replay(list(self.model.parameters()))

    def forward(self, batch: Batch) -> tuple[Outputs, torch.Tensor | None]:
        """Run one batch without gradients, or generate tokens."""
        import torch

        if self.generation is not None:
            return self.generation.run(self.generating, batch), None
        with torch.no_grad():
            return self._run([batch], lambda run: run("inference", batch, self._inferred))

    def _inferred(self, batch: Batch) -> tuple[Outputs, torch.Tensor | None]:
        with ranges.in_pass("forward"):
            result = batch_formats.called(self.call, batch)
        outputs, loss = (result, None) if self.workload.has("loss") else batch_formats.parted(result)
        return batch_formats.normal(outputs), loss

    def evaluated(self, batch: Batch) -> tuple[Any, Any]:
        """Outputs and loss of one batch in training."""
        result = batch_formats.called(self.call, batch)
        return (
            (result, self.workload.loss(result, batch)) if self.workload.has("loss") else batch_formats.parted(result)
        )

    def train_step(self, batches: Sequence[Batch]) -> tuple[Outputs, torch.Tensor | None]:
        """Run forward, backward and the optimizer, or the workload's own step."""
        assert self.optimizer is not None, "a program made for inference cannot train"
        if self._own_step is not None:
            return self._own_step.run(self.call, batches, self.outputs_wanted)
        result = self._run(batches, lambda run: self._accumulated(batches, run))
        with ranges.in_pass("optimizer"):
            self.optimizer.step()
        return result

    def stepped(self) -> list[list[TensorSpec]]:
        """Return the tensors of each of the optimizer's groups that have a gradient."""
        groups = getattr(self.optimizer, "param_groups", [])
        return [[_here(p) for p in group["params"] if p.grad is not None] for group in groups]

    def _accumulated(self, batches: Sequence[Batch], run: Run) -> tuple[Outputs, torch.Tensor | None]:
        """The gradients of all batches; outputs and loss of the last."""
        assert self.optimizer is not None
        with ranges.in_pass("zero_grad"):
            self.optimizer.zero_grad(set_to_none=True)
        for number, batch in enumerate(batches, start=1):
            with self._exchanging(last=number == len(batches)):
                part = "training" if number == 1 else "training, added"
                found = run(part, batch, lambda given: self._differentiated(given, len(batches)))
        return found

    def _differentiated(self, batch: Batch, batches: int) -> tuple[Outputs, torch.Tensor]:
        """Forward and backward of one batch of several."""
        with ranges.in_pass("forward"):
            outputs, found = self.evaluated(batch)
            loss = batch_formats.checked_loss(found)
        with ranges.in_pass("backward"):
            (loss / batches if batches > 1 else loss).backward()
        return batch_formats.normal(outputs), loss.detach()

    def _run(self, batches: Sequence[Batch], step: Callable[[Run], Result]) -> Result:
        """`step` with what runs its parts: their graphs, where they are replayed."""
        if self.replay is not None and self.replay.ready(batches):
            try:
                return self._own(*step(self.replay.run))
            except NotCaptured:  # from here on without; nothing was updated yet
                pass
        return step(lambda part, batch, run: run(batch))

    def _own(self, outputs: Outputs, loss: torch.Tensor | None) -> Result:
        """A replay's result apart from the graph's memory; the outputs only where they are wanted."""
        kept = batch_formats.mapped(outputs, lambda tensor: tensor.clone()) if self.outputs_wanted else outputs
        return kept, None if loss is None else loss.clone()

    @property
    def replayed(self) -> bool:
        """Return whether steps were replayed as CUDA graphs."""
        return any(one.replayed for one in (self.replay, *self.passes) if one)

    def warnings(self) -> list[str]:
        """Return the sentences of the replayed graphs."""
        if self.replay:
            return self.replay.warnings()
        return list(dict.fromkeys(text for one in self.passes for text in one.warnings()))

    def checks(self) -> list[Check]:
        """Check the layers that multiply fp8 by themselves, where there are any."""
        return check_layers(self.model, self.calling)

    def calling(self, layers: Sequence[Any]) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Return a function that calls each of some layers of the model with its input, as the program runs them."""
        return lambda inputs: [layer(x) for layer, x in zip(layers, inputs, strict=True)]

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients by name, in full on every rank."""
        return self._own_step.gradients() if self._own_step is not None else self._present()

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters by name, in full on every rank."""
        return self.parallel.parameters() if self.parallel else super().parameters()

    def _present(self) -> dict[str, torch.Tensor]:
        if self.parallel:
            return self.parallel.gradients()
        return {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def _exchanging(self, last: bool) -> AbstractContextManager[None]:
        return self.parallel.batch(last) if self.parallel else contextlib.nullcontext()


class Backend(ABC):
    """One way to execute a workload."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """One sentence why this backend cannot run here (with these settings, when given), or None when it can.

        Raises `UsageError` for a setting of this backend that names nothing it knows.
        """
        return None

    def variant(self, text: str) -> Backend:
        """The backend that `--backend NAME:TEXT` asks for. Raises `UsageError` where there is none."""
        raise UsageError(
            f"{self.name} has no variants.",
            "compile:MODE is torch.compile in one of its modes, eager:graphs replays eager's steps as CUDA graphs.",
        )

    def load(self, settings: Settings) -> None:  # noqa: B027  # most have nothing to import
        """Import what `prepare` will need, where that takes seconds: with a GPU it is done while others work."""

    @abstractmethod
    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> Program:
        """Make the program. `model` is on the device and in the precision of `settings` already.

        With several ranks (`settings.ranks`) `settings.batch_size` is this rank's share.
        The compile or trace itself may happen here or at the first step; the capture times both together.
        """


def _here(parameter: torch.Tensor) -> TensorSpec:
    """Shape and dtype of what this rank holds of a parameter."""
    own: torch.Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return TensorSpec(tuple(own.shape), dtype_name(own.dtype))
