"""The machine code of a C kernel, as objdump shows it (x86-64).

What a symbol runs is the function of that name, its parallel regions (`NAME._omp_fn.0`), and the functions of the same
library that any of these calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.errors import RunFailed, Unavailable
from perfkit.inspection.results import Inspected

_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(\S+) *(.*?)(?: *#.*)?$")
_TARGET = re.compile(r"([0-9a-f]+) <([^>+]+)(?:\+0x[0-9a-f]+)?>")
_FUSED = re.compile(r"vfn?m(add|sub|addsub|subadd)\d*[ps][sdh]")
_ARITHMETIC = re.compile(
    r"v?(add|sub|mul|div|min|max|sqrt|rsqrt14|rcp14|rsqrt|rcp|round|rndscale|scalef|getexp|getmant)([ps])[sdh]"
)
_MOVE = re.compile(r"v?p?(mov|broadcast|maskmov|gather|expand|compress)|lddqu")
_IN_MEMORY = re.compile(r"\)(\{%k[0-7]\})?$")  # the destination, which stands last
_WIDTHS = (("%zmm", 512), ("%ymm", 256), ("%xmm", 128))
_PREFIXES = ("rep", "lock", "notrack", "bnd", "repz", "data16", "cs")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class MachineInstruction:
    """One instruction: address, mnemonic, operands in AT&T order (the destination last)."""

    address: int
    name: str
    operands: str

    @property
    def kind(self) -> str:
        """vector or scalar multiply-add or arithmetic, load, store, jump, call, or other."""
        match = _FUSED.fullmatch(self.name) or _ARITHMETIC.fullmatch(self.name)
        if match:
            packed = self.name[-2] == "p"
            what = "multiply-add" if _FUSED.fullmatch(self.name) else "arithmetic"
            return f"{'vector' if packed else 'scalar'} {what}"
        if self.name.startswith("j"):
            return "jump"
        if self.name.startswith("call"):
            return "call"
        if _MOVE.match(self.name) and "(" in self.operands:
            return "store" if _IN_MEMORY.search(self.operands) else "load"
        return "other"

    @property
    def width(self) -> int:
        """Bits of the widest vector register that it names; 0 for none."""
        return next((bits for register, bits in _WIDTHS if register in self.operands), 0)


@dataclass
class Code:
    """The instructions of one function."""

    name: str
    instructions: list[MachineInstruction] = field(default_factory=list)

    def loops(self) -> Iterator[list[MachineInstruction]]:
        """Innermost loops: from the target of a backward jump to it, with no other backward jump between."""
        jumps = [(i, _target(i)) for i in self.instructions if i.kind == "jump"]
        backward = [(target, i.address) for i, target in jumps if target is not None and target <= i.address]
        first = self.instructions[0].address if self.instructions else 0
        for start, end in backward:
            inside = [b for b in backward if b != (start, end) and start <= b[0] and b[1] <= end]
            if start >= first and not inside:
                yield [i for i in self.instructions if start <= i.address <= end]


def _target(jump: MachineInstruction) -> int | None:
    match = _TARGET.search(jump.operands)
    return int(match[1], 16) if match else None


def parse(text: str) -> dict[str, Code]:
    """Functions by name, of what `objdump -d --no-show-raw-insn` prints."""
    found: dict[str, Code] = {}
    current: Code | None = None
    for line in text.splitlines():
        start = _FUNCTION.match(line)
        if start:
            current = found.setdefault(start[1], Code(start[1]))
            continue
        one = _INSTRUCTION.match(line)
        if one and current is not None:
            name, operands = one[2], one[3]
            while name in _PREFIXES and operands:
                name, _, operands = operands.partition(" ")
            current.instructions.append(MachineInstruction(int(one[1], 16), name, operands.strip()))
    return found


def reached(functions: Mapping[str, Code], symbol: str) -> list[Code]:
    """Return the functions that `symbol` runs: itself, its parallel regions, and functions that these call or pass
    on."""
    todo, seen = [symbol], []
    while todo:
        name = todo.pop(0)
        if name in seen or name not in functions:
            continue
        seen.append(name)
        todo += [n for n in functions if n.startswith(f"{name}.")]
        for i in functions[name].instructions:
            match = _TARGET.search(i.operands)
            if match and "@" not in match[2] and (i.kind in ("call", "jump") or i.name.startswith("lea")):
                todo.append(match[2])
    return [functions[name] for name in seen]


def inspect_library(library: Path, symbol: str, title: str) -> Inspected:
    """The facts of `symbol` in a shared library. Raises `Unavailable` without objdump, `RunFailed` when it fails."""
    functions = parse(disassembled(library))
    codes = reached(functions, symbol)
    if not codes:
        raise RunFailed(f"{library} holds no function called {symbol}.", "Correct its symbol in the Python file.")
    every = [i for code in codes for i in code.instructions]
    mix = Counter(i.kind for i in every)
    if not any(i.name in ("ret", "retq") or i.name.startswith("mov") for i in every):
        raise Unavailable("Only x86-64 code can be inspected so far, and this is another machine's.")
    facts = [
        ("instruction set", _instruction_set(every)),
        ("vector width", _widths(every)),
        ("instructions", f"{len(every):,} in {len(codes)} function{'s' * (len(codes) > 1)}: {_counts(mix)}"),
        ("calls", _calls(every)),
    ]
    loops = sorted((loop for code in codes for loop in code.loops()), key=_vectors, reverse=True)
    facts += [(f"innermost loop {n}", _loop(loop)) for n, loop in enumerate(_distinct(loops)[:4], 1)]
    notes = ["Instructions are counted where they stand, not as often as they run: innermost loops run most."]
    return Inspected(title=title, facts=[f for f in facts if f[1]], notes=notes, listing=_listing(codes))


def disassembled(library: Path) -> str:
    """Return objdump's listing of a library."""
    tool = shutil.which("objdump")
    if tool is None:
        raise Unavailable("objdump, which shows machine code, is missing here.", "Install it: apt install binutils.")
    command = [tool, "-d", "--no-show-raw-insn", str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"objdump did not finish {library} in {_TIMEOUT_S} seconds.") from error
    if done.returncode:
        raise RunFailed(f"objdump cannot read {library}: {done.stderr.strip()[:300]}.")
    return done.stdout


