"""The work of a Triton kernel from its TTIR: FLOP of its arithmetic times the loops' trips, bytes of its tensors.

FLOP are what the program executes, lanes that a mask switches off included. Bytes are a lower bound: each tensor once,
and no more of it than the program's loads and stores reach. Of a branch that depends on data, the side with more work
counts: it is an early return for padding, or what all programs but a few do. A loop that waits for a lock counts once.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perfkit.cost.model import ITEM_BYTES, Cost, TensorSpec
from perfkit.cost.shapes import matrix_unit
from perfkit.cost.ttir_text import ENTRY, NAMED, TtirLine, UnknownWork, all_lines, parsed

_Sums = dict[str, float]  # FLOP by unit
_Moved = dict[tuple[str, bool], float]  # elements by tensor and whether they are written

_TENSOR = re.compile(r"tensor<((?:\d+x)*)(!tt\.ptr<[^>]*>|\w+)[^>]*>")
_ARITHMETIC = re.compile(
    r"arith\.(add|sub|mul|div|rem|neg|cmp|max|min|maximum|minimum|maxnum|minnum)f|math\.(?!fma)\w+|"
    r"tt\.(extern_elementwise|precise_sqrt|precise_divf)"
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
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge, "ult": operator.lt, "ule": operator.le, "ugt": operator.gt, "uge": operator.ge,
}  # fmt: skip
_TYPES = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "i64": "int64", "i32": "int32"}
_PASSED = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast")
_ENDS = ("scf.yield", "scf.condition")  # of a region
_MOST_PROGRAMS = 1024  # that are looked at one by one; of more as many, evenly
_GOLDEN = (math.sqrt(5) - 1) / 2  # whose multiples are spread evenly over 0 to 1


def ttir_cost(text: str, arguments: Mapping[str, TensorSpec | int | float], grid: Sequence[int]) -> Cost:
    """Return the cost of one launch: `arguments` by name, without constexprs; `grid` of up to three axes.

    Raises `UnknownWork` for what the text does not say: trips that depend on data, operations that are not known.
    """
    return _LaunchedKernel(text, arguments, [*grid, 1, 1][:3]).cost()


class _LaunchedKernel:
    """A kernel with the arguments of a launch."""

    def __init__(self, text: str, arguments: Mapping[str, TensorSpec | int | float], grid: Sequence[int]) -> None:
        names, self.blocks = parsed(text)
        self.arguments, self.grid = arguments, grid
        self.pointers = [name for name in names if isinstance(arguments.get(name), TensorSpec)]
        self.lines = [line for lines in self.blocks.values() for line in all_lines(lines)]
        self.defined = {line.name: line for line in self.lines if line.name}
        self.origin = {name: value for line in self.lines for name, value in line.carried.items()}
        self._known: dict[int, tuple[_Sums, _Moved]] = {}

    def cost(self) -> Cost:
        """The cost over all programs of the grid."""
        programs = math.prod(self.grid)
        looked = list(self._programs())
        flop: _Sums = {}
        moved: _Moved = {}
        for program in looked:
            done, reached = self._from(ENTRY, program, ())
            _add(flop, done, 1.0)
            _add(moved, reached, 1.0)
        scale = programs / len(looked)
        sums = [sum(self._bytes(name, amount * scale) for (name, w), amount in moved.items() if w is written)
                for written in (False, True)]  # fmt: skip
        return Cost({unit: amount * scale for unit, amount in flop.items()}, *sums)

    def _programs(self) -> Iterator[tuple[int, ...]]:
        """The programs to look at: those that differ along the axes that trips depend on, or an even choice of them."""
        bounds = {bound for line in self.lines for bound in (*line.bounds[1:], *_conditions(line))}
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

    def _axes(self, name: str, seen: frozenset[str] = frozenset()) -> set[int]:
        """The axes of the grid that a value depends on."""
        line = self.defined.get(name)
        if line is None or name in seen:
            return set()
        if line.operation == "tt.get_program_id":
            return {"xyz".index(line.rest.split()[0])}
        return {axis for one in NAMED.findall(line.rest) for axis in self._axes(one, seen | {name})}

    def _from(self, label: str, program: tuple[int, ...], above: tuple[str, ...]) -> tuple[_Sums, _Moved]:
        """The work of the block `label` and of those that follow."""
        if label in above:
            raise UnknownWork("its TTIR has a loop of branches, of which the trips are not known")
        lines = self.blocks.get(label, [])
        flop, moved = self._walk(lines, program)
        targets = lines[-1].targets if lines else []
        if targets:
            sides = [self._from(target, program, (*above, label)) for target in targets]
            chosen = self._side(sides, _conditions(lines[-1]), program)
            _add(flop, chosen[0], 1.0)
            _add(moved, chosen[1], 1.0)
        return flop, moved

    def _walk(self, lines: list[TtirLine], program: tuple[int, ...]) -> tuple[_Sums, _Moved]:
        """The work of `lines`, once."""
        flop: _Sums = {}
        moved: _Moved = {}
        for line in lines:
            times, (work, access) = self._of(line, program)
            _add(flop, work, times)
            _add(moved, access, times)
        return flop, moved

    def _of(self, line: TtirLine, program: tuple[int, ...]) -> tuple[float, tuple[_Sums, _Moved]]:
        """How often an operation runs, and its work each time."""
        if line.operation == "scf.for":
            first, end, step = (self._number(name, program) for name in line.bounds[1:])
            trips = max(0, -(-(end - first) // step))
            return trips, self._walk(line.inside, program) if trips else ({}, {})
        if line.operation == "scf.if":
            sides = [self._walk(line.inside, program), self._walk(line.otherwise, program)]
            return 1, self._side(sides, _conditions(line), program)
        if line.operation == "scf.while":
            return 1, self._waiting(line, program)
        if id(line) not in self._known:
            self._known[id(line)] = _of_operation(line), self._access(line)
        return 1, self._known[id(line)]

    def _waiting(self, line: TtirLine, program: tuple[int, ...]) -> tuple[_Sums, _Moved]:
        """The work of a loop that waits for a lock, whose trips change no figure: atomics are all that it does."""
        parts = [*line.inside, *line.otherwise]
        flop, moved = self._walk(parts, program)
        if flop or any(one.operation in ("tt.load", "tt.store") for one in all_lines(parts)):
            raise UnknownWork("its TTIR has scf.while, of which the trips are not known")
        return flop, moved

    def _side(
        self, sides: list[tuple[_Sums, _Moved]], conditions: Sequence[str], program: tuple[int, ...]
    ) -> tuple[_Sums, _Moved]:
        """The side of a branch that a program takes; that with more work where its condition depends on data."""
        try:
            if conditions:
                return sides[0 if self._number(conditions[0], program) else 1]
        except UnknownWork:
            pass
        return max(sides, key=lambda side: (sum(side[0].values()), sum(side[1].values())))

    def _access(self, line: TtirLine) -> _Moved:
        """The elements that a load or store reaches, by tensor and whether they are written."""
        if line.operation not in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
            if line.operation.startswith(("tt.descriptor", "tt.experimental")):
                raise UnknownWork(f"its TTIR has {line.operation}, which is not known")
            return {}
        pointer = NAMED.findall(line.rest)[0]
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
            name = NAMED.findall(line.rest)[0]
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
        operands = NAMED.findall(line.rest)
        if kind == "cmpi" and "tensor<" not in line.rest and (word := line.rest.split()[0].rstrip(",")) in _COMPARED:
            a, b = (self._number(operand, program) for operand in operands[:2])
            return int(_COMPARED[word](a, b))
        if kind in ("extsi", "extui", "trunci", "index_cast"):
            return self._number(operands[0], program)
        if kind in _INTEGER and "tensor<" not in line.rest:
            a, b = (self._number(operand, program) for operand in operands[:2])
            if b or not kind.startswith(("div", "rem", "floor", "ceil")):
                return int(_INTEGER[kind](a, b))
        raise UnknownWork(f"the value of %{name} ({line.operation}) is not known")


def _add(sums: dict[Any, float], found: Mapping[Any, float], times: float) -> None:
    for key, amount in found.items():
        sums[key] = sums.get(key, 0.0) + times * amount


def _conditions(line: TtirLine) -> list[str]:
    """The value that a branch depends on."""
    return NAMED.findall(line.rest)[:1] if line.operation in ("scf.if", "cf.cond_br") else []


def _elements(types: str) -> int:
    """The elements of the last tensor in `types`; 1 for a scalar."""
    found = _TENSOR.findall(types)
    return math.prod(int(n) for n in found[-1][0].split("x") if n) if found else 1


def _unit(types: str) -> str:
    """The vector unit of the last type in `types`; "" for whole numbers."""
    found = _TENSOR.findall(types)
    word = found[-1][1] if found else types.split()[-1]
    return f"vector_{_TYPES[word]}" if word in ("f64", "f32", "f16", "bf16") else ""


def _of_operation(line: TtirLine) -> dict[str, float]:
    """FLOP of an operation that is not a loop; none where it only moves or counts."""
    if line.operation in ("tt.reduce", "tt.scan"):
        return _of_reduction(line)
    if line.operation == "tt.call" or (line.operation.startswith("scf.") and line.operation not in _ENDS):
        raise UnknownWork(f"its TTIR has {line.operation}, of which the work is not known")
    if line.operation == "tt.dot":
        return _of_product(line)
    if "dot" in line.operation:
        raise UnknownWork(f"its TTIR has {line.operation}, which is not known")
    if not (_ARITHMETIC.fullmatch(line.operation) or line.operation == "math.fma"):
        return {}
    types = line.rest.rpartition(" : ")[2]
    unit = _unit(types)
    return {unit: _elements(types) * (2.0 if line.operation == "math.fma" else 1.0)} if unit else {}


def _of_product(line: TtirLine) -> dict[str, float]:
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


def _of_reduction(line: TtirLine) -> dict[str, float]:
    """FLOP of a reduction or scan: its region for each element but the first along the axis."""
    before, _, after = line.rest.rpartition(" -> ")
    types = before.rpartition(" : ")[2]
    combined = _elements(types) - (_elements(after) if line.operation == "tt.reduce" else 0)
    found: dict[str, float] = {}
    for one in line.inside:
        for unit, amount in _of_operation(one).items():
            found[unit] = found.get(unit, 0.0) + amount * combined
    return found
