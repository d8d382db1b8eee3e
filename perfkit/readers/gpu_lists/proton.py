"""Profiles of Triton's Proton (`.hatchet`, JSON): a tree of scopes with the sums of the kernels launched in them.

The first of its list is the tree, the second the devices. `flops8` … `flops64` and `bytes` are what a kernel's
`launch_metadata` declares; Proton's viewer judges FLOP of every width by the peak of tensor cores, and so does perfkit.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.profile_names import module_of, pass_of, step_of
from perfkit.readers.gpu_lists import whole
from perfkit.readers.gpu_lists.sums import Sum, table_of_sums
from perfkit.table import KernelTable

MORE = "torch.profiler has the timeline: `perfkit capture -- COMMAND`."
_UNITS = {"flops8": "fp8", "flops16": "fp16", "flops32": "tf32", "flops64": "fp64"}
_DECLARING = "__proton_launch_metadata"  # a scope of kernels that compute what a launch declares, which no step runs
_DEEPEST = 500
Scopes = tuple[str, ...]


def read_proton(path: Path) -> KernelTable:
    """Read the profile at `path`. Raises `InputError` for a damaged one, and one without times of kernels."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        kernels = list(_kernels(document[0], ()))
        sums = [_sum(node["frame"]["name"], _plain(node["metrics"]), scopes) for node, scopes in kernels]
        gpus = _gpus(document[1] if len(document) > 1 else {})
    except (OSError, EOFError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: it is not as Proton writes it.", "Record it again.") from error
    if not sums:
        raise InputError(
            f"{path} is a profile of Proton without times of kernels (cycles inside kernels, or samples).",
            f'Scopes inside kernels: record them with data="trace", then `perfkit inspect FILE`. {MORE}',
        )
    said = []
    if any("bytes_read" in one.work for one in sums):
        said.append("Proton has one number for bytes, read and written together: they stand as bytes read")
    return table_of_sums(sums, {"path": str(path), "reader": "Proton"}, {"gpus": gpus}, said, MORE)


def _kernels(node: dict[str, Any], scopes: Scopes) -> Iterator[tuple[dict[str, Any], Scopes]]:
    """The nodes with times of kernels, and the names of the scopes around each."""
    name = str(node["frame"]["name"])
    if name == _DECLARING or len(scopes) > _DEEPEST:
        return
    metrics = _plain(node["metrics"])
    if (metrics.get("time (ns)") or 0) > 0 and metrics.get("count"):
        yield node, scopes
    for child in node["children"]:
        yield from _kernels(child, scopes if name == "ROOT" and not scopes else (*scopes, name))


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics by their names as newer versions spell them."""
    return {name.lower().removesuffix("(inc)").strip(): value for name, value in metrics.items()}


def _sum(name: str, metrics: dict[str, Any], scopes: Scopes) -> Sum:
    device = whole(metrics.get("device_id", metrics.get("deviceid")))
    columns: dict[str, Any] = {
        "device": "cuda" if device is None else f"cuda:{device}",
        "stream": whole(metrics.get("stream_id")),
        "range": "/".join(scopes) or None,
        "pass": _innermost(scopes, pass_of),
        "module": _innermost(scopes, module_of),
        "placed_by": "range" if scopes else "none",
    }
    said = _innermost(scopes, step_of)
    work = {f"flop_matrix_{unit}": float(metrics[flops]) for flops, unit in _UNITS.items() if flops in metrics}
    if "bytes" in metrics:
        work |= {"bytes_read": float(metrics["bytes"]), "bytes_written": 0.0}
    step = int(said) if said and len(said) < 10 and said.isdecimal() else -1
    return Sum(name, int(metrics["count"]), float(metrics["time (ns)"]), step=step, columns=columns, work=work)


def _innermost(scopes: Scopes, what: Any) -> str | None:
    return next((said for name in reversed(scopes) if (said := what(name)) is not None), None)


def _gpus(devices: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPUs as the profile describes them; it has no names of models."""
    return [
        {"name": f"{vendor} GPU ({one.get('arch', 'unknown')})", "id": whole(number), "smCount": one.get("num_sms")}
        for vendor, mine in devices.items()
        if isinstance(mine, dict)
        for number, one in mine.items()
    ]
