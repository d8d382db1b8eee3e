"""The lines of a kernel's own file that call what was inlined from a library's header.

An instruction inside `atomicAdd` of CUDA names the header's line. Reports do not say from where it was inlined; where
both files are imported, the function's name and the lines of the kernel leave often one call alone.
"""

from __future__ import annotations

import re

from perfkit.instructions.results import KernelCode

Line = tuple[str, int]
_LIBRARY = re.compile(r"[\\/](include|site-packages)[\\/]")
_DEFINED = re.compile(r"\b(\w+)\s*\((?!.*;\s*$)")
_ABOVE = 12  # lines of a header that are looked at for the head of a function


def callers(code: KernelCode) -> dict[Line, Line]:
    """Return the line of the kernel that calls each line of a library's header; only where one line alone does."""
    lines = dict.fromkeys((instruction.file, instruction.line) for instruction in code.instructions if instruction.line)
    own = [line for line in lines if not _LIBRARY.search(line[0])]
    foreign = [line for line in lines if _LIBRARY.search(line[0])]
    if not own or not foreign:
        return {}
    files = [file for file, _ in own]
    file = max(dict.fromkeys(files), key=files.count)
    numbers = [number for name, number in own if name == file]
    text = code.sources.get(file, "").splitlines()[: max(numbers)]
    found = {}
    for line in foreign:
        name = _function(code, line)
        call = re.compile(rf"\b{re.escape(name)}\s*\(")
        calls = [at for at in range(min(numbers), len(text) + 1) if name and call.search(text[at - 1])]
        if len(calls) == 1:
            found[line] = (file, calls[0])
    return found


def _function(code: KernelCode, line: Line) -> str:
    """The name of the function around a line of a header; "" where it is not to be seen."""
    text = code.sources.get(line[0], "").splitlines()
    for number in range(line[1] - 1, max(0, line[1] - 1 - _ABOVE), -1):
        words = text[number - 1] if number <= len(text) else ""
        if (match := _DEFINED.search(words)) and not words.lstrip().startswith(("#", "//", "return", "if", "asm")):
            return match[1]
    return ""
