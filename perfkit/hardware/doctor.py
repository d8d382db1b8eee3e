"""Inventory of this machine: what is there, what is missing, and which reports that allows. Imports nothing heavy."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import perfkit
from perfkit import tested
from perfkit.hardware import access
from perfkit.hardware.compiler import HOW_TO_GET, find_compiler, has_openmp
from perfkit.hardware.cpu import read_cpu
from perfkit.hardware.gpu import counters_need_admin, driver_version, is_admin, read_gpus
from perfkit.hardware.identity import torch_cuda, version_of
from perfkit.hardware.system import ROOT, printed
from perfkit.units import text

OK, LIMITED, MISSING = "ok", "limited", "missing"

RUN_EXTRA = "pip install 'perfkit[run]'"
FIRST_PYTHON_WITHOUT_THUNDER = (3, 14)
LEAST_TORCH = (2, 7, 1)

# Places of Nsight's tools when they are not on the PATH.
_NSIGHT_PLACES = (
    "usr/local/cuda/bin",
    "usr/local/cuda-*/bin",
    "opt/nvidia/nsight-compute/*",
    "opt/nvidia/nsight-systems/*/bin",
    "usr/local/NVIDIA-Nsight-Compute*",
    "opt/nvidia/nsight-systems*/bin",
    "Applications/NVIDIA Nsight Compute.app/Contents/MacOS",
    "Applications/NVIDIA Nsight Systems.app/Contents/MacOS",
)


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked for. `state` is ok, limited or missing; `detail` what was found; `remedy` gets the rest."""

    name: str
    state: str
    detail: str
    purpose: str
    remedy: str = ""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of report, whether it is possible here, and what prevents it."""

    name: str
    possible: bool
    lacks: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `perfkit doctor` says."""

    findings: list[DoctorCheck]
    levels: list[Level]

    def finding(self, name: str) -> DoctorCheck:
        """The finding called `name`."""
        return next(f for f in self.findings if f.name == name)


def diagnose(root: Path = ROOT) -> Diagnosis:
    """Look for everything; `root` is the root of the file tree that drivers and tools are looked for under."""
    findings = [
        _python(),
        _machine(),
        *_packages(),
        _torch(),
        _compiler(),
        *_gpu(root),
        *_nsight(root),
        _counters(root),
    ]
    return Diagnosis(findings=findings, levels=levels(findings))


def levels(findings: Sequence[DoctorCheck]) -> list[Level]:
    """The kinds of report that these findings allow, from what needs least to what needs most."""
    states = {f.name: f.state for f in findings}

    def level(name: str, needs: Iterable[str], usable: Iterable[str] = ()) -> Level:
        """`needs` must be ok; of `usable` limited is enough."""
        lacks = [n for n in needs if states[n] != OK] + [n for n in usable if states[n] == MISSING]
        return Level(name=name, possible=not lacks, lacks=tuple(lacks))

    return [
        level("read reports", ["pandas", "pyarrow"]),
        level("run on CPU", [], ["torch"]),
        level("hand-written kernels", ["compiler"], ["torch"]),
        level("GPU traces", ["torch", "GPU", "driver"]),
        level("GPU counters", ["GPU", "driver", "ncu", "counter permission"]),
    ]


def _python() -> DoctorCheck:
    python = platform.python_version()
    return DoctorCheck(
        name="Python",
        state=OK,
        detail=f"{python}; perfkit {perfkit.__version__}",
        purpose="runs perfkit",
        remedy=tested.untested(python, tested.pythons(), "make an environment with Python {}."),
    )


def _machine() -> DoctorCheck:
    cpu = read_cpu()
    vector = next((flag for flag in ("avx512f", "avx2", "sve", "asimd") if flag in cpu.simd), "no wide vectors")
    cores = f"{cpu.usable} core{'s' if cpu.usable != 1 else ''}"
    return DoctorCheck(
        name="CPU",
        state=OK,
        detail=f"{cpu.model}, {cores}, {vector}, {text(cpu.memory_bytes, 'iB')} memory",
        purpose="runs the reference and the CPU backends",
    )


_PACKAGES: tuple[tuple[str, str, str, str], ...] = (
    ("pandas", "pandas", "the kernel table", "pip install pandas"),
    ("pyarrow", "pyarrow", "the kernel table's file", "pip install pyarrow"),
    ("thunder", "lightning-thunder", "the thunder backends", "pip install 'perfkit[thunder]'"),
    ("nvtx", "nvtx", "ranges that NVIDIA's tools show", RUN_EXTRA),
    ("tensorboard", "tensorboard", "perfkit tensorboard", RUN_EXTRA),
    ("nvidia-ml-py", "nvidia-ml-py", "clocks and throttling of a GPU", RUN_EXTRA),
    ("ncu-report", "ncu-report", "reading .ncu-rep files", "pip install ncu-report"),
    ("triton", "triton", "Triton kernels on a GPU", "pip install 'perfkit[cuda12]' (or cuda13)"),
)


def _packages() -> list[DoctorCheck]:
    findings = [_package(*entry) for entry in _PACKAGES]
    cupy = next((n for n in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if version_of(n)), "cupy-cuda12x")
    return [*findings, _package("cupy", cupy, "CUDA kernels on a GPU", "pip install 'perfkit[cuda12]' (or cuda13)")]


def _package(name: str, package: str, purpose: str, remedy: str) -> DoctorCheck:
    version = version_of(package)
    if name == "thunder" and sys.version_info >= FIRST_PYTHON_WITHOUT_THUNDER:
        remedy = "It needs a Python before 3.14: make an environment with 3.13."
    return _looked_for(name, version or "", purpose, remedy)


