"""Programs that a backend made of a workload: the code that Inductor generates, the trace that Thunder executes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit import backends, faults, fp8
from perfkit.errors import InputError, PerfkitError, RunFailed, Unavailable
from perfkit.inspection.results import Inspected
from perfkit.run_folder import Settings, read_manifest
from perfkit.workloads import batch_formats
from perfkit.workloads.interface import Workload

if TYPE_CHECKING:
    pass

_FUSED = re.compile(r"^(\w+) = async_compile\.(cpp|cpp_pybinding|triton|cuda|multi_kernel)\(", re.MULTILINE)
_EXTERN = re.compile(r"\b(?:extern_kernels\.(\w+)|torch\.ops\.(\w+\.\w+)(?:\.\w+)?)\(")
_VECTOR = re.compile(r"at::vec::Vectorized(?:N)?<(\w+)")
_TRACE_CALL = re.compile(r"^\s+(?:[\w\[\], ()*:]+? = )?(?:torch\.)?([A-Za-z_]\w*)\(", re.MULTILINE)
_PYTHON = {"del", "return", "def", "print", "unpack_sequence"}


def inspect_backend(
    workload: Workload, settings: Settings, backend: str, progress: Callable[[str], None] = lambda what: None
) -> Inspected:
    """Run one step of `workload` on `backend` in this process, and describe the program that it made.

    Raises `Unavailable` when the backend cannot run here, `InputError` when it generates nothing.
    """
    chosen = backends.get(backend)
    reason = chosen.unavailable(settings)
    if reason:
        raise Unavailable(f"Backend {chosen.name} cannot run here: {reason}")
    try:
        text, program = _generated(workload, settings, chosen, progress)
    except PerfkitError:
        raise
    except Exception as error:  # whatever a backend or a user's model throws
        raise RunFailed(faults.sentence(error)) from error
    if not text:
        raise InputError(f"The backend {chosen.name} generates no program.", "Inspect compile or thunder.")
    title = f"{workload.title(settings)} on {chosen.name}"
    return described(title, text, [*program.warnings(), *program.problems()])


def _generated(
    workload: Workload, settings: Settings, backend: backends.Backend, progress: Callable[[str], None]
) -> tuple[str, backends.Program]:
    """The text of the program that `backend` made, after one step of it, and the program."""
    import torch

    progress("building the model")
    dtype = torch.bfloat16 if settings.dtype in ("bf16", "fp8") else torch.float32
    model = workload.build(settings).to(device=settings.device, dtype=dtype)
    if settings.dtype == "fp8":
        fp8.convert(model, workload.layers)
    batch = batch_formats.placed(workload.batch(settings, 0), settings.device, dtype)
    progress("compiling: one step")
    program = backend.prepare(workload, model, settings)
    if settings.training:
        program.train_step([batch])
    else:
        program.forward(batch)
    return program.generated(), program


def inspect_run(folder: Path, backend: str) -> Inspected:
    """The program that `backend` made in a run folder. Raises `InputError` when the run holds none."""
    manifest = read_manifest(folder)
    names = [b.name for b in manifest.backends if b.generated]
    found = next((b for b in manifest.backends if b.generated and (b.name == backend or not backend)), None)
    if found is None:
        known = f"It has those of {', '.join(names)}." if names else "No backend of it generates one."
        raise InputError(f"{folder} holds no program of {backend or 'any backend'}.", known)
    path = folder / found.name / Path(found.generated).name
    path = path if path.is_file() else folder / found.generated
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read.", "Run the workload again.") from error
    return described(f"{manifest.workload.title} on {found.name}", text, found.warnings)


def described(title: str, text: str, warnings: list[str]) -> Inspected:
    """Facts of a generated program: fused kernels and library calls of Inductor's, or the calls of a Thunder trace."""
    fused = Counter(language for _, language in _FUSED.findall(text))
    facts: list[tuple[str, str]] = [("length", f"{len(text.splitlines()):,} lines")]
    if fused:
        facts += [("fused kernels", _shown({_language(name): n for name, n in fused.items()}))]
        extern = Counter(a or b for a, b in _EXTERN.findall(text))
        facts += [("library calls", _shown(dict(extern.most_common(8))))] if extern else []
        vectors = Counter(_VECTOR.findall(text))
        if "cpp" in "".join(fused):
            facts.append(("vectors", _shown(dict(vectors)) if vectors else "none: scalar loops"))
            facts.append(("parallel loops", str(text.count("#pragma omp for"))))
        names = [name for name, _ in _FUSED.findall(text)]
        facts.append(("kernels", ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")))
    else:
        calls = Counter(name for name in _TRACE_CALL.findall(text) if name not in _PYTHON)
        facts.append(("calls", f"{sum(calls.values()):,}: {_shown(dict(calls.most_common(12)))}"))
        facts.append(("traces", ", ".join(re.findall(r"^# (forward|backward)$", text, re.MULTILINE)) or "one"))
    return Inspected(title=title, facts=facts, notes=warnings, listing=text)


def _language(name: str) -> str:
    return {"cpp_pybinding": "C++", "cpp": "C++", "triton": "Triton", "cuda": "CUDA"}.get(name, name)


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ×{n}" for name, n in counts.items())
