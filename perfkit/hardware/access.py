"""Why CUDA finds no GPU on a machine that has one: it says the same of all causes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from perfkit.errors import Unavailable
from perfkit.hardware.gpu import gpu_names
from perfkit.hardware.system import ROOT

ASK_FOR_ACCESS = (
    "`ls -l /dev/nvidia*` shows whose they are: an administrator can add you to that group (then log in again); start "
    "a container with --gpus all, and ask a batch system for a GPU."
)


def closed_devices(root: Path = ROOT) -> list[Path]:
    """Return the device files that this user may not open, which keeps CUDA from them; empty if all are open.

    The driver's two are always needed, and one GPU's: of several, a batch system closes those of other people's jobs.
    They are opened, not asked about: a container's rules for devices show in nothing else.
    """
    driver = [path for path in (root / "dev/nvidiactl", root / "dev/nvidia-uvm") if _closed(path)]
    gpus = sorted(root.glob("dev/nvidia[0-9]*"))
    closed = [path for path in gpus if _closed(path)]
    return driver + (closed if len(closed) == len(gpus) else [])


def _closed(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        return False  # busy, or without a device: other rules apply
    return False


def named(paths: Iterable[Path]) -> str:
    """Device files as a person would write them: without the folders above /dev."""
    return ", ".join(f"/dev/{path.name}" for path in paths)


def no_gpu(asked: str, root: Path = ROOT) -> Unavailable:
    """The error for `asked`, such as "--device cuda", where CUDA finds no GPU: why that is, and what helps."""
    closed = closed_devices(root)
    if closed:
        return Unavailable(f"{asked}: this user may not open the GPU's device files: {named(closed)}.", ASK_FOR_ACCESS)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and _hides_all(visible, len(gpu_names(root))):
        return Unavailable(f'{asked}: CUDA_VISIBLE_DEVICES="{visible}" leaves none of the GPUs.', "Unset or change it.")
    return Unavailable(f"{asked}: no usable CUDA GPU was found.", "`perfkit doctor` says more.")


def _hides_all(visible: str, gpus: int) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES surely hides all `count` GPUs: CUDA stops at the first unknown entry."""
    first = visible.partition(",")[0].strip()
    unknown = first.removeprefix("-").isdecimal() and not 0 <= int(first) < gpus
    return gpus > 0 and (not first or unknown)
