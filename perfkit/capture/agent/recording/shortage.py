"""An allocation on a GPU that fails: a snapshot of the allocator, with what the program's own objects hold.

PyTorch calls an observer before it raises its error, which the program sees as ever. Until the second step ends the
allocator keeps stacks, and the memory that each repeated block of a model retains is noted where it is called: most
programs that fail do so in their first step.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perfkit.capture.agent.models import conditions
from perfkit.capture.agent.models.outermost import Models
from perfkit.capture.agent.order import SHORTAGE
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.tracing import owned_tensors

_EVENTS = 200_000  # of the allocator's that are kept: about 100 bytes each
_STEPS = 2  # in which stacks are kept
_ATTACH = "_cuda_attach_out_of_memory_observer"
KNOWN, BLOCKS = "perfkit_known", "perfkit_blocks"


class Shortage:
    """Watches for allocations that fail in this process, and writes the last one into `folder`."""

    def __init__(self, folder: Path, models: Models) -> None:
        self._folder, self._models = folder, models
        self.watches_blocks = False
        self._records = self._is_programs = False
        self._record: Callable[..., Any] = torch.cuda.memory._record_memory_history
        self._blocks: dict[str, list[Any]] = {}  # path → bytes retained, bytes of the input, events around it
        self._here = threading.local()

    def install(self, patches: Patches) -> None:
        """Begin when the program begins to use a GPU; what the allocator records is the program's where it asks."""
        if torch.version.cuda and hasattr(torch._C, _ATTACH):
            self._record = torch.cuda.memory._record_memory_history
            patches.wrap(torch.cuda.memory, "_record_memory_history", self._yielding)
            torch.cuda._lazy_call(self._begin)

    def _yielding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _record_memory_history(*args: Any, **kwargs: Any) -> Any:
            self._records, self._is_programs = False, True
            return original(*args, **kwargs)

        return _record_memory_history

    def _begin(self) -> None:
        try:
            getattr(torch._C, _ATTACH)(self._failed)
            # Stacks of Python alone: those of C++ take a hundred times as long to be written.
            self.watches_blocks = True
            if not self._is_programs:
                self._record("all", context="all", stacks="python", max_entries=_EVENTS)
                self._records = True
        except Exception as error:  # an older PyTorch: the program goes on
            self._say(f"allocations that fail are not explained: {type(error).__name__}: {error}")

    def step_over(self, found: int) -> None:
        """The program has taken `found` steps: after the second one nothing is recorded any more."""
        self._blocks.clear()
        if found >= _STEPS:
            self.stop()

    def stop(self) -> None:
        """Record nothing from here on. The observer stays, which is asked only where an allocation fails."""
        self.watches_blocks = False
        if self._records:
            self._records = False
            self._record(None)

    def block(self, module: torch.nn.Module, args: Any) -> Callable[[], None] | None:
        """A module is called: what is due at its end, where it is one of a list of blocks."""
        path = self._models.path_of(module)
        if not path.rpartition(".")[2].isdigit() or getattr(self._here, "inside", False):
            return None
        if not torch.is_grad_enabled() or torch.cuda.is_current_stream_capturing():
            return None
        self._here.inside = True
        before = torch.cuda.memory_allocated()
        took = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        took[0].record()
        kept = sum(arg.numel() * arg.element_size() for arg in args if type(arg) is torch.Tensor and arg.is_cuda)

        def end() -> None:
            self._here.inside = False
            took[1].record()
            self._blocks[path] = [max(0, torch.cuda.memory_allocated() - before), kept, took]

        return end

    def _failed(self, device: int, size: int, total: int, free: int) -> None:
        """PyTorch is about to raise its error."""
        if getattr(self._here, "failing", False):
            return
        self._here.failing = True
        try:
            with conditions.unseen():
                self._write(torch.cuda.memory._snapshot())
        except Exception as error:
            self._say(f"the allocation that failed is not explained: {type(error).__name__}: {error}")
        finally:
            self._here.failing = False

    def _write(self, snapshot: dict[str, Any]) -> None:
        snapshot |= {KNOWN: self._known(), BLOCKS: self._times()}
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{SHORTAGE}"
        with temporary.open("wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        temporary.replace(self._folder / SHORTAGE)

    def _known(self) -> list[list[Any]]:
        """Kind, name, address and bytes of what models and optimizers hold."""
        # By type: isinstance asks objects for their __class__, and some warn when they are asked.
        optimizers = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
        named = owned_tensors.named(*self._models.tensors(), optimizers)
        return [[kind, name, *place] for kind, name, one in named if (place := owned_tensors.place(one))]

    def _times(self) -> list[list[Any]]:
        """Path, bytes retained, bytes of the input and ns of the forward pass of each block of this step."""
        found = []
        for path, (retained, kept, (begin, end)) in self._blocks.items():
            took = begin.elapsed_time(end) * 1e6 if end.query() else None
            found.append([path, retained, kept, took])
        return found

    def _say(self, sentence: str) -> None:
        print(f"perfkit: {sentence}", file=sys.stderr, flush=True)
