"""The backend `llmc`: a workload's training step written by hand, as llm.c does it.

No autograd: forward, backward and AdamW are sequences of kernels of the catalog and of library matrix products, over
activations and gradients that are allocated once.

On a GPU forward and backward are replayed as CUDA graphs; the loss, which waits for how many targets count, and AdamW,
whose numbers change, are launched as they are. While a profiler or a tool listens, everything is: the same kernels in
the same order, each with its marks. Several ranks exchange gradients while backward goes on, and replay nothing.

Where a workload brings a token's pass by hand as well, the backend generates: the prompt's pass is that of the backend
`kernels`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit import ranges
from perfkit.backends import parallel
from perfkit.backends.eager import NO_TORCH
from perfkit.backends.interface import Backend, Program
from perfkit.backends.parallel.arena import SHARINGS, Sharing
from perfkit.backends.replay import REPLAYS, asked
from perfkit.errors import InputError, Unavailable, torch_installed
from perfkit.fp8 import check_layers
from perfkit.run_folder import Check, Settings

if TYPE_CHECKING:
    import torch

    from perfkit.handwritten import Graphs, RawStep
    from perfkit.workloads.interface import Batch, Workload


class RawProgram(Program):
    """A `RawStep` with AdamW over its flat parameters, which several ranks may share; with `graphs` by these."""

    updates_in = "fp32"

    def __init__(
        self,
        model: torch.nn.Module,
        step: RawStep,
        optimizer: AdamW | None,
        sharing: Sharing,
        graphs: Graphs | None = None,
    ) -> None:
        self.model = model
        self.step = step
        self.optimizer = optimizer
        self.sharing = sharing
        self.graphs = graphs

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run one batch of the handwritten step."""
        import torch

        with torch.no_grad(), ranges.in_pass("forward"):
            self._begin()
            given, run = self._way(batch)
            outputs = run("forward", lambda: self.step.forward(given))
            return self._loss(given, outputs) if len(batch) > 1 else (outputs, None)

    def train_step(self, batches: Sequence[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of all batches add up; those of the last one are exchanged while the backward pass runs."""
        import torch

        assert self.optimizer is not None, "a program made for inference cannot train"
        with torch.no_grad():
            self._begin()
            for number, batch in enumerate(batches):
                self.step.listener = self.sharing.done if number + 1 == len(batches) else None
                outputs, loss = self._batch(batch, 1.0 / (len(batches) * self.sharing.ranks), add=number > 0)
            with ranges.in_pass("optimizer"):
                self.optimizer.step()
                self.sharing.updated()
        return outputs, loss

    def _begin(self) -> None:
        """Prepare what all batches of a step share, by its graph where the step is replayed."""
        if not self.step.prepares:
            return
        with ranges.in_pass("forward"):
            if self.graphs is None or ranges.listening():
                self.step.begin()
            else:
                self.graphs.run("begin", self.step.begin)

    def _batch(self, batch: Batch, scale: float, add: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Forward and backward of one batch."""
        with ranges.in_pass("forward"):
            given, run = self._way(batch)
            outputs, loss = self._loss(given, run("forward", lambda: self.step.forward(given)), scale)
        with ranges.in_pass("backward"):
            run(("backward", add), lambda: self.step.backward(given, add))
            self.sharing.wait()
        return outputs, loss

    def _way(self, batch: Batch) -> tuple[Batch, Callable[[Hashable, Callable[[], Any]], Any]]:
        """The batch as the step gets it, and what runs its parts: their graphs, unless a listener is set."""
        if self.graphs is None or ranges.listening():
            return batch, lambda part, run: run()
        return self.graphs.inputs(batch), self.graphs.run

    def _loss(self, batch: Batch, outputs: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs as they were, kept only where they are wanted, and the loss, which overwrites them."""
        kept = outputs.clone() if self.outputs_wanted else outputs
        return kept, self.step.loss(batch, scale)

    def gradients(self) -> dict[str, torch.Tensor]:
        """By the names of the model's parameters, whole on every rank."""
        self.sharing.complete()
        return self.step.named_gradients()

    def checks(self) -> list[Check]:
        """Check the optimizer's kernel by itself, and the layers that multiply fp8, where there are any."""
        from perfkit.handwritten import eights

        return [*(self.optimizer.checks() if self.optimizer else []), *check_layers(self.model, eights.calling)]

    def warnings(self) -> list[str]:
        """The step's own remarks, and that graphs were replayed where they were."""
        return [*self.step.notes, *([REPLAYS] if self.replayed else [])]

    @property
    def replayed(self) -> bool:
        """Return whether steps were replayed as CUDA graphs."""
        return self.graphs is not None and self.graphs.replays


class AdamW:
    """AdamW in one kernel call over all parameters, with the constants of the workload's own optimizer.

    Of several ranks each may have some `parts` of the parameters to update, pairs of parameters and gradients (N).
    """

    def __init__(self, parts: Sequence[tuple[torch.Tensor, torch.Tensor]], like: torch.optim.Optimizer) -> None:
        import torch

        from perfkit import kernels

        self._dtype, self._device = parts[0][0].dtype, parts[0][0].device.type
        group = like.param_groups[0]
        numbers = group["lr"], *group["betas"], group["eps"], group["weight_decay"]
        self._steps = 0
        self._updates = []
        for parameters, gradients in parts:
            m = torch.zeros_like(parameters, dtype=torch.float32)
            moments = m, torch.zeros_like(m)
            self._updates.append(kernels.bind("adamw_step", (parameters, gradients, *moments, *numbers, 1, 1.0)))

    def step(self) -> None:
        """Update the parameters from their gradients."""
        self._steps += 1
        for update in self._updates:
            update(step=self._steps)

    def checks(self) -> list[Check]:
        """The kernel by itself against its reference in fp64, with numbers that make each of its terms count.

        A workload's own need not: of a weight decay of 1e-6 a step, or an epsilon of 1e-8, rounding hides everything.
        """
        from perfkit import kernels
        from perfkit.kernels.dtypes import name_of

        operation, ran = self._updates[0].operation, self._updates[0].implementation
        (result,) = kernels.check(
            operation, ran.version, name_of(self._dtype), operation.cases[-1],
            device=self._device, language=ran.language,
        )  # fmt: skip
        return [
            Check(f"{operation.name} by itself: {e.output}", e.error, e.tolerance, None, e.ok) for e in result.errors
        ]


def why_not_adamw(optimizer: torch.optim.Optimizer) -> str:
    """Why the kernel cannot do what `optimizer` does, or ""."""
    import torch

    if type(optimizer) is not torch.optim.AdamW or len(optimizer.param_groups) != 1:
        return "it steps by AdamW with one group of parameters"
    group = optimizer.param_groups[0]
    if group["amsgrad"] or group["maximize"] or isinstance(group["lr"], torch.Tensor):
        return "it steps by AdamW without amsgrad and maximize, with a number as learning rate"
    return ""


def by_hand(workload: Workload, kind: type) -> Any:
    """The subclass of `kind` (`RawStep`, `RawDecode`) in the file that `workload.by_hand` names, or None.

    Raises `InputError` when there are several.
    """
    from perfkit.content import load_content_module

    path = Path(inspect.getfile(type(workload))).resolve().parent / workload.by_hand
    module = load_content_module("workloads", path)
    found = [
        v for v in vars(module).values() if isinstance(v, type) and issubclass(v, kind) and not inspect.isabstract(v)
    ]
    if len(found) > 1:
        raise InputError(
            f"{path} defines {len(found)} subclasses of {kind.__name__}, not one.",
            "Leave one of them in it that defines all of its methods.",
        )
    return found[0] if found else None


def step_by_hand(workload: Workload) -> type[RawStep]:
    """The `RawStep` of the file that `workload.by_hand` names. Raises `InputError` when it does not define just one."""
    from perfkit.handwritten import RawStep

    found: type[RawStep] | None = by_hand(workload, RawStep)
    if found is None:
        raise InputError(
            f"The file {workload.by_hand} of {workload.name} defines no step by hand.",
            "Leave one subclass of RawStep in it that defines all of its methods.",
        )
    return found


class Llmc(Backend):
    """Runs the step that a workload brings along, written by hand."""

    name = "llmc"
    summary = "forward, backward and AdamW by hand-written kernels in one arena, without autograd"

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Why not: no kernels for the device, an unknown way of sharing, or a workload without a step by hand."""
        from perfkit import kernels

        if not torch_installed():
            return NO_TORCH
        reason = kernels.unavailable(settings.device if settings else "cpu")
        reason = reason or parallel.cannot(self.name, settings, tuple(SHARINGS))
        if reason or settings is None:
            return reason
        from perfkit.workloads import loader

        workload = loader.find(settings.workload)
        if not workload.by_hand:
            return f"The workload {settings.workload} brings no step written by hand."
        if settings.generate:
            return self._cannot_generate(workload)
        if settings.recompute and not step_by_hand(workload).recomputes:
            return f"The step by hand of {settings.workload} keeps its activations: it recomputes none."
        return None

    def _cannot_generate(self, workload: Workload) -> str | None:
        from perfkit.handwritten import RawDecode

        found = by_hand(workload, RawDecode)
        return None if found else f"The workload {workload.name} brings no token's pass written by hand."

    def load(self, settings: Settings) -> None:
        """Load the catalog's kernels."""
        from perfkit import kernels

        kernels.load(settings.kernel_dirs)

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> Program:
        """The step by hand. Raises `Unavailable` for an optimizer other than AdamW."""
        from perfkit import kernels
        from perfkit.handwritten import Graphs

        kernels.load(settings.kernel_dirs)
        if settings.generate:
            return self._generating(workload, model, settings)
        step = step_by_hand(workload)(model, settings)
        graphs = Graphs() if step.captures and asked(settings, usual=True) else None
        if not settings.training:
            return RawProgram(model, step, None, Sharing(step), graphs)
        like: Any = workload.optimizer(model, settings)
        reason = why_not_adamw(like)
        if reason:
            raise Unavailable(f"Backend llmc does not know the optimizer of {workload.name}: {reason}.")
        sharing = SHARINGS[settings.parallel](step)
        return RawProgram(model, step, AdamW(sharing.parts(), like), sharing, graphs)

    def _generating(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> Program:
        """The prompt's pass by the model with kernels in it, a token's by hand."""
        from perfkit.backends.catalog import CatalogProgram
        from perfkit.handwritten import RawDecode

        decode = by_hand(workload, RawDecode)
        program = CatalogProgram(workload, model, parallel.begin(workload, model, settings), None)
        program.generating = program.generating[0], decode(model, settings)
        return program
