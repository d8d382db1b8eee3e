"""Messages of the tools when they fail, in words with the next step. The texts are those of ncu 2020 to 2025."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from perfkit.errors import PerfkitError, RunFailed, Unavailable, UsageError

PERMISSION_HINT = (
    "Run as root (sudo), or let an administrator open them to all: put the line `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-counters.conf and load the driver again "
    "(reboot); a container needs `--cap-add=SYS_ADMIN` besides."
)
INSTALL = {
    "ncu": (
        "Nsight Compute's `ncu` is not on the PATH.",
        "Install it (part of the CUDA toolkit, in /usr/local/cuda/bin; package nsight-compute or cuda-nsight-compute).",
    ),
    "nsys": (
        "Nsight Systems' `nsys` is not on the PATH.",
        "Install it (package nsight-systems of NVIDIA's repository; a CUDA toolkit from a runfile holds it too).",
    ),
}

# Text of the tool → kind of error, what it means, what to do.
_KNOWN: tuple[tuple[str, type[PerfkitError], str, str], ...] = (
    (
        r"ERR_NVGPUCTRPERM|does not have permission to (access|profile)",
        Unavailable,
        "The GPU's performance counters are closed to this user (ERR_NVGPUCTRPERM).",
        PERMISSION_HINT,
    ),
    (
        r"LibraryNotLoaded",
        Unavailable,
        "Nsight Compute cannot reach the counters of this GPU (LibraryNotLoaded).",
        "On a virtualised GPU or under WSL the host must pass them through; elsewhere install the Nsight Compute of "
        "the CUDA version that `nvidia-smi` shows.",
    ),
    (
        r"Profiling is not supported on (this )?device|GPU is not supported",
        Unavailable,
        "This Nsight Compute does not profile this GPU.",
        "`ncu --list-chips` names those it knows: a newer GPU needs a newer Nsight Compute, one before Volta has none; "
        "virtual GPUs and WSL may offer no counters.",
    ),
    (
        r"[Dd]river is not compatible with Nsight Compute|cuda driver .*(old|incompatible)",
        Unavailable,
        "This Nsight Compute does not fit the GPU's driver.",
        "Update the driver, or install the Nsight Compute of the CUDA version that `nvidia-smi` shows.",
    ),
    (
        r"Failed to parse options: filesystem error: .*Permission denied",
        Unavailable,
        "Nsight Compute may not look for its settings in the home folder of this user.",
        "Point HOME at a folder that is yours: HOME=/tmp/mine perfkit …",
    ),
    (
        r"Cannot lock GPU clock|Failed to lock .*clock",
        RunFailed,
        "Nsight Compute may not hold the GPU's clocks here.",
        "Capture with --clock-control none.",
    ),
    (
        r"Driver resource was unavailable|no other tool|Another .*profiler",
        RunFailed,
        "Another tool holds the GPU's counters.",
        "End other profilers; where DCGM watches the machine, pause it: `dcgmi profile --pause`.",
    ),
    (
        r"Failed to (access|find) .*metric",
        RunFailed,
        "This Nsight Compute lacks metrics that were asked for.",
        "Capture a set instead: --set full.",
    ),
    (
        r"did not match any section|No metrics to collect",
        UsageError,
        "This Nsight Compute has no such set.",
        "`ncu --list-sets` names those it has.",
    ),
)
_SAVE = re.compile(r"Failed to save the report|Unable to write to file|No space left on device|cannot write", re.I)
_ERROR = re.compile(r"^==ERROR==\s*")
_RETURNED = re.compile(r"The application returned an error code \((-?\d+)\)")
NO_KERNELS = "No kernels were profiled"
ROOM = 64 << 20  # bytes free below which a file that could not be written is blamed on the disk


def missing(tool: str) -> PerfkitError | None:
    """Return why `tool` is missing; None when it is there."""
    return None if shutil.which(tool) else Unavailable(*INSTALL[tool])


def known(said: Sequence[str], report: Path) -> PerfkitError | None:
    """Return the failure that the tool's lines report; None for an unknown one."""
    text = "\n".join(said)
    if _SAVE.search(text):
        return unsaved(report)
    for pattern, kind, sentence, hint in _KNOWN:
        if re.search(pattern, text):
            return kind(sentence, hint)
    return None


def unsaved(report: Path) -> PerfkitError:
    """The report could not be written: the disk is full, or something else is in the way."""
    folder = report.parent
    try:
        full = shutil.disk_usage(folder).free < ROOM
    except OSError:
        return RunFailed(f"The profiler could not write {report}.", "Choose another --out.")
    if full:
        return RunFailed(f"The disk is full: the profiler could not write {report}.", "Free space, or choose --out.")
    return RunFailed(f"The profiler could not write {report}.", "Is it writable, and open in no other program?")


def no_kernels(said: Sequence[str], filtered: bool) -> PerfkitError:
    """Why a capture that went well holds nothing."""
    text = "\n".join(said)
    names = re.findall(r"^\d+\. (.+)$", text.partition("Available Kernels:")[2], re.MULTILINE)
    if names:
        shown = ", ".join(name.strip()[:80] for name in names[:8])
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return RunFailed("No kernel fits the filters.", f"Kernels that ran: {shown}{more}.")
    if "NVTX include" in text:
        return RunFailed(
            "No kernel ran in the NVTX ranges that were asked for.",
            "Give --nvtx NAME as the program writes it, or DOMAIN@NAME; ranges count on the thread that launches.",
        )
    if filtered:
        return RunFailed(
            "The program launched no kernel in the part that was to be profiled.",
            "Widen --kernel-name, --launch-skip, --launch-count or --profiler-api.",
        )
    return RunFailed("The program launched no kernel on a GPU.", "Does it use the GPU? `perfkit doctor` says more.")


def returned(said: Sequence[str]) -> int | None:
    """The program's exit code where the tool says that it was not 0."""
    found = _RETURNED.search("\n".join(said))
    return int(found[1]) if found else None


def last_error(said: Sequence[str]) -> str:
    """The last thing that the tool called an error, apart from the program's exit code; "" for nothing."""
    errors = [_ERROR.sub("", line).strip() for line in said if _ERROR.match(line) and not _RETURNED.search(line)]
    lines = [line for line in errors if line not in ("An error occurred while trying to profile.", "")]
    return lines[-1][:300] if lines else ""