def _looked_for(name: str, detail: str, purpose: str, remedy: str) -> DoctorCheck:
    """Something that is there where a detail of it was found; else it is missing, and `remedy` helps."""
    state = OK if detail else MISSING
    return DoctorCheck(name=name, state=state, detail=detail, purpose=purpose, remedy="" if detail else remedy)


def _torch() -> DoctorCheck:
    purpose = "running workloads and measuring ceilings"
    version = version_of("torch")
    if version is None:
        return DoctorCheck(name="torch", state=MISSING, detail="", purpose=purpose, remedy=RUN_EXTRA)
    if _numbers(version) < LEAST_TORCH:
        wanted = ".".join(map(str, LEAST_TORCH))
        return DoctorCheck(
            name="torch",
            state=MISSING,
            detail=f"{version} is too old",
            purpose=purpose,
            remedy=f"pip install 'torch>={wanted}'",
        )
    cuda = torch_cuda()
    detail = f"{version}, built for {cuda or 'the CPU alone'}"
    if cuda or not read_gpus():
        untested = tested.untested(version, tested.torches(), "pip install 'torch=={}'")
        return DoctorCheck(name="torch", state=OK, detail=detail, purpose=purpose, remedy=untested)
    remedy = "For the GPU install a CUDA build: https://pytorch.org/get-started"
    return DoctorCheck(name="torch", state=LIMITED, detail=detail, purpose=purpose, remedy=remedy)


def _compiler() -> DoctorCheck:
    purpose = "hand-written kernels, torch.compile on the CPU, and the sharpest ceilings"
    compiler = find_compiler()
    if compiler is None:
        return DoctorCheck(name="compiler", state=MISSING, detail="", purpose=purpose, remedy=HOW_TO_GET)
    if has_openmp(compiler):
        return DoctorCheck(name="compiler", state=OK, detail=compiler.version, purpose=purpose)
    remedy = "Install OpenMP for it (macOS: brew install libomp), or set CC to a gcc."
    return DoctorCheck(
        name="compiler", state=LIMITED, detail=f"{compiler.version}, without OpenMP", purpose=purpose, remedy=remedy
    )


def _gpu(root: Path) -> list[DoctorCheck]:
    gpus, driver = read_gpus(root), driver_version(root)
    driver = driver or next((gpu.driver for gpu in gpus if gpu.driver), None)
    purpose = "CUDA workloads, their traces and counters"
    names = ", ".join(gpu.name for gpu in gpus)
    throttled = sorted({reason for gpu in gpus for reason in gpu.throttling or ()})
    closed = access.closed_devices(root)
    state = MISSING if closed or not gpus else LIMITED if throttled else OK
    slowed = f" (slowed down now: {', '.join(throttled)})" if throttled else ""
    shut = f" (this user may not open {access.named(closed)})" if closed else ""
    none = "" if gpus else "None is needed to read reports or to run on the CPU."
    return [
        DoctorCheck(
            name="GPU",
            state=state,
            detail=names + slowed + shut,
            purpose=purpose,
            remedy=access.ASK_FOR_ACCESS if closed else none,
        ),
        _looked_for(
            "driver", driver or "", "lets programs use the GPU", "Install NVIDIA's driver where there is a GPU."
        ),
    ]


def _nsight(root: Path) -> list[DoctorCheck]:
    tools = (
        ("ncu", "hardware counters of GPU kernels", "Install NVIDIA Nsight Compute (part of the CUDA toolkit)."),
        ("nsys", "timelines of whole GPU programs", "Install NVIDIA Nsight Systems (part of the CUDA toolkit)."),
    )
    findings = []
    for name, purpose, remedy in tools:
        path = find_tool(name, root)
        detail = f"{_tool_version(path)} at {path}".strip() if path else ""
        findings.append(_looked_for(name, detail, purpose, remedy))
    return findings


def find_tool(name: str, root: Path = ROOT) -> Path | None:
    """An Nsight tool from the PATH, else from the newest of the usual places; None where it is not installed."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    places = [path / name for pattern in _NSIGHT_PLACES for path in root.glob(pattern)]
    found = [path for path in places if path.is_file() and os.access(path, os.X_OK)]
    return max(found, key=lambda path: [_numbers(part) for part in path.parts], default=None)


def _tool_version(path: Path) -> str:
    found = re.search(r"[Vv]ersion:? *([0-9][0-9.]*)", printed([path, "--version"]))
    return found[1].rstrip(".") if found else ""


def _counters(root: Path) -> DoctorCheck:
    purpose = "ncu may read the GPU's counters"
    name = "counter permission"
    restricted = counters_need_admin(root)
    if restricted is None:
        return DoctorCheck(
            name=name, state=MISSING, detail="no NVIDIA driver says", purpose=purpose, remedy="Needs the driver."
        )
    if not restricted:
        return DoctorCheck(name=name, state=OK, detail="open to all users", purpose=purpose)
    if is_admin(root):
        return DoctorCheck(name=name, state=OK, detail="for administrators, which this process is", purpose=purpose)
    remedy = (
        "Run ncu with sudo, or set the driver option NVreg_RestrictProfilingToAdminUsers=0 "
        "(https://developer.nvidia.com/ERR_NVGPUCTRPERM); containers need --cap-add=SYS_ADMIN."
    )
    return DoctorCheck(name=name, state=MISSING, detail="for administrators only", purpose=purpose, remedy=remedy)


def _numbers(words: str) -> tuple[int, ...]:
    """The numbers at dots in a version such as "2.13.0+cpu": (2, 13, 0)."""
    return tuple(int(n) for n in re.findall(r"\d+", words.partition("+")[0]))
