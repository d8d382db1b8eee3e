"""Launches whose processes start, and end, next to each other: each waits after its second step, until all do.

Most of a short program is its start and its end: imports, the context of a GPU, a compiler. One after the other, the
sixteen processes of eight launches take that long sixteen times. What is timed is timed alone, as ever: the others wait
for their turn, or for the last one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from perfkit.capture.agent.order import CHILDREN, DEVICE, FREE, HOST, Order
from perfkit.capture.agent.recording.waiting import AFTER, GO, LEAVE, TIMED, WAITING
from perfkit.hardware.cpu import read_cpu
from perfkit.run import memory
from perfkit.tries.running import Ran, Running
from perfkit.tries.trees import Tree

_ROOM = 0.8  # of the free memory, that the processes may fill together


def at_once(alone: Sequence[Ran], order: Order) -> int:
    """Return how many launches may start at the same time, by a run of each side alone; 0 where no process may wait.

    Ranks that wait for one of them keep their GPUs busy, and child processes that load data would meanwhile fill their
    queues, from which the timed steps then take.
    """
    takes = [one.result.takes for one in alone]
    if order.whole or order.warmup <= AFTER or any(one.processes != 1 for one in alone):
        return 0
    if any(not one.get(HOST) or one.get(CHILDREN) for one in takes):
        return 0
    free = memory.available_bytes()
    rooms = [read_cpu().usable, _fitting([one[HOST] for one in takes], free)]
    if any(DEVICE in one for one in takes):
        # Each was alone when it looked: what it took is free again.
        beside = min(one.get(FREE, 0.0) + one.get(DEVICE, 0.0) for one in takes)
        rooms.append(_fitting([one.get(DEVICE, 0.0) for one in takes], beside))
    return min(rooms) // len(alone)


def _fitting(needs: Sequence[float], free: float | None) -> int:
    return int(_ROOM * (free or 0.0) / max(needs))


def run(
    command: Sequence[str], sides: Sequence[Tree], orders: Sequence[Sequence[int]], order: Order,
    places: Sequence[Path], limit_s: float,
) -> list[list[Ran]]:  # fmt: skip
    """Return the runs of both sides, by side, of a launch for each of `orders`: they start at the same time, and then
    have their turns in this order. Fewer launches where a process fails or does not come to its turn in `limit_s`.

    `places` are folders for the launches.
    """
    with contextlib.ExitStack() as stack:
        started = [
            {side: stack.enter_context(Running(command, sides[side], order, place / str(side), waits=True))
             for side in turns}
            for turns, place in zip(orders, places, strict=True)
        ]  # fmt: skip
        if not all(one.comes_to(WAITING, limit_s) for launch in started for one in launch.values()):
            return []
        timed = sum(1 for _ in takewhile(bool, (_timed(*one, limit_s) for one in zip(orders, started, strict=True))))
        for one in (one for launch in started[:timed] for one in launch.values()):
            one.tell(LEAVE)  # all at once: to end takes a large program seconds, too
        made = ([launch[side].ended(limit_s) for side in range(len(sides))] for launch in started[:timed])
        return list(takewhile(lambda pair: not any(one.problem for one in pair), made))


def _timed(turns: Sequence[int], launch: Mapping[int, Running], limit_s: float) -> bool:
    """Let the processes of a launch have their turns; return whether all were timed."""
    for side in turns:
        launch[side].tell(GO)
        if not launch[side].comes_to(TIMED, limit_s):
            return False
    return True
