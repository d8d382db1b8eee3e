"""One of the ranks that measure collectives; torchrun starts them.

    torchrun … -m perfkit.hardware.collectives.sweep REQUEST

REQUEST is a `SweepRequest` as JSON. Rank 0 prints a JSON line an observation: operation, bytes, seconds, calls, round.
Lines {"progress": …}, {"software": …} and {"unavailable": …} lie between.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.hardware.collectives.results import OPERATIONS

if TYPE_CHECKING:
    import torch

_ELEMENT = 4  # bytes of a number: fp32
_CHECKED = 1024  # numbers of a rank when results are checked
_LEAST_CALLS = {"cpu": 5, "cuda": 20}
_MOST_CALLS = 100
_QUEUE_CYCLES = 100_000  # of a GPU, about 50 µs: what a host takes at most to queue one call


class SweepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of a sweep. `seconds` is for the calls of one size in one round, unless the fewest take longer."""

    device: str  # cpu or cuda
    sizes: tuple[int, ...]
    seconds: float
    rounds: int = 3


@dataclass(frozen=True)
class _Ranks:
    rank: int
    size: int
    device: torch.device

    def most(self, value: float) -> float:
        """The largest of every rank's `value`; all ranks meet here."""
        import torch
        from torch import distributed

        number = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.all_reduce(number, op=distributed.ReduceOp.MAX)
        return float(number)

    def say(self, **facts: Any) -> None:
        """Print one line, on rank 0."""
        if self.rank == 0:
            sys.stdout.buffer.write(msgspec.json.encode(facts) + b"\n")
            sys.stdout.buffer.flush()


def main() -> None:
    """Measure what the first argument asks for."""
    import torch
    from torch import distributed

    request = msgspec.json.decode(sys.argv[1], type=SweepRequest)
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    ranks = _Ranks(rank, size, torch.device("cpu" if request.device == "cpu" else f"cuda:{local}"))
    if problem := _missing(request.device, size):
        ranks.say(unavailable=problem, hint="Give as many --ranks as there are GPUs, or --device cpu.")
        return
    options: dict[str, Any] = {}
    if request.device != "cpu":
        torch.cuda.set_device(ranks.device)
        options["device_id"] = ranks.device
    carrier = "gloo" if request.device == "cpu" else "nccl"
    distributed.init_process_group(carrier, timeout=timedelta(seconds=120), **options)
    ranks.say(software=_software(carrier), carrier=carrier)
    _sweep(request, ranks)
    distributed.destroy_process_group()


def _missing(device: str, size: int) -> str:
    import torch
    from torch import distributed

    if device == "cpu":
        return "" if distributed.is_gloo_available() else "This torch has no gloo."
    if not distributed.is_nccl_available():
        return "This torch has no NCCL."
    count = torch.cuda.device_count()
    return "" if size <= count else f"{size} ranks need {size} GPUs, and this machine has {count}."


def _software(carrier: str) -> dict[str, str]:
    import torch

    found = {"torch": str(torch.__version__)}
    if carrier == "nccl":
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def _sweep(request: SweepRequest, ranks: _Ranks) -> None:
    import torch

    most = _numbers(max(request.sizes), ranks.size)
    one, two = (torch.zeros(most, device=ranks.device) for _ in range(2))
    for name in OPERATIONS:
        if not _right(name, one, two, ranks):
            ranks.say(wrong=name)
            return
    one.zero_()
    two.zero_()
    for number in range(request.rounds):
        for name in OPERATIONS:
            ranks.say(progress=f"{name} between {ranks.size} ranks · round {number + 1}")
            for bytes_, seconds, calls in _round(name, one, two, request, ranks):
                ranks.say(operation=name, bytes=bytes_, seconds=seconds, calls=calls, round=number)


def _round(
    name: str, one: torch.Tensor, two: torch.Tensor, request: SweepRequest, ranks: _Ranks
) -> Iterator[tuple[int, float, int]]:
    """Bytes, seconds of a call and calls for each size."""
    timed = _timed_cpu if request.device == "cpu" else _timed_cuda
    for size in request.sizes:
        count = _numbers(size, ranks.size)
        call = _call(name, one[:count], two[:count], ranks)
        call()
        guess = ranks.most(timed(call, 2, ranks))
        least = _LEAST_CALLS[request.device]
        calls = max(least, min(_MOST_CALLS, int(request.seconds / max(guess, 1e-7))))
        yield count * _ELEMENT, ranks.most(timed(call, calls, ranks)), calls


def _numbers(size: int, ranks: int) -> int:
    """Return the number of elements in a message of about `size` bytes that the ranks can divide."""
    return max(1, size // _ELEMENT // ranks) * ranks


def _call(name: str, one: torch.Tensor, two: torch.Tensor, ranks: _Ranks) -> Callable[[], Any]:
    """One collective with a message of `one`; the result is in `one` (all_reduce, all_gather, broadcast) or `two`."""
    from torch import distributed as d

    part = one.numel() // ranks.size
    gather = getattr(d, "all_gather_single", None) or d.all_gather_into_tensor
    scatter = getattr(d, "reduce_scatter_single", None) or d.reduce_scatter_tensor

    def send_recv() -> None:
        after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
        for work in d.batch_isend_irecv([d.P2POp(d.isend, one, after), d.P2POp(d.irecv, two, before)]):
            work.wait()

    return {
        "all_reduce": lambda: d.all_reduce(one),
        "all_gather": lambda: gather(one, two[:part]),
        "reduce_scatter": lambda: scatter(two[:part], one),
        "broadcast": lambda: d.broadcast(one, src=0),
        "all_to_all": lambda: d.all_to_all_single(two, one),
        "send_recv": send_recv,
    }[name]


def _right(name: str, one: torch.Tensor, two: torch.Tensor, ranks: _Ranks) -> bool:
    """Return whether every rank gets what the collective should give, where rank r puts in r + 1."""
    count = _CHECKED // ranks.size * ranks.size
    count = min(count, one.numel())
    one, two = one[:count].fill_(ranks.rank + 1), two[:count].fill_(ranks.rank + 1)
    _call(name, one, two, ranks)()
    total = ranks.size * (ranks.size + 1) / 2
    by_rank = [r + 1.0 for r in range(ranks.size)]
    part = count // ranks.size
    found, expected = {
        "all_reduce": (one, [total] * ranks.size),
        "all_gather": (one, by_rank),
        "reduce_scatter": (two[:part].repeat(ranks.size), [total] * ranks.size),
        "broadcast": (one, [1.0] * ranks.size),
        "all_to_all": (two, by_rank),
        "send_recv": (two, [(ranks.rank - 1) % ranks.size + 1.0] * ranks.size),
    }[name]
    wrong = float((found.view(ranks.size, part).cpu() - _column(expected)).abs().max())
    return ranks.most(wrong) == 0.0


def _column(values: list[float]) -> torch.Tensor:
    import torch

    return torch.tensor(values)[:, None]


def _timed_cpu(call: Callable[[], Any], calls: int, ranks: _Ranks) -> float:
    """Seconds of a call by the clock, once all ranks are here."""
    ranks.most(0.0)
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def _timed_cuda(call: Callable[[], Any], calls: int, ranks: _Ranks) -> float:
    """Seconds of a call by events.

    The calls are queued while the GPU is kept busy, so that it never waits for the host. The first one, in which the
    ranks meet, comes before the first event.
    """
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    ranks.most(0.0)
    torch.cuda._sleep(_QUEUE_CYCLES * calls)
    call()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


if __name__ == "__main__":
    main()
