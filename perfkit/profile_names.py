"""Names in a profile: perfkit's own ranges, PyTorch's, those of passes, and the calls of the CUDA and HIP runtimes.

perfkit's own ranges are the contract between what records and what reads: `perfkit:step:3`, `perfkit:pass:backward`,
`perfkit:module:transformer.h.0.attn`, and for a line of a generated program
`perfkit:line:backward:132:symbol:transformer.h.0.mlp|gelu|1` (`line_name`, `line_of`). A replay is in
`perfkit:graph:0`. A name that PyTorch would not export as it is has another form in the profile (`to_trace`,
`from_trace`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

PREFIX = "perfkit:"
STEP, PASS, MODULE = f"{PREFIX}step:", f"{PREFIX}pass:", f"{PREFIX}module:"
LINE = f"{PREFIX}line:"
AT, IN = f"{PREFIX}at:", f"{PREFIX}in:"  # a line of the user's code, a call in a library (`programs.line_tracer`)
APART = f"{PREFIX}apart"  # work next to a step: a request that another thread answers at the time
GRAPH = f"{PREFIX}graph:"  # the replay of a CUDA graph whose capture was recorded, by its number
HELD = f"{PREFIX}held:"  # a moment at which the addresses of the program's tensors were noted, by its number
HELD_KEY = "perfkit_held"  # the notes, next to the events of a trace

# PyTorch's own ranges.
PROFILER_STEP = "ProfilerStep#"
LOADER = "enumerate(DataLoader)"
OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD = "Optimizer.step#", "Optimizer.zero_grad#"
# Connect the forward pass of a program of Thunder's to autograd, and compute nothing themselves.
THUNDER, THUNDER_OUTPUT = "ThunderFunction", "ThunderOutputFunction"
# torch.library's backward of a custom operator: Python that calls operators, which have a namespace.
GENERATED_BACKWARD = "GeneratedBackwardFor_"
PRIMS = "prims::"  # an operator of PyTorch in Python, as those of factories on the meta device, which allocate nothing
FIRST_LINE, CALLS_COMPILED = " (its first line)", " (calls compiled code)"  # behind a source line
GRAPH_RUNS = "## Call CompiledFxGraph"  # around the code that Inductor generated for a graph
NCCL, CPU_COLLECTIVES = "nccl:", ("gloo:", "mpi:", "ucc:")  # those on a CPU last until the collective ends

ROOT = "(root)"  # the module path of what the model does itself, outside its modules
FORWARD, BACKWARD, OPTIMIZER, ZERO_GRAD = "forward", "backward", "optimizer", "zero_grad"
FORWARD_PASSES = (FORWARD, "evaluation", "prefill", "decode")  # in which the model itself runs
APART_PASSES = ("between", "loading")  # in which it does not: parts of a step by themselves, as modules are
FORWARD_PARTS = ("encoder", FORWARD, "classifier")  # of a forward pass that a workload divides (GPT-2)
PASSES = ("between", "loading", *FORWARD_PARTS, *FORWARD_PASSES[1:], BACKWARD, OPTIMIZER)  # as a report orders them

# Words that people use for the ranges of their own loops, bare or as `## forward ##`.
_PASS_WORDS = {
    FORWARD: ("forward", "forward pass", "fwd", "model forward"),
    BACKWARD: ("backward", "backward pass", "bwd"),
    OPTIMIZER: ("optimizer", "optimizer step", "optimizer.step", "opt step", "optim", "opt", "zero grad"),
}
_PASS_OF = {word: name for name, words in _PASS_WORDS.items() for word in words}
_STEP_WORDS = re.compile(
    rf"(?:train(?:ing)?[ _-]?)?(?:step|iter|iteration)[ _:#-]*(\d{{1,9}})|{PROFILER_STEP}(\d{{1,9}})", re.IGNORECASE
)
_LONGEST_WORD = 40  # characters of a name that may be a plain word for a step or pass


def step_of(name: str) -> str | None:
    """Return the number of the step that a range called `name` is, as text; None for any other.

    Of the names that people choose only those count that can mean nothing else: "step 3", not "Step 10 to 20".
    """
    if name.startswith(STEP):
        return name.removeprefix(STEP)
    match = _STEP_WORDS.fullmatch(name.strip()) if len(name) <= _LONGEST_WORD else None
    return str(int(match[1] or match[2])) if match else None


def pass_of(name: str) -> str | None:
    """Return the pass that a range called `name` is; None for any other, such as "forward_pre_hook"."""
    if name.startswith(PASS):
        return name.removeprefix(PASS)
    plain = name.strip("# \t").lower() if len(name) <= _LONGEST_WORD else ""
    return _PASS_OF.get(plain) or _PASS_OF.get(plain.replace("_", " "))


def module_of(name: str) -> str | None:
    """Return the module that a range of perfkit called `name` is; of a line, the module with its largest share."""
    if name.startswith(LINE):
        line = line_of(name)
        return max(line.served, key=lambda member: member[2])[0] if line and line.served else None
    return name.removeprefix(MODULE) if name.startswith(MODULE) else None


_QUOTED = f"{PREFIX}quoted:"
_KEPT = "".join(c for c in map(chr, range(ord(" "), 127)) if c not in '"\\%')  # as PyTorch writes them
_WITHOUT_SEPARATORS = str.maketrans("", "", "|;")  # of the members of a line
_LINE_NAME = re.compile(rf"{LINE}(\w+):(\d{{1,9}}):(\w+):(.*)", re.DOTALL)


def to_trace(name: str) -> str:
    """Return `name` as it survives the export of a trace; nearly every name is that already.

    PyTorch escapes nothing: a double quote makes the file invalid, a backslash becomes a slash, and a name with any
    character outside printable ASCII becomes "unknown".
    """
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    return name if plain else _QUOTED + quote(name, safe=_KEPT, errors="replace")


def from_trace(name: str) -> str:
    """Return the name that `to_trace` was given; any other as it is."""
    return unquote(name.removeprefix(_QUOTED)) if name.startswith(_QUOTED) else name


class ProgramLine(NamedTuple):
    """A line of a program: forward or backward, its number in generated.txt, evidence, what it serves with shares."""

    program: str
    number: int
    evidence: str
    served: tuple[tuple[str, str, float], ...]


def line_name(program: str, line: int, evidence: str, members: Sequence[tuple[str, str, float]]) -> str:
    """Return the range of one line of a generated program, such as a Thunder trace: what runs in it serves `members`.

    `program` is "forward" or "backward", `line` counts from 1 in the text of all programs that a backend made (the run
    folder's generated.txt; 0: a step by hand, which has none), `evidence` says how the place was found (column
    `placed_by`). A member is a module path, an operator, and its share; none says that the place is unknown.
    """
    served = ";".join(f"{_member(module)}|{_member(operator)}|{share:.6g}" for module, operator, share in members)
    return f"{LINE}{program}:{line}:{evidence}:{served}"


def _member(name: str) -> str:
    return name if not any(c in name for c in "%|;") else quote(name, safe=_KEPT.translate(_WITHOUT_SEPARATORS))


def line_of(name: str) -> ProgramLine | None:
    """Return the line that a range called `name` is; None for any other name, and for a damaged one."""
    found = _LINE_NAME.fullmatch(name)
    if found is None:
        return None
    served = []
    for part in found[4].split(";") if found[4] else ():
        words = part.split("|")
        try:
            served.append((unquote(words[0]), unquote(words[1]), float(words[2])))
        except (IndexError, ValueError):
            return None
    return ProgramLine(found[1], int(found[2]), found[3], tuple(served))


# The effects of a call of the CUDA or HIP runtime or driver: it blocks the host until the GPU has done something, makes
# a stream wait (the host goes on), only asks, allocates or frees memory, queues a copy, queues other work, or none.
WAIT, STREAM_WAIT, QUERY, ALLOCATION, COPY, LAUNCH, NO_EFFECT = (
    "wait", "stream wait", "query", "allocation", "copy", "launch", "none",
)  # fmt: skip
_EFFECTS = (
    (STREAM_WAIT, re.compile(r"StreamWait(Event|Value)|WaitExternalSemaphores")),
    (QUERY, re.compile(r"(Event|Stream)Query")),
    # Copies block that are not asynchronous (`hipMemcpyWithStream` too), except for those between and on GPUs.
    (WAIT, re.compile(r"Synchronize|^(cuda|cu|hip)Memcpy(?!.*Async|.*Peer|DtoD)")),
    (ALLOCATION, re.compile(r"Malloc|Free|MemAlloc|MemCreate|MemMap|MemHost|HostAlloc|HostRegister|MemPool")),
    (COPY, re.compile(r"Memcpy")),
    (LAUNCH, re.compile(r"Launch|Memset")),
)
_WAITS_FOR_DEVICE = re.compile(r"^(cuda(Device|Thread)|hipDevice|(cu|hip)Ctx)Synchronize")

# The causes of time without work on a GPU that go by the call that the host is in.
SYNC, CUDA_ALLOCATION, DRIVER = "sync", "CUDA allocation", "driver"
_CAUSES = {WAIT: SYNC, ALLOCATION: CUDA_ALLOCATION, COPY: LAUNCH, LAUNCH: LAUNCH}


@lru_cache(maxsize=4096)
def effect_of_call(name: str) -> str:
    """Return what the call `name` does: one of the effects, from `WAIT` to `NO_EFFECT`."""
    return next((effect for effect, pattern in _EFFECTS if pattern.search(name)), NO_EFFECT)


def cause_of_call(name: str) -> str:
    """Return the cause of time that the host spends in the call `name`: sync, CUDA allocation, launch or driver."""
    return _CAUSES.get(effect_of_call(name), DRIVER)


def blocks_host(name: str) -> bool:
    """Return whether the call `name` until the GPU has done something."""
    return effect_of_call(name) == WAIT


def waits_for_device(name: str) -> bool:
    """Return whether the call `name` ends only when all work of the current GPU has."""
    return _WAITS_FOR_DEVICE.search(name) is not None


def doubt(exact: bool, compiled: bool) -> str:
    """Return the words after a source line that is not the one that ran; "" where it is."""
    if compiled:
        return CALLS_COMPILED
    return "" if exact else FIRST_LINE
