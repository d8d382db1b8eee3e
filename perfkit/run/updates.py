"""Check a program's optimizer updates against the workload's own optimizer in fp64 on the program's own gradients.

An update cannot be compared with the reference's: the first step of Adam turns every gradient into ± its learning rate,
so that the noise in a gradient near 0 becomes a full step. So the optimizer is compared by itself: an fp64 one of the
same kind takes the parameters as the program holds them, and the gradients that the program computed, step by step. It
keeps moments of its own, so nothing needs to be known of the program's optimizer but what it holds and what it does.

The first step is checked in every element. Later ones are checked in SAMPLED elements of each parameter, where the
workload's optimizer treats each element by itself: what a step does with its moments, it does with all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfkit import correctness
from perfkit.run import memory
from perfkit.run_folder import Settings

if TYPE_CHECKING:
    import torch

    from perfkit.backends.interface import Program
    from perfkit.workloads.interface import Workload

# Parameters, gradients, two moments, one temporary of the step, and the parameters before it.
WORDS = 6
SHARE = {"cpu": 0.5, "cuda": 0.125}  # of the free memory: on a GPU several backends take their first steps at once
SAMPLE = {"cpu": 1.0, "cuda": 0.25}  # of that, where some parameters are followed: a large model's step needs the rest

# Elements of a parameter that are followed from the second step on, its first and last EDGE among them. Where a share s
# of the elements is wrong from then on only, none is among those with a probability of exp(-SAMPLED · s): 0.1 % for one
# element in ten thousand.
SAMPLED, EDGE = 1 << 16, 1 << 10
# Optimizers that treat each element by itself.
ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")

ON_CPU = 2.5e8  # parameters of a GPU's model that a CPU may follow: it steps some 10⁸ a second


class Updates:
    """Follows the first steps of `program`: call `before` and `after` around each.

    `errors` holds `correctness.update_error` by name ("update of PARAMETER, step N"). Where the optimizer cannot be
    followed (for want of memory, or because it does not step in fp64), `errors` is empty and `warnings` says why. Where
    memory is too short for all parameters, the smallest are followed, and `warnings` says how many.
    """

    def __init__(self, program: Program, workload: Workload, settings: Settings) -> None:
        self.errors: dict[str, float | None] = {}
        self.warnings: list[str] = []
        self._program = program
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._sampled: dict[str, torch.Tensor] = {}  # by parameter, the places of the elements that are followed
        self._shapes: dict[str, torch.Size] = {}  # of those parameters
        self._optimizer: torch.optim.Optimizer | None = None
        try:
            self._make(workload, settings)
        except Exception as error:  # a user's optimizer, or memory: the run goes on without this check
            self._give_up(error)

    def _make(self, workload: Workload, settings: Settings) -> None:
        import msgspec
        import torch

        held = self._program.parameters()
        sizes = {name: p.numel() for name, p in held.items()}
        device, names = place(sizes, settings.device)
        if not names:
            self.warnings.append("What the optimizer changes was not checked: memory is too short for an fp64 one.")
            return
        if len(names) < len(sizes):
            share = sum(sizes[name] for name in names) / sum(sizes.values())
            self.warnings.append(
                f"What the optimizer changes was checked for {len(names)} of {len(sizes)} parameters ({share:.0%} of "
                "their elements): memory is too short for an fp64 optimizer of all."
            )
        with torch.random.fork_rng(devices=[]):  # the steps draw the same numbers as the reference's
            model = workload.build(settings)
        if len(names) == len(sizes):
            model = model.to(device, torch.float64)
        self._parameters = {n: p for n, p in model.named_parameters() if n in names or n not in sizes}
        for name, parameter in model.named_parameters():
            if name in self._parameters:
                parameter.data = parameter.data.to(device, torch.float64)
            else:  # an optimizer leaves alone what has no gradient: it keeps its shape, and no memory
                parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)
        form = "fused" if "optimizer" in workload.takes else "default"  # fused: a third of the memory traffic
        self._optimizer = workload.optimizer(model, msgspec.structs.replace(settings, optimizer=form))

    def before(self) -> None:
        """Take over the parameters as they are before a step."""
        import torch

        if self._optimizer is None:
            return
        held = self._program.parameters()
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if name in held and (own := self._followed(name, held[name])).shape == parameter.shape:
                    parameter.copy_(own)

    def after(self, step: int, compare: bool) -> None:
        """Step with the gradients that the program computed in step number `step`; with `compare`, keep the errors."""
        if self._optimizer is None:
            return
        before = {name: p.detach().clone() for name, p in self._parameters.items()} if compare else {}
        try:
            self._step()
        except Exception as error:  # a user's optimizer
            self._give_up(error)
            return
        held = self._program.parameters() if compare else {}
        for name, old in before.items():
            if name in self._program.elsewhere:
                continue
            new = self._parameters[name].detach()
            off = correctness.update_error(self._followed(name, held[name]), old, new) if name in held else None
            self.errors[f"update of {name}, step {step}"] = off
        if not self._sampled and _elementwise(self._optimizer):
            self._sample(self._optimizer)

    def _followed(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The elements of a parameter, or of its gradient, that are followed: all of them in its shape, or a sample."""
        if name not in self._sampled or tensor.shape != self._shapes[name]:
            return tensor
        return tensor.detach().take(self._sampled[name].to(tensor.device))

    def _sample(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on follow a sample of each large parameter, with its moments; all of one with sparse gradients."""
        gradients = self._program.gradients()
        for name, parameter in self._parameters.items():
            size, gradient = parameter.numel(), gradients.get(name)
            if size <= SAMPLED or gradient is None or gradient.is_sparse:
                continue
            places = self._sampled[name] = _places(size).to(parameter.device)
            self._shapes[name] = parameter.shape
            parameter.data = parameter.data.take(places)
            state = optimizer.state[parameter]
            for key, value in state.items():
                if hasattr(value, "numel") and value.numel() == size:
                    state[key] = value.take(places)

    def _step(self) -> None:
        assert self._optimizer is not None
        gradients = self._program.gradients()
        for name, parameter in self._parameters.items():
            gradient = gradients.get(name)
            followed = None if gradient is None else self._followed(name, gradient)
            parameter.grad = None if followed is None else _in_fp64(followed, parameter.device)
        self._optimizer.step()
        for parameter in self._parameters.values():
            parameter.grad = None

    def _give_up(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [""]
        self.warnings.append(
            "What the optimizer changes was not checked: the workload's optimizer does not step in fp64 "
            f"({type(error).__name__}: {lines[0][:200]})."
        )
        self.errors.clear()
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        import torch

        on_gpu = any(p.is_cuda for p in self._parameters.values())
        self._parameters, self._sampled, self._optimizer = {}, {}, None
        if on_gpu:
            torch.cuda.empty_cache()


def _elementwise(optimizer: torch.optim.Optimizer) -> bool:
    import torch

    return any(type(optimizer) is getattr(torch.optim, name) for name in ELEMENTWISE)


def _places(size: int) -> torch.Tensor:
    """SAMPLED places of `size`, or a few less where one is drawn twice: both edges, and others at random, the same in
    each run."""
    import torch

    drawn = torch.randint(size, (SAMPLED - 2 * EDGE,), generator=torch.Generator().manual_seed(size))
    return torch.cat([torch.arange(EDGE), drawn, torch.arange(size - EDGE, size)]).unique()


def _in_fp64(gradient: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Rows that a sparse gradient holds twice are added in its own precision: their rounding is the gradient's."""
    import torch

    values = gradient.detach()
    return (values.coalesce() if values.is_sparse else values).to(device, torch.float64)


def place(sizes: Mapping[str, int], device: str) -> tuple[str, set[str]]:
    """Return the device with room for an fp64 optimizer, and the parameters of these `sizes` (elements) that fit.

    On `device` where all fit, else on a CPU where all fit and are few enough to be stepped there, else some of the
    smallest ones on `device`: an optimizer does the same with every tensor.
    """
    whole = sum(sizes.values())
    for candidate in dict.fromkeys([device, "cpu"]):
        if whole <= _room(candidate) and (candidate == device or whole <= ON_CPU):
            return candidate, set(sizes)
    left, names = SAMPLE[_kind(device)] * _room(device), set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        left -= sizes[name]
        if left < 0:
            break
        names.add(name)
    return device, names


def _room(device: str) -> float:
    """Elements of parameters whose fp64 optimizer has room on `device`."""
    available = memory.available_bytes(device)
    return math.inf if available is None else available * SHARE[_kind(device)] / (8 * WORDS)


def _kind(device: str) -> str:
    return device.split(":")[0]
