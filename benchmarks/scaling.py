"""Compare steps on several ranks with the prediction of `perfkit scale` from one that shares the work in the same way.

GPT-2 and Llama by ddp, fsdp and zero1; the time of one rank alone is shown too.

    python benchmarks/scaling.py --device cuda --ranks 1,2,4,8     GPT-2 124M (B = 16 a rank, T = 1024), Llama 1b
    python benchmarks/scaling.py --ranks 1,2                       tiny models over gloo, on CPUs

Each job is a run in a folder of its own below --out; those that are there are not repeated. No job begins that may not
end within --limit seconds (by the longest so far), and none outlives it: call again until nothing is left. Exit code: 0
all is measured and predicted within 10 % for ddp, 15 % for fsdp and zero1; 1 something is wrong or further off; 3 jobs
are left.

The batch grows with the ranks (weak scaling), so that each does what the one did. On a CPU every rank has one core, as
the single one has; more ranks than cores are measured, and not compared with the prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfkit import readers, units
from perfkit.analysis.report.analyse import analyse
from perfkit.render import page
from perfkit.render.cells import figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series

PERFKIT = [sys.executable, "-m", "perfkit"]
ALLOWED = {"ddp": 0.10, "fsdp": 0.15, "zero1": 0.15}
GPU = {"gpt2": ("gpt2", 16, 1024), "llama": ("1b", 4, 2048)}  # preset, sequences a rank, their length
CPU = {"gpt2": ("tiny", 8, 64), "llama": ("tiny", 8, 64)}
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Job:
    """One run: a workload on `ranks` ranks, shared in one way ("": one process alone)."""

    workload: str
    ranks: int
    way: str

    @property
    def name(self) -> str:
        """The name of its run folder."""
        return f"{self.workload}-{self.ranks}{f'-{self.way}' if self.way else ''}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One backend of one job: times in ns a step, of the slowest rank; None where it is not known."""

    workload: str
    backend: str
    ranks: int
    way: str
    status: str
    step: float | None
    low: float | None
    high: float | None
    memory: float | None
    rate: float | None
    predicted: float | None
    exposed: float | None = None
    waiting: float | None = None
    bus: float | None = None  # of the largest collective, bytes/s
    roof: float | None = None

    @property
    def off(self) -> float | None:
        """Return the relative error of the predicted step."""
        return self.predicted / self.step - 1 if self.predicted and self.step and self.status == "ok" else None


