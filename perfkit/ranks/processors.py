"""A rank on a CPU: its collectives run on threads of a library, and what a GPU's kernels are, its operators are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.intervals import Union

if TYPE_CHECKING:
    import pandas as pd


_THREADS = -1  # stream of the collectives, which one or another thread of the library carries out
_RECEIVING = ("recv", "recvanysource", "recv_any_source")


def on_cpu(frame: pd.DataFrame, facts: dict[str, Any]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows and facts in the form that a GPU's rank has, of a table of operators with the fact `cpu_collectives`.

    Rows of collectives come after the others; `order` is that in which all began. The operator that asks for a
    collective does not compute. `idle` in `per_step` is the time in which neither an operator nor a collective runs;
    the causes in `idle` are those of the time between operators, waiting for a collective left out.
    """
    import pandas as pd

    kept = frame[frame["family"] != "collective"]
    records = facts["cpu_collectives"]
    start, duration = _one_after_the_other(records)
    rows = pd.DataFrame(
        {
            "name": [r["name"] for r in records],
            "short_name": [r["name"] for r in records],
            "kind": "cpu_op",
            "family": "collective",
            "device": "cpu",
            "stream": _THREADS,
            "step": pd.array([r["step"] if r["step"] >= 0 else None for r in records], "Int64"),
            "start_ns": start,
            "duration_ns": duration,
            "collective": [_operation(r) for r in records],
            "message_bytes": [float(r.get("message_bytes", np.nan)) for r in records],
            "group": [_group(r, facts["distributed"]) for r in records],
            "shapes": [f"{r['collective']} {r['dtype']}" if r.get("dtype") else None for r in records],
        }
    )
    joined = pd.concat([kept.astype(object), rows.astype(object)], ignore_index=True)
    joined["step"] = pd.array(joined["step"].where(joined["step"].notna(), None), "Int64")
    began = np.append(kept["start_ns"].to_numpy(float), [float(r["start_ns"]) for r in records])
    joined["order"] = np.argsort(np.argsort(began, kind="stable"), kind="stable")
    return joined, {"per_step": _per_step(joined, facts["step_ns"]), "idle": _idle(facts)}


def _operation(record: dict[str, Any]) -> str:
    """The collective; of a message the pair of sending and receiving it."""
    return "send_recv" if record["collective"] in ("send", *_RECEIVING) else str(record["collective"])


def _group(record: dict[str, Any], info: dict[str, Any]) -> str | None:
    """The group; of a message from whom it goes to whom, which only of two ranks is known."""
    way, rank = record["collective"], info["rank"]
    if way not in ("send", *_RECEIVING):
        return record.get("group")
    other = 1 - rank if info["world_size"] == 2 else "?"
    return f"{rank} → {other}" if way == "send" else f"{other} → {rank}"


def _one_after_the_other(records: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and durations of collectives, each from the end of those before it, as in the stream of a GPU.

    Several threads carry them out at the same time: what a rank waits in two of them at once, it waits once.
    """
    start = np.array([r["start_ns"] for r in records], float)
    end = np.maximum.accumulate(start + np.array([r["duration_ns"] for r in records], float))
    start[1:] = np.maximum(start[1:], end[:-1])
    return start, end - start


def _per_step(frame: pd.DataFrame, step_ns: list[float]) -> list[dict[str, float]]:
    start, step = frame["start_ns"].to_numpy(float), frame["step"].fillna(-1).to_numpy(np.int64)
    end = start + np.nan_to_num(frame["duration_ns"].to_numpy(float))
    talks = (frame["family"] == "collective").to_numpy(bool)
    found = []
    for number, length in enumerate(step_ns):
        mine = step == number
        busy = Union(start[mine], end[mine]).length
        compute = Union(start[mine & ~talks], end[mine & ~talks]).length
        found.append({"compute_ns": compute, "copy_ns": 0.0, "idle_ns": max(float(length) - busy, 0.0)})
    return found


def _idle(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Time between operators by cause."""
    causes: dict[str, float] = {}
    for gap in facts.get("gaps", []):
        if gap["cause"] != "another rank":
            causes[gap["cause"]] = causes.get(gap["cause"], 0.0) + gap["ns"]
    return [{"cause": cause, "ns": ns} for cause, ns in causes.items()]
