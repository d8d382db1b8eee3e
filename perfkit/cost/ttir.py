"""The work of a Triton kernel from its TTIR: FLOP of its arithmetic times the loops' trips, bytes of its tensors.

FLOP are what the program executes, lanes that a mask switches off included. Bytes are a lower bound: each tensor once,
and no more of it than the program's loads and stores reach.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfkit.cost.model import ITEM_BYTES, Cost, TensorSpec
from perfkit.cost.shapes import matrix_unit

_LOC = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_FUNCTION = re.compile(r"tt\.func public @(\w+)\((.*?)\)\s*(?:attributes|\{|->)", re.DOTALL)
_NAMED = re.compile(r"%([\w#]+)")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(!tt\.ptr<[^>]*>|\w+)[^>]*>")
_FOR = re.compile(r"(?:%([\w]+)(?::\d+)? = )?scf\.for %(\w+) = %([\w#]+) to %([\w#]+) step %([\w#]+)(.*)")
_CARRIED = re.compile(r"%(\w+) = %([\w#]+)")
_OPERATION = re.compile(r'(?:%(\w+)(?::\d+)? = )?"?([a-z_]+\.[\w.]+)"?(.*)')
_ARITHMETIC = re.compile(
    r"arith\.(add|sub|mul|div|rem|neg|cmp|max|min|maximum|minimum|maxnum|minnum)f|math\.(?!fma)\w+"
)
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": lambda a, b: a // b if (a < 0) == (b < 0) else -(-a // b),
    "divui": lambda a, b: a // b,
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "remsi": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "remui": lambda a, b: a % b,
    "minsi": min,
    "maxsi": max,
    "minui": min,
    "maxui": max,
}
_TYPES = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "i64": "int64", "i32": "int32"}
_PASSED = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast")
_MOST_PROGRAMS = 1024  # that are looked at one by one; of more as many, evenly
_GOLDEN = (math.sqrt(5) - 1) / 2  # whose multiples are spread evenly over 0 to 1


class UnknownWork(Exception):
    """Why the work of a kernel is not known, as the end of a sentence."""


@dataclass
class _Line:
    """An operation: what it defines, its text, and the lines of its regions."""

    name: str
    operation: str
    rest: str
    inside: list[_Line] = field(default_factory=list)
    carried: dict[str, str] = field(default_factory=dict)  # of a loop: its arguments' first values
    bounds: tuple[str, ...] = ()  # of a loop: variable, first, end and step


def ttir_cost(text: str, arguments: Mapping[str, TensorSpec | int | float], grid: Sequence[int]) -> Cost:
    """Return the cost of one launch: `arguments` by name, without constexprs; `grid` of up to three axes.

    Raises `UnknownWork` for what the text does not say: trips that depend on data, operations that are not known.
    """
    return _Program(text, arguments, [*grid, 1, 1][:3]).cost()


class _Program:
    """A kernel with the arguments of a launch."""

    def __init__(self, text: str, arguments: Mapping[str, TensorSpec | int | float], grid: Sequence[int]) -> None:
        plain = _LOC.sub("", text)
        head = _FUNCTION.search(plain)
        if head is None:
            raise UnknownWork("its TTIR holds no function")
        self.arguments, self.grid = arguments, grid
        self.pointers = [n for n in _NAMED.findall(head[2]) if isinstance(arguments.get(n), TensorSpec)]
        self.lines = _parsed(iter(plain[head.end() :].splitlines()))
        self.defined: dict[str, _Line] = {}
        self.origin: dict[str, str] = {}  # loops' arguments and variables
        self._known: dict[int, tuple[dict[str, float], dict[tuple[str, bool], float]]] = {}
        self._note(self.lines)

    def cost(self) -> Cost:
        """The cost over all programs of the grid."""
        programs = math.prod(self.grid)
        looked = list(self._programs())
        flop: dict[str, float] = {}
        moved: dict[tuple[str, bool], float] = {}
        for program in looked:
            self._walk(self.lines, 1.0, program, flop, moved)
        scale = programs / len(looked)
        sums = [sum(self._bytes(name, amount * scale) for (name, w), amount in moved.items() if w is written)
                for written in (False, True)]  # fmt: skip
        return Cost({unit: amount * scale for unit, amount in flop.items()}, *sums)

    def _programs(self) -> Iterator[tuple[int, ...]]:
        """The programs to look at: those that differ along the axes that trips depend on, or an even choice of them."""
        bounds = {bound for line in _all(self.lines) for bound in line.bounds[1:]}
        axes = sorted({axis for bound in bounds for axis in self._axes(bound)})
        sizes = [size if axis in axes else 1 for axis, size in enumerate(self.grid)]
        count = math.prod(sizes)
        for place in range(min(count, _MOST_PROGRAMS)):
            at = place if count <= _MOST_PROGRAMS else int(place * _GOLDEN % 1 * count)
            yield at % sizes[0], at // sizes[0] % sizes[1], at // (sizes[0] * sizes[1])

    def _bytes(self, name: str, elements: float) -> float:
        """The bytes of a tensor that accesses of that number of elements reach at most."""
        tensor = self.arguments[name]
        assert isinstance(tensor, TensorSpec)
        return float(min(tensor.nbytes, elements * ITEM_BYTES[tensor.dtype]))

    def _note(self, lines: list[_Line]) -> None:
        for line in lines:
            if line.name:
                self.defined[line.name] = line
            self.origin |= line.carried
            self._note(line.inside)

    def _axes(self, name: str, seen: frozenset[str] = frozenset()) -> set[int]:
        """The axes of the grid that a value depends on."""
        line = self.defined.get(name)
        if line is None or name in seen:
            return set()
        if line.operation == "tt.get_program_id":
            return {"xyz".index(line.rest.split()[0])}
        return {axis for one in _NAMED.findall(line.rest) for axis in self._axes(one, seen | {name})}

    def _walk(
        self, lines: list[_Line], times: float, program: tuple[int, ...],
        flop: dict[str, float], moved: dict[tuple[str, bool], float],
    ) -> None:  # fmt: skip
        """Add the work of `lines`, which run `times` in a program."""
        for line in lines:
            if line.operation == "scf.for":
                first, end, step = (self._number(name, program) for name in line.bounds[1:])
                trips = max(0, -(-(end - first) // step))
                self._walk(line.inside, times * trips, program, flop, moved)
                continue
            if id(line) not in self._known:
                self._known[id(line)] = _of_operation(line), self._access(line)
            work, access = self._known[id(line)]
            _add(flop, work, times)
            _add(moved, access, times)

    def _access(self, line: _Line) -> dict[tuple[str, bool], float]:
        """The elements that a load or store reaches, by tensor and whether they are written."""
        if line.operation not in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
            if line.operation.startswith(("tt.descriptor", "tt.experimental")):
                raise UnknownWork(f"its TTIR has {line.operation}, which is not known")
            return {}
        pointer = _NAMED.findall(line.rest)[0]
        tensor = self._root(pointer)
        elements = float(_elements(line.rest))
        kinds = {"tt.load": (False,), "tt.store": (True,)}.get(line.operation, (False, True))
        return {(tensor, written): elements for written in kinds}

    def _root(self, name: str) -> str:
        """The argument that a pointer comes from."""
        for _ in range(10_000):
            if name in self.pointers:
                return name
            name = self.origin.get(name, name)
            if name in self.pointers:
                return name
            line = self.defined.get(name)
            if line is None or not line.operation.startswith(_PASSED):
                break
            name = _NAMED.findall(line.rest)[0]
        raise UnknownWork(f"the tensor of %{name} is not known")

    def _number(self, name: str, program: tuple[int, ...]) -> int:
        """The value of an integer. Raises `UnknownWork` for one that the launch does not say."""
        given = self.arguments.get(name)
        if isinstance(given, int):
            return given
        line = self.defined.get(name)
        if line is None:
            raise UnknownWork(f"the value of %{name} is not known")
        kind = line.operation.removeprefix("arith.")
        if kind == "constant" and (found := re.match(r"\s*(-?\d+) :", line.rest)):
            return int(found[1])
        if line.operation in ("tt.get_program_id", "tt.get_num_programs"):
            axis = "xyz".index(line.rest.split()[0])
            return program[axis] if line.operation == "tt.get_program_id" else self.grid[axis]
        operands = _NAMED.findall(line.rest)
        if kind in ("extsi", "extui", "trunci", "index_cast"):
            return self._number(operands[0], program)
        if kind in _INTEGER and "tensor<" not in line.rest:
            a, b = (self._number(one, program) for one in operands[:2])
            if b or not kind.startswith(("div", "rem", "floor", "ceil")):
                return int(_INTEGER[kind](a, b))
        raise UnknownWork(f"the value of %{name} ({line.operation}) is not known")


def _parsed(lines: Iterator[str]) -> list[_Line]:
    """The operations up to the end of a region."""
    found: list[_Line] = []
    for text in map(str.strip, lines):
        if text.startswith("}"):  # the types of a reduction come after its region
            return [*found, _Line("", "", text)] if text.startswith("})") else found
        if loop := _FOR.match(text):
            carried = dict(_CARRIED.findall(loop[6].partition("->")[0]))
            made = _Line(
                loop[1] or "", "scf.for", loop[6], _parsed(lines), carried, (loop[2], loop[3], loop[4], loop[5])
            )
            found.append(made)
        elif match := _OPERATION.match(text):
            line = _Line(match[1] or "", match[2], match[3])
            if text.endswith("{"):
                line.inside = _parsed(lines)
                if line.inside and line.inside[-1].rest.startswith("})"):
                    line.rest += line.inside.pop().rest
            found.append(line)
    return found


def _add(sums: dict[Any, float], found: Mapping[Any, float], times: float) -> None:
    for key, amount in found.items():
        sums[key] = sums.get(key, 0.0) + times * amount


def _all(lines: list[_Line]) -> Iterator[_Line]:
    for line in lines:
        yield line
        yield from _all(line.inside)


def _elements(types: str) -> int:
    """The elements of the last tensor in `types`; 1 for a scalar."""
    found = _TENSOR.findall(types)
    return math.prod(int(n) for n in found[-1][0].split("x") if n) if found else 1


def _unit(types: str) -> str:
    """The vector unit of the last type in `types`; "" for whole numbers."""
    found = _TENSOR.findall(types)
    word = found[-1][1] if found else types.split()[-1]
    return f"vector_{_TYPES[word]}" if word in ("f64", "f32", "f16", "bf16") else ""


def _of_operation(line: _Line) -> dict[str, float]:
    """FLOP of an operation that is not a loop; none where it only moves or counts."""
    if line.operation in ("tt.reduce", "tt.scan"):
        return _of_reduction(line)
    if line.operation.startswith("scf.") and line.operation != "scf.yield":
        raise UnknownWork(f"its TTIR has {line.operation}, of which the trips are not known")
    if line.operation == "tt.dot":
        return _of_product(line)
    if "dot" in line.operation:
        raise UnknownWork(f"its TTIR has {line.operation}, which is not known")
    if not (_ARITHMETIC.fullmatch(line.operation) or line.operation == "math.fma"):
        return {}
    types = line.rest.rpartition(" : ")[2]
    unit = _unit(types)
    return {unit: _elements(types) * (2.0 if line.operation == "math.fma" else 1.0)} if unit else {}


def _of_product(line: _Line) -> dict[str, float]:
    """2·M·N·K of a product, on the matrix unit of its operands."""
    types = _TENSOR.findall(line.rest.rpartition(" : ")[2])
    (left, word), (right, _) = types[0], types[1]
    rows = [int(n) for n in left.split("x") if n]
    columns = [int(n) for n in right.split("x") if n]
    dtype = _TYPES.get(word, "fp8" if word.startswith("f8") else "")
    if not dtype:
        raise UnknownWork(f"its products of {word} are not known")
    precision = "tf32" if "inputPrecision = tf32" in line.rest else "fp32"
    return {matrix_unit(dtype, precision): 2.0 * math.prod(rows) * columns[-1]}


def _of_reduction(line: _Line) -> dict[str, float]:
    """FLOP of a reduction or scan: its region for each element but the first along the axis."""
    before, _, after = line.rest.rpartition(" -> ")
    types = before.rpartition(" : ")[2]
    combined = _elements(types) - (_elements(after) if line.operation == "tt.reduce" else 0)
    found: dict[str, float] = {}
    for one in line.inside:
        for unit, amount in _of_operation(one).items():
            found[unit] = found.get(unit, 0.0) + amount * combined
    return found