def main() -> int:
    """Measure what is left within the limit; show what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", help="default: bf16 on a GPU, fp32 on a CPU")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--workload", default="gpt2,llama")
    parser.add_argument("--parallel", default="ddp,fsdp,zero1")
    parser.add_argument("--backend", default="eager,compile,llmc")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--limit", type=float, default=570.0, help="seconds of this call")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling"))
    options = parser.parse_args()
    options.dtype = options.dtype or ("fp32" if options.device == "cpu" else "bf16")
    options.until = time.monotonic() + options.limit
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = list(jobs(options))
    left = measured(wanted, options)
    rows = [row for job in wanted for row in rows_of(job, options)]
    write(rows, options)
    print(f"{len(wanted) - len(left)} of {len(wanted)} jobs are there.", *(f"left: {job.name}" for job in left))
    wrong = any(row.status in ("wrong", "failed") for row in rows)
    far = [row for row in rows if row.off is not None and abs(row.off) > ALLOWED[row.way]]
    return 1 if wrong or far else 3 if left else 0


def jobs(options: Any) -> Iterator[Job]:
    """Each workload alone, then by every way on one rank and on more."""
    counts = sorted({int(n) for n in options.ranks.split(",")} | {1})
    for workload in options.workload.split(","):
        yield Job(workload, 1, "")
        for way in options.parallel.split(","):
            for ranks in counts:
                yield Job(workload, ranks, way)


def measured(wanted: Sequence[Job], options: Any) -> list[Job]:
    """Run what is missing; return the jobs that are left."""
    longest = 0.0
    for ranks in sorted({job.ranks for job in wanted} - {1}):
        mark = options.out / f"ceilings-{ranks}.done"
        if not mark.is_file() and run(["ceilings", "--ranks", str(ranks), "--device", options.device], ranks, options):
            mark.touch()
    for job in wanted:
        if done(job, options) or time.monotonic() + longest > options.until:
            continue
        began = time.monotonic()
        preset, batch, length = (CPU if options.device == "cpu" else GPU)[job.workload]
        command = ["run", job.workload, "--preset", preset, "-B", str(batch * job.ranks), "-T", str(length)]
        command += ["--backend", options.backend, "--skip-unavailable", "--steps", str(options.steps)]
        command += ["--device", options.device, "--dtype", options.dtype, "--out", str(options.out / job.name)]
        command += ["--variant", "sdpa"] if options.device != "cpu" else []
        command += ["--ranks", str(job.ranks), "--parallel", job.way] if job.way else []
        run(command, job.ranks, options)
        longest = max(longest, time.monotonic() - began)
    return [job for job in wanted if not done(job, options)]


def done(job: Job, options: Any) -> bool:
    """Return whether its run folder is whole, from this or an earlier call."""
    return (options.out / job.name / "run.json").is_file()


def run(arguments: Sequence[str], ranks: int, options: Any) -> bool:
    """Run perfkit until the limit, on a CPU on as many cores as there are ranks; return whether it ended well."""
    print("$ perfkit", *arguments, flush=True)
    try:
        ended = subprocess.run(
            [*PERFKIT, *arguments], check=False, stdout=subprocess.DEVNULL,
            timeout=max(options.until - time.monotonic(), 1.0), **cores_of(ranks, options),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def cores_of(ranks: int, options: Any) -> dict[str, Any]:
    """How a process is started that has a core a rank, on a CPU. What is kept of a machine, such as the sweeps of its
    collectives, is kept for this number of cores: whoever reads it must have as many."""
    if options.device != "cpu":
        return {}
    cores = CORES[:ranks]
    pin = (lambda: os.sched_setaffinity(0, cores)) if hasattr(os, "sched_setaffinity") else None
    return {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "preexec_fn": pin}


def rows_of(job: Job, options: Any) -> Iterator[Row]:
    """A row for each backend of a job that is there."""
    folder = options.out / job.name
    if not done(job, options):
        return
    for backend in analyse(readers.read_run(folder)).backends:
        if backend.status == "unavailable":
            continue
        step = backend.step
        beside = answer(["report", str(folder / backend.name)], job, options) if job.ranks > 1 else {}
        parts = beside.get("parts", [])
        talks: list[dict[str, Any]] = beside.get("collectives", [])
        largest = max(talks, key=lambda c: c["message_bytes"] or 0.0, default={})
        yield Row(
            workload=job.workload, backend=backend.name, ranks=job.ranks, way=job.way, status=backend.status,
            step=step.value if step else None, low=step.low if step else None, high=step.high if step else None,
            memory=backend.peak_memory_bytes, rate=backend.samples_per_second,
            predicted=predicted(job, backend.name, options),
            exposed=max((p["exposed_ns"] for p in parts), default=None),
            waiting=max((p["waiting_ns"] for p in parts), default=None),
            bus=largest.get("bus_bandwidth"), roof=largest.get("roof"),
        )  # fmt: skip


def predicted(job: Job, backend: str, options: Any) -> float | None:
    """Return the step predicted from a run of one rank in the same way; None where ranks share cores, or it lacks the
    backend."""
    one = options.out / Job(job.workload, 1, job.way).name
    if job.ranks == 1 or not (one / "run.json").is_file() or (options.device == "cpu" and job.ranks > len(CORES)):
        return None
    found = answer(["scale", str(one), "--ranks", str(job.ranks), "--parallel", job.way, "--scaling", "weak",
                  "--backend", backend], job, options)  # fmt: skip
    return found["points"][0]["step_ns"] if found.get("points") else None


def answer(arguments: Sequence[str], job: Job, options: Any) -> dict[str, Any]:
    """Return the JSON that a command of perfkit prints; {}, and the reason on stderr, where it fails."""
    command = [*PERFKIT, *arguments, "--json"]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, **cores_of(job.ranks, options))
    return json.loads(ended.stdout) if ended.returncode == 0 else {}


def write(rows: Sequence[Row], options: Any) -> None:
    """The table and the plot, as text, Markdown, HTML and JSON."""
    made = Page(
        title=f"Scaling on {options.device}, {options.dtype}",
        settings=["the batch grows with the ranks"],
        verdict=[],
        bad=any(row.status != "ok" for row in rows),
        sections=[Section(table=shown(rows)), Section(figures=list(plots(rows)))],
    )
    print(page.render_text(made))
    texts = {"md": page.render_markdown(made), "html": page.render_html(made)}
    texts["json"] = json.dumps([asdict(row) | {"off": row.off} for row in rows], indent=1) + "\n"
    for ending, text in texts.items():
        (options.out / f"scaling.{ending}").write_text(text)


def shown(rows: Sequence[Row]) -> Any:
    """The rows as a table of workloads, backends and devices, with steps in one unit."""
    scale = units.scale_for([row.step for row in rows if row.step], "ns")
    of_time = {
        name: figures(name.replace("_", " "), [getattr(row, name) for row in rows], "ns", scale=scale)
        for name in ("step", "low", "high", "predicted", "exposed", "waiting")
    }
    return table(
        "Backends and devices",
        words("workload", [row.workload for row in rows], name=True),
        words("backend", [row.backend for row in rows]),
        figures("devices", [row.ranks for row in rows], "count"),
        words("shared by", [row.way for row in rows]),
        words("result", [row.status for row in rows]),
        *of_time.values(),
        figures("off", [row.off for row in rows], "%"),
        figures("a second", [row.rate for row in rows], "count"),
        figures("memory", [row.memory for row in rows], "B"),
        figures("bus", [row.bus for row in rows], "B/s"),
        figures("its roof", [row.roof for row in rows], "B/s"),
    )


def plots(rows: Sequence[Row]) -> Iterator[Figure]:
    """Throughput of each workload against as many single ranks."""
    for workload in dict.fromkeys(row.workload for row in rows):
        mine = [row for row in rows if row.workload == workload and row.rate and row.status == "ok"]
        alone = {row.backend: row.rate for row in mine if not row.way}
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in mine:
            if row.ranks > 1 and alone.get(row.backend) and row.rate:
                line = lines.setdefault(f"{row.backend} {row.way}", [(1.0, 100.0)])
                line.append((float(row.ranks), 100 * row.rate / row.ranks / (alone[row.backend] or 1.0)))
        series = [Series(name=name, x=[x for x, _ in at], y=[y for _, y in at]) for name, at in lines.items()]
        ticks = sorted({x for s in series for x in s.x})
        if series:
            yield Figure(title=f"{workload}: efficiency", x="ranks", y="%", series=series, log_x=True, x_ticks=ticks)


if __name__ == "__main__":
    sys.exit(main())
