"""Answers of at most `LARGEST` bytes: text in pages, texts without control characters, and the next call of a tool."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from perfkit.agents.process import CommandResult
from perfkit.errors import PerfkitError
from perfkit.render.cells import clean, clean_all

LARGEST = 4096
_AROUND = 300  # bytes of an answer that are not its page
_SENTENCE = 2000  # characters of an error
_CALLS = {("perfkit", "explain"): "explain", ("perfkit", "report"): "select", ("perfkit", "history"): "history"}


class said:
    """A block whose `PerfkitError` becomes the tool's error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PerfkitError):
            raise ToolError(clean(str(error), _SENTENCE)) from None


def checked(ended: CommandResult) -> CommandResult:
    """Return a command that ended well. Raises `ToolError` with the last line of what another said."""
    if ended.code:
        lines = [line for line in ended.said.splitlines() if line.strip()]
        raise ToolError(clean(lines[-1] if lines else f"perfkit ended with code {ended.code}.", _SENTENCE))
    return ended


def as_json(value: dict[str, Any]) -> str:
    """Return an answer as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def page(text: str, number: int, **more: Any) -> str:
    """Return page `number` of a text, and how many there are. Raises `ToolError` for one that it does not have."""
    pages = _pages(text)
    if not 0 <= number < len(pages):
        raise ToolError(f"There is no page {number}: the answer has pages 0 to {len(pages) - 1}.")
    return as_json({**more, "page": number, "pages": len(pages), "text": pages[number]})


def _pages(text: str) -> list[str]:
    """The text in parts that fit into an answer as strings of JSON."""
    found, begin, size = list[str](), 0, 0
    for at, character in enumerate(text):
        length = len(json.dumps(character, ensure_ascii=False).encode()) - 2
        if size + length > LARGEST - _AROUND:
            found.append(text[begin:at])
            begin, size = at, 0
        size += length
    return [*found, text[begin:]]


def cleaned(text: str) -> str:
    """JSON with its texts made safe to show: control characters become escapes that stay when it is read."""
    return as_json(clean_all(json.loads(text)))


def together(lines: Sequence[str]) -> str:
    """Return brief answers, a line of JSON each, as one: of several those that fit, and how many do not."""
    found = [_with_calls(json.loads(line)) for line in lines]
    if len(found) == 1:
        return as_json(found[0])
    kept = len(found)
    while len((text := as_json({"answers": found[:kept], "left_out": len(found) - kept})).encode()) > LARGEST:
        kept -= 1
    return text


def _with_calls(answer: dict[str, Any]) -> dict[str, Any]:
    """A brief answer with calls of tools where it names commands of a shell: the client may have none."""
    for one in [*answer.get("findings", ()), answer]:
        if "more" in one:
            commands = [one["more"]] if isinstance(one["more"], str) else one["more"]
            calls = [call for command in commands if (call := _call(command))]
            one["more"] = calls if one is answer else "".join(calls)
    return answer


def _call(command: str) -> str:
    """The call that does what a command does: `select(path='runs/a', parts='kernels[:10]')`; "" where none does."""
    words = shlex.split(command)
    name = _CALLS.get((words[0], words[1]), "")
    given = {"explain": ("finding",), "select": ("path", "parts"), "history": ()}.get(name, ())
    values = [word for word in words[2:] if word not in ("--select", "--json")]
    if not name or len(values) != len(given):
        return ""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in zip(given, values, strict=True))})"
