"""An allocator that writes snapshots as PyTorch's does, and a training program that allocates from it.

Sizes are those of blocks: whole multiples of 512 bytes, so that nothing is rounded but where a test wants it.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

Frames = list[dict[str, Any]]
KIB = 1024
BASE = 0x7F0000000000
SEGMENT = 64 << 20


def frames(*lines: tuple[str, int, str]) -> Frames:
    """Frames from (file, line, function), the innermost first."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in lines]


MODULE = "/v/lib/python3.11/site-packages/torch/nn/modules/module.py"
OPTIM = "/v/lib/python3.11/site-packages/torch/optim/adamw.py"
CALL = (MODULE, 1779, "_call_impl")
ROOT = ("/home/u/train.py", 60, "<module>")
BUILD = frames((MODULE, 1003, "convert"), (MODULE, 978, "_apply"), ("/home/u/train.py", 12, "<module>"))
FIRST = frames(("/home/u/model.py", 20, "forward"), CALL, ("/home/u/train.py", 30, "step"), ROOT)
SECOND = frames(("/home/u/model.py", 25, "forward"), CALL, ("/home/u/train.py", 30, "step"), ROOT)
BATCH = frames(("/home/u/data.py", 8, "batch"), ROOT)
STATE = frames((OPTIM, 170, "_init_group"), (OPTIM, 230, "step"), ("/home/u/train.py", 33, "step"), ROOT)
STEP = frames((OPTIM, 500, "_multi_tensor_adamw"), (OPTIM, 240, "step"), ("/home/u/train.py", 33, "step"), ROOT)
ZERO = frames(("/v/lib/python3.11/site-packages/torch/optim/optimizer.py", 900, "zero_grad"), ROOT)
ENGINE = frames(
    ("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)"),
    ("??", 0, "start_thread"),
)


class Allocator:
    """Gives out addresses one behind the other; `native` adds the frames of C++ that a default recording has."""

    def __init__(self, native: bool = False, device: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, int, Frames]] = {}
        self.native, self.device = native, device
        self._next, self._now = BASE, 1_700_000_000_000_000
        self._event("segment_alloc", BASE, SEGMENT, [])

    def _event(self, action: str, address: int, size: int, stack: Frames) -> None:
        self._now += 10
        key = "device_free" if action == "oom" else "addr"
        self.events.append({"action": action, key: address, "size": size, "stream": 0, "time_us": self._now,
                            "frames": self._stack(stack)})  # fmt: skip

    def _stack(self, stack: Frames) -> Frames:
        if not self.native:
            return stack
        inner = frames(("??", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)"))
        return inner + (stack or ENGINE)

    def alloc(self, size: int, stack: Frames) -> int:
        """Allocate `size` bytes; the address."""
        address, block = self._next, max(512, -(-size // 512) * 512)
        self._next += block
        self.live[address] = (size, block, self._stack(stack))
        self._event("alloc", address, size, stack)
        return address

    def free(self, address: int, stack: Frames) -> None:
        """Give the block at `address` back."""
        size, _, _ = self.live.pop(address)
        self._event("free_requested", address, size, stack)
        self._event("free_completed", address, size, stack)

    def fail(self, size: int, left: int, stack: Frames) -> None:
        """An allocation fails."""
        self._event("oom", left, size, stack)

    def snapshot(self) -> dict[str, Any]:
        """The snapshot, as newer versions write it."""
        blocks, at = [], BASE
        for address, (size, block, stack) in sorted(self.live.items()):
            if address > at:
                blocks.append(_block(at, address - at, 0, "inactive", []))
            blocks.append(_block(address, block, size, "active_allocated", stack))
            at = address + block
        blocks.append(_block(at, BASE + SEGMENT - at, 0, "inactive", []))
        held = sum(block for _, block, _ in self.live.values())
        segment = {"device": self.device, "address": BASE, "total_size": SEGMENT, "stream": 0, "segment_type": "large",
                   "allocated_size": held, "active_size": held, "segment_pool_id": (0, 0), "is_expandable": False,
                   "requested_size": sum(size for size, _, _ in self.live.values()), "frames": [],
                   "blocks": blocks}  # fmt: skip
        return {"segments": [segment], "device_traces": [*([] for _ in range(self.device)), self.events],
                "allocator_settings": {"expandable_segments": False}, "external_annotations": []}  # fmt: skip


def _block(address: int, size: int, requested: int, state: str, stack: Frames) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": stack}


PARAMETERS, ACTIVATIONS, GRADIENTS, STATES, TEMPORARY, INPUT = (n * KIB for n in (64, 96, 64, 128, 32, 8))


def training(allocator: Allocator, steps: int = 3, fails: bool = False) -> dict[str, int]:
    """Train: the bytes of each kind in the middle of a step's backward pass, where all are held."""
    for _ in range(2):
        allocator.alloc(PARAMETERS, BUILD)
    states: list[int] = []
    gradients: list[int] = []
    for number in range(steps):
        for one in gradients:
            allocator.free(one, ZERO)
        batch = allocator.alloc(INPUT, BATCH)
        saved = [allocator.alloc(ACTIVATIONS, FIRST), allocator.alloc(ACTIVATIONS, SECOND)]
        allocator.free(allocator.alloc(TEMPORARY, FIRST), FIRST)
        if fails and number == steps - 1:
            allocator.fail(40 << 20, 30 << 20, SECOND)
            break
        gradients = []
        for one in reversed(saved):
            gradients.append(allocator.alloc(GRADIENTS, []))
            through = allocator.alloc(TEMPORARY, [])
            allocator.free(one, [])
            allocator.free(through, [])
        states = states or [allocator.alloc(STATES, STATE) for _ in range(2)]
        allocator.free(allocator.alloc(TEMPORARY, STEP), STEP)
        allocator.free(batch, BATCH)
    return {"parameters": 2 * PARAMETERS, "optimizer state": 2 * STATES, "activations": 2 * ACTIVATIONS,
            "gradients": GRADIENTS, "inputs": INPUT, "temporaries": TEMPORARY}  # fmt: skip


if __name__ == "__main__":  # write snapshots to the paths that are given
    for name in map(Path, sys.argv[1:]):
        made = Allocator()
        training(made)
        name.parent.mkdir(exist_ok=True)
        name.write_bytes(pickle.dumps(made.snapshot()))
