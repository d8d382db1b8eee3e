"""llm.c's evaluation data: questions with several endings, one of them right (HellaSwag).

header  [0] 20240522, [1] 1, [2] number of examples, [3] bytes of the longest
body    uint16 throughout; for each example: 65535, its bytes, its number, the right completion, the number of
        completions; then length and tokens of the context, and of each completion
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfkit.errors import InputError
from perfkit.workloads.llmc import header as files

_VERSIONS = {1: "uint16"}
_START = 65535
_HEAD = 5  # words before the context's length


@dataclass(frozen=True)
class Example:
    """A context, its possible completions, all as tokens, and which completion is right."""

    context: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    label: int


def read_evaluation(path: Path) -> list[Example]:
    """The examples in `path`. Raises `InputError`, naming the example, when the file is something else or damaged."""
    header = files.read_header(path, files.EVALUATION)
    files.check_version(path, header, _VERSIONS)
    stream = np.fromfile(path, dtype="<u2", offset=files.BYTES).tolist()
    examples, at = [], 0
    for number in range(int(header[2])):
        size = stream[at + 1] // 2 if at + 1 < len(stream) else 0
        example = _parsed(stream[at : at + size], number)
        if example is None:
            raise InputError(f"{path} is damaged at example {number} of {int(header[2]):,}.", "Make it again.")
        examples.append(example)
        at += size
    if at != len(stream):
        raise InputError(f"{path} is damaged: {2 * (len(stream) - at):,} bytes follow its last example.")
    return examples


def write_evaluation(path: Path, examples: Sequence[Example]) -> None:
    """Write `examples`. Raises `InputError` for one that the format cannot hold, `RunFailed` without space."""
    streams = [_stream(example, number) for number, example in enumerate(examples)]
    longest = max((2 * len(stream) for stream in streams), default=0)
    header = files.make_header(files.EVALUATION, 1, len(examples), longest)
    body = np.array([word for stream in streams for word in stream], dtype="<u2").tobytes()
    files.write(path, header, lambda file: file.write(body))


def _stream(example: Example, number: int) -> list[int]:
    parts = [example.context, *example.completions]
    lists = [word for part in parts for word in (len(part), *part)]
    words = [_START, 2 * (_HEAD + len(lists)), number, example.label, len(example.completions), *lists]
    fits = all(0 <= word < _START for word in words[1:]) and 0 <= example.label < len(example.completions)
    if not fits:
        raise InputError(
            f"Example {number} does not fit llm.c's evaluation data.",
            "It holds fewer than 65535 bytes an example, tokens below 65535, and a label that names a completion.",
        )
    return words


def _parsed(words: list[int], number: int) -> Example | None:
    """The example in `words`, or None when they are not one."""
    if len(words) < _HEAD + 1 or (words[0], words[1] // 2, words[2]) != (_START, len(words), number):
        return None
    label, count = words[3:_HEAD]
    lists, at = [], _HEAD
    for _ in range(1 + count):
        if at >= len(words) or at + 1 + words[at] > len(words):
            return None
        lists.append(tuple(words[at + 1 : at + 1 + words[at]]))
        at += 1 + words[at]
    if at != len(words) or label >= count:
        return None
    return Example(lists[0], tuple(lists[1:]), label)
