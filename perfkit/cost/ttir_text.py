"""The text of a TTIR module as blocks of operations, each value under a name of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NAMED = re.compile(r"%([\w#]+)")
_LOC = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_FUNCTION = re.compile(r"tt\.func public @(\w+)\((.*?)\)\s*(?:attributes|\{|->)", re.DOTALL)
_FOR = re.compile(r"(?:%([\w]+)(?::\d+)? = )?scf\.for %(\w+) = %([\w#]+) to %([\w#]+) step %([\w#]+)(.*)")
_CARRIED = re.compile(r"%(\w+) = %([\w#]+)")
_OPERATION = re.compile(r'(?:%(\w+)(?::\d+)? = )?"?([a-z_]+\.[\w.]+)"?(.*)')
_BLOCK = re.compile(r"\^(\w+)")
ENTRY = "bb0"


class UnknownWork(Exception):
    """Why the work of a kernel is not known, as the end of a sentence."""


@dataclass
class TtirLine:
    """An operation: what it defines, its text, and the lines of its regions."""

    name: str
    operation: str
    rest: str
    inside: list[TtirLine] = field(default_factory=list)
    otherwise: list[TtirLine] = field(default_factory=list)  # of scf.if; of scf.while what follows its condition
    carried: dict[str, str] = field(default_factory=dict)  # of a loop: its arguments' first values
    bounds: tuple[str, ...] = ()  # of a loop: variable, first, end and step

    @property
    def targets(self) -> list[str]:
        """The blocks that a branch may lead to."""
        return _BLOCK.findall(self.rest) if self.operation.startswith("cf.") else []


def parsed(text: str) -> tuple[list[str], dict[str, list[TtirLine]]]:
    """Return the arguments of the module's function, and its blocks by label, `ENTRY` the first."""
    plain = _LOC.sub("", text)
    head = _FUNCTION.search(plain)
    if head is None:
        raise UnknownWork("its TTIR holds no function")
    arguments = NAMED.findall(head[2])
    scope, used = {name: name for name in arguments}, set(arguments)
    blocks: dict[str, list[TtirLine]] = {ENTRY: []}
    block = blocks[ENTRY]
    for line in _region(iter(plain[head.end() :].splitlines())):
        if line.operation:
            block.append(line)
        elif label := _BLOCK.match(line.rest):
            block = blocks.setdefault(label[1], [])
    for lines in blocks.values():  # a block sees the values of those before it
        _rename(lines, scope, used)
    return arguments, blocks


def all_lines(lines: list[TtirLine]) -> Iterator[TtirLine]:
    """Yield `lines` and those of their regions."""
    for line in lines:
        yield line
        yield from all_lines(line.inside)
        yield from all_lines(line.otherwise)


def _region(lines: Iterator[str]) -> list[TtirLine]:
    """The operations up to the end of a region. Labels of blocks, and its end, are lines without operation."""
    found: list[TtirLine] = []
    for text in map(str.strip, lines):
        if text.startswith("}"):  # the types of a reduction come after its region
            return [*found, TtirLine("", "", text)]
        if text.startswith("^"):
            found.append(TtirLine("", "", text))
        elif loop := _FOR.match(text):
            carried = dict(_CARRIED.findall(loop[6].partition("->")[0]))
            bounds = (loop[2], loop[3], loop[4], loop[5])
            found.append(TtirLine(loop[1] or "", "scf.for", loop[6], _inner(lines)[0], [], carried, bounds))
        elif match := _OPERATION.match(text):
            line = TtirLine(match[1] or "", match[2], match[3])
            if text.endswith("{"):
                line.inside, end = _inner(lines)
                if "else" in end or "do {" in end:
                    line.otherwise, end = _inner(lines)
                line.rest += end if end.startswith("})") else ""
            found.append(line)
    return found


def _inner(lines: Iterator[str]) -> tuple[list[TtirLine], str]:
    """The operations of a region of one block, and how it ends."""
    found = _region(lines)
    end = found.pop().rest if found and not found[-1].operation else ""
    return [line for line in found if line.operation], end


def _rename(lines: list[TtirLine], scope: dict[str, str], used: set[str]) -> None:
    """Give each value a name of its own: regions next to each other use the same names for different values."""
    for line in lines:
        inner = dict(scope)
        line.carried = {_fresh(name, inner, used): _known(value, scope) for name, value in line.carried.items()}
        if line.bounds:
            first, end, step = (_known(name, scope) for name in line.bounds[1:])
            line.bounds = (_fresh(line.bounds[0], inner, used), first, end, step)
        line.rest = NAMED.sub(lambda match: "%" + _known(match[1], scope), line.rest)
        _rename(line.inside, inner, used)
        _rename(line.otherwise, dict(scope), used)
        line.name = _fresh(line.name, scope, used) if line.name else ""


def _known(name: str, scope: Mapping[str, str]) -> str:
    """The name of a value: `d#1` is a result of `d`."""
    base, hash_, number = name.partition("#")
    return scope.get(base, base) + hash_ + number


def _fresh(name: str, scope: dict[str, str], used: set[str]) -> str:
    own, number = name, 1
    while own in used:
        number += 1
        own = f"{name}_of{number}"
    used.add(own)
    scope[name] = own
    return own