def _instruction_set(instructions: Sequence[MachineInstruction]) -> str:
    operands = [i.operands for i in instructions]
    if any("%zmm" in o or re.search(r"%k[1-7]", o) for o in operands):
        return "AVX-512"
    if any("%ymm" in o for o in operands) or any(_FUSED.fullmatch(i.name) for i in instructions):
        return "AVX2 with FMA" if any(_FUSED.fullmatch(i.name) for i in instructions) else "AVX"
    if any(i.name.startswith("v") and "%xmm" in i.operands for i in instructions):
        return "AVX (128-bit)"
    return "SSE" if any("%xmm" in o for o in operands) else "integer only"


def _widths(instructions: Sequence[MachineInstruction]) -> str:
    """Bits of the vector arithmetic, the most common first."""
    counts = Counter(i.width for i in instructions if i.kind.startswith("vector"))
    if not counts:
        return "no vector arithmetic"
    return ", ".join(f"{bits} bits ({n})" for bits, n in counts.most_common())


def _counts(mix: Counter[str]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in mix.most_common())


def _calls(instructions: Sequence[MachineInstruction]) -> str:
    """Functions outside the library that are called, such as tanhf: each call in a loop is a loop that stays scalar."""
    targets = [_TARGET.search(i.operands) for i in instructions if i.kind == "call"]
    names = Counter(t[2].partition("@")[0] for t in targets if t and "@" in t[2])
    return ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in names.most_common())


def _vectors(loop: Sequence[MachineInstruction]) -> tuple[int, int]:
    return _packed(loop) * max((i.width for i in loop), default=1), len(loop)


def _distinct(loops: Sequence[list[MachineInstruction]]) -> list[list[MachineInstruction]]:
    """Each loop once: a compiler may jump back to one start from several places."""
    kept: dict[str, list[MachineInstruction]] = {}
    for loop in loops:
        kept.setdefault(_loop(loop), loop)
    return list(kept.values())


def _loop(loop: Sequence[MachineInstruction]) -> str:
    mix = Counter(i.kind for i in loop)
    moving = ("vector", "load", "store")
    widest = max((i.width for i in loop if i.kind.startswith(moving)), default=0)
    scalar = not widest or (mix["scalar arithmetic"] + mix["scalar multiply-add"] > 0 and not _packed(loop))
    called = [t[2].partition("@")[0] for i in loop if i.kind == "call" and (t := _TARGET.search(i.operands))]
    calls = f"; calls {', '.join(dict.fromkeys(called))}" if called else ""
    return f"{len(loop)} instructions, {'scalar' if scalar else f'{widest}-bit vectors'}: {_counts(mix)}{calls}"


def _packed(loop: Sequence[MachineInstruction]) -> int:
    return sum(i.kind.startswith("vector") for i in loop)


def _listing(codes: Sequence[Code]) -> str:
    return "\n\n".join(
        "\n".join([f"{code.name}:", *(f"  {i.address:6x}  {i.name:<12} {i.operands}" for i in code.instructions)])
        for code in codes
    )
