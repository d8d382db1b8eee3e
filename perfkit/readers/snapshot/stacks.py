"""The stacks of a snapshot, each once. Frames come as objects of their own at each event, or as shared ones."""

from __future__ import annotations

import re
from typing import Any

from perfkit.memory.records import Stack, StackFrame

_DEEPEST = 1000  # frames of a stack that are kept
_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")


class StackNumbers:
    """Gives each different stack a number: its place in `all`. Number 0 is the empty one."""

    def __init__(self) -> None:
        self.all: list[Stack] = [()]
        self._known: dict[Stack, int] = {(): 0}
        self._of_objects: dict[tuple[int, ...], int] = {}
        self._frames: dict[int, StackFrame] = {}
        self._alive: list[Any] = []

    def number(self, frames: Any) -> int:
        """The number of the stack with these `frames`; 0 for an empty one."""
        if type(frames) is not list or not frames:
            return 0
        frames = frames[:_DEEPEST]
        key = tuple(map(id, frames))
        found = self._of_objects.get(key)
        if found is None:
            self._alive += frames  # as long as the numbers of objects are used, none may get that of another
            stack = tuple(self._frame(frame) for frame in frames)
            found = self._known.setdefault(stack, len(self.all))
            if found == len(self.all):
                self.all.append(stack)
            self._of_objects[key] = found
        return found

    def forget(self) -> None:
        """The objects of the frames seen until now go: forget their identities."""
        self._of_objects.clear()
        self._frames.clear()
        self._alive.clear()

    def _frame(self, one: Any) -> StackFrame:
        found = self._frames.get(id(one))
        if found is None:
            found = self._frames[id(one)] = _read(one)
        return found


def _read(one: Any) -> StackFrame:
    if type(one) is not dict:
        return StackFrame("", 0, "")
    file, line, name = one.get("filename"), one.get("line"), one.get("name")
    file = file if isinstance(file, str) else ""
    if _WINDOWS.match(file):
        file = file.replace("\\", "/")  # `phases` looks for the paths of PyTorch's files
    return StackFrame(file, line if type(line) is int else 0, name if isinstance(name, str) else "")
