"""A step that generates tokens: the prompt's pass (prefill), then one pass a token (decode), over a static cache.

    prefill   model(prompt (B, P), cache=…)                  → logits (B, 1, V) of the last position, token (B, 1)
    decode    model(token (B, 1), cache=…, position=(1))     → those of the next one, N − 1 times

Every decode pass has the same shapes and the same memory, so that one compiled program and one CUDA graph serve all.
The next token stays on the device: the host waits for none.

Legend: B sequences, P tokens of the prompt, N generated tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfkit import ranges
from perfkit.run_folder import Check, Settings

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Batch, Workload

PREFILL, DECODE = "prefill", "decode"
TOKENS = "tokens of greedy decoding without a cache"

Call = Callable[..., Any]


def calls(model: Call) -> tuple[Call, Call]:
    """The model's two ways to run, as functions of their own: to a compiler they are two programs."""

    def prefill(prompt: torch.Tensor, cache: Any) -> Any:
        return model(prompt, cache=cache)

    def decode(token: torch.Tensor, cache: Any, position: torch.Tensor) -> Any:
        return model(token, cache=cache, position=position)

    return prefill, decode


class Generation:
    """Runs the generating steps of one program, and notes when each token is there."""

    def __init__(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> None:
        import torch

        self.count = settings.generate
        self.cache = workload.cache(model, settings)
        assert settings.sequence_length is not None
        first = settings.sequence_length
        # Made before the steps: a pass takes its position from here, and nothing is copied from the host.
        self.positions = list(torch.arange(first, first + self.count, device=settings.device).split(1))
        if "torch._dynamo" in sys.modules:  # a CUDA graph may write into the cache, which stays where it is
            for tensor in itertools.chain(*self.cache):
                torch._dynamo.mark_static_address(tensor)
        self.follow: torch.Tensor | None = None
        self._mark: Callable[[], Any] = time.perf_counter_ns if settings.device == "cpu" else _event
        self._marks: list[list[Any]] = []

    def run(self, calls: tuple[Call, Call], batch: Batch) -> torch.Tensor:
        """Generate: the tokens (B, N).

        With `follow`, tokens (B, N), the logits (B, N, V) by which each of these is chosen, given those before it.
        """
        import torch

        (prefill, decode), given, logits, marks = calls, self.follow, [], [self._mark()]
        tokens = batch[0].new_empty((self.count, batch[0].shape[0], 1))
        with torch.no_grad():
            for n, position in enumerate([None, *self.positions[: self.count - 1]]):
                # A range for every pass: several runs of a compiled program in one range could not be distinguished.
                with ranges.in_pass(PREFILL if position is None else DECODE):
                    if position is None:
                        found, token = prefill(batch[0], self.cache)
                    else:
                        found, token = decode(tokens[n - 1], self.cache, position)
                    tokens[n].copy_(token if given is None else given[:, n : n + 1])
                marks.append(self._mark())
                if given is not None:
                    logits.append(found.clone())
        self._marks.append(marks)
        return tokens[:, :, 0].t() if given is None else torch.cat(logits, dim=1)

    def without_cache(self, model: Call, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Greedy decoding without a cache: the tokens (B, N) and their logits (B, N, V).

        One pass over prompt and tokens gives every token's logits. Where the tokens, made with the cache, are the most
        likely ones there, they are those of decoding one by one without it, for each follows from the ones before; from
        the first one that is not, decoding starts again.
        """
        import torch

        prompt = batch[0]
        before = prompt.shape[1]
        tokens = self.run(calls(model), batch)
        with torch.no_grad():
            for _ in range(self.count):
                logits = model(torch.cat([prompt, tokens[:, :-1]], dim=1))[0][:, before - 1 :]
                likely = logits.argmax(-1)
                wrong = (likely != tokens).any(dim=0)
                if not wrong.any():
                    break
                right = int(wrong.nonzero()[0]) + 1  # as many are right once this one is put in
                tokens = torch.cat([likely[:, :right], tokens[:, right:]], dim=1)
        self.take()
        return tokens, logits

    def take(self) -> list[list[float]]:
        """Return, for each step since the last call, the time to its first token and to each further one, in ns."""
        marks, self._marks = self._marks, []
        return [[_between(a, b) for a, b in itertools.pairwise(mark)] for mark in marks]


def token_check(
    tokens: torch.Tensor, logits: torch.Tensor, expected: torch.Tensor, expected_logits: torch.Tensor
) -> Check:
    """Check `tokens` (B, N), decoded freely, against the `expected` ones of the reference: the error is the share of
    sequences that differ.

    A sequence is followed to the first token that differs; what comes after has another past. That one is right where
    the reference's choice was so close that the backend's error in `logits`, at this place and by the same past, turns
    it.
    """
    import torch

    differ = tokens != expected.to(tokens.device)
    first = differ & (differ.cumsum(dim=1) == 1)
    wanted = expected_logits.to(logits.device, torch.float64)
    error = (logits.to(torch.float64) - wanted).abs().amax(dim=-1)
    chosen = wanted.gather(-1, expected[..., None].to(logits.device))[..., 0]
    other = wanted.gather(-1, tokens[..., None])[..., 0]
    wrong = first & ~(chosen - other <= 2 * error)
    share = float(wrong.sum()) / len(tokens)
    allowed = 0.5 / len(tokens)  # not a single sequence
    return Check(name=TOKENS, error=share, allowed=allowed, eager_error=None, ok=share <= allowed)


def _event() -> torch.cuda.Event:
    """A moment of the GPU, noted without waiting for it."""
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(first: Any, second: Any) -> float:
    if isinstance(first, int):
        return float(second - first)
    second.synchronize()
    return float(first.elapsed_time(second)) * 1e6
