"""CUDA and Triton kernels, compiled for a named architecture without a GPU: resources, PTX and SASS."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfkit.errors import InputError, RunFailed, UsageError
from perfkit.inspection import ptx as ptx_text
from perfkit.inspection.results import Inspected
from perfkit.kernels.declare import Implementation, Operation

# Multiprocessors and bytes of shared memory that a block may have, which launches are made for.
ARCHITECTURES = {
    "sm_80": (108, 163 << 10), "sm_86": (84, 99 << 10), "sm_89": (128, 99 << 10), "sm_90": (132, 227 << 10),
    "sm_100": (148, 227 << 10), "sm_120": (170, 99 << 10),
}  # fmt: skip
_SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_ACCESS = re.compile(r"(LDG|STG|LDS|STS|LDL|STL)\b")
_WIDTH = re.compile(r"\.(64|128|256|U?8|S8|U?16|S16)(?:\.|$)")
_TIMEOUT_S = 120


def check_arch(arch: str) -> str:
    """`arch` as it is. Raises `UsageError` for one that perfkit does not know."""
    if arch not in ARCHITECTURES:
        raise UsageError(f"--arch {arch} is not an architecture known here.", f"Known: {', '.join(ARCHITECTURES)}.")
    return arch


def inspect_cuda(
    operation: Operation, chosen: Implementation, dtype: str, arch: str, arguments: Sequence[Any]
) -> list[Inspected]:
    """Each kernel that `chosen` launches for `arguments`, compiled by NVRTC for `arch`."""
    from perfkit.kernels.cuda.binding import ITEM_SIZES, host_function
    from perfkit.kernels.cuda.build import compiled
    from perfkit.kernels.cuda.host import GpuLimits, record
    from perfkit.kernels.cuda.resources import read_resources

    source = operation.source_path(chosen)
    signature = operation.signature
    tensors = len(signature.tensors) + len(signature.outputs)
    function = host_function(source, chosen.symbol)
    scalars = chosen.numbers(operation.scalars(*arguments))
    device = GpuLimits(arch, *ARCHITECTURES[arch])
    host = record(function, device, ITEM_SIZES[dtype], [0] * tensors, scalars)
    names = list(dict.fromkeys(step.kernel for step in host.steps))
    if not names:
        raise InputError(f"{chosen.symbol} launches nothing for these sizes.", "Give larger --sizes.")
    done = compiled(source, dtype, arch, names)
    taken = read_resources(done.log)
    sass = disassembled(done.cubin)
    found = []
    for name in names:
        symbol = done.names[name]
        steps = [s for s in host.steps if s.kernel == name]
        text = ptx_text.entry(done.ptx, symbol)
        facts = [("launch", "; ".join(f"grid {_grid(s.grid)}, {s.block} threads a block" for s in steps))]
        if symbol in taken:
            r = taken[symbol]
            shared = max((s.shared for s in steps), default=0) + r.shared
            facts += _resources(r.registers, shared, r.spill_stores + r.spill_loads, r.local)
        facts += [*ptx_text.summary(text), *_sass_facts(sass, symbol)]
        title = f"{operation.name} cuda:{chosen.version} {dtype} for {arch}: {name}"
        found.append(Inspected(title=title, facts=facts, listing=text, notes=_no_sass(sass)))
    return found


def inspect_triton(
    operation: Operation, chosen: Implementation, dtype: str, arch: str, arguments: Sequence[Any]
) -> list[Inspected]:
    """Each kernel that `chosen` launches for `arguments`, compiled by Triton for `arch`."""
    from perfkit.kernels.triton.offline import compiled

    found = []
    for kernel in compiled(operation, chosen, dtype, arguments, int(arch.removeprefix("sm_"))):
        threads = f"{32 * kernel.warps} threads a block, {kernel.stages} stages"
        facts = [("launch", f"grid {_grid(kernel.grid)}, {threads}")]
        try:
            taken = kernel.resources
            facts += _resources(taken.registers, kernel.shared, taken.spill_stores + taken.spill_loads, taken.local)
        except RunFailed:
            facts.append(("shared memory", f"{kernel.shared:,} B a block"))
        sass = disassembled(kernel.cubin)
        facts += [*ptx_text.summary(kernel.ptx), *_sass_facts(sass, kernel.name)]
        title = f"{operation.name} triton:{chosen.version} {dtype} for {arch}: {kernel.name}"
        found.append(Inspected(title=title, facts=facts, listing=kernel.ptx, notes=_no_sass(sass)))
    return found


def _resources(registers: int, shared: int, spilled: int, local: int) -> list[tuple[str, str]]:
    spills = f"{spilled:,} B" if spilled else "none"
    return [
        ("registers", f"{registers} a thread"),
        ("shared memory", f"{shared:,} B a block"),
        ("spills", spills + (f"; {local:,} B of local memory a thread" if local else "")),
    ]


def _grid(grid: Sequence[int]) -> str:
    sizes = [str(int(n)) for n in grid]
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return " × ".join(sizes)


def tool(name: str) -> str | None:
    """Return the path of a tool of the CUDA toolkit: on the PATH, in the toolkit's folder, or in Triton's; None
    if it is in none of them."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    spec = importlib.util.find_spec("triton")
    own = [Path(p) / "backends/nvidia/bin" / name for p in (spec.submodule_search_locations or [])] if spec else []
    places = [shutil.which(name), Path(home) / "bin" / name, *own]
    return next((str(p) for p in places if p and os.access(p, os.X_OK)), None)


def disassembled(cubin: bytes) -> Mapping[str, str] | None:
    """Return SASS by symbol; None without a cuobjdump that reads it."""
    found = tool("cuobjdump")
    if found is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [found, "-sass", str(path)], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    if done.returncode:
        return None
    parts = re.split(r"^\s*Function : (\S+)\s*$", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)) or None


def _sass_facts(sass: Mapping[str, str] | None, symbol: str) -> list[tuple[str, str]]:
    """Instructions of the machine code, and how wide it accesses memory: what the hardware does in the end."""
    if not sass or symbol not in sass:
        return []
    names = _SASS.findall(sass[symbol])
    wide: Counter[str] = Counter()
    for name in names:
        access, width = _ACCESS.match(name), _WIDTH.search(name)
        if access:
            wide[f"{access[1]} {int(width[1].strip('US')) // 8 if width else 4} B"] += 1
    common = Counter(name.partition(".")[0] for name in names if name.partition(".")[0] != "NOP")
    facts = [("SASS", f"{sum(common.values()):,} instructions: {_counted(common, 8)}")]
    return [*facts, ("SASS accesses", _counted(wide, 8))] if wide else facts


def _counted(counts: Counter[str], most: int) -> str:
    return ", ".join(f"{name} ×{n}" for name, n in counts.most_common(most))


def _no_sass(sass: Mapping[str, str] | None) -> list[str]:
    return [] if sass else ["No SASS: no cuobjdump here reads this architecture."]
