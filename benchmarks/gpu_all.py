"""All that perfkit claims of a GPU, measured again: one command that resumes where it stopped.

    python benchmarks/gpu_all.py [--budget MINUTES] [--out DIR] [--only TEXT] [--again TEXT] [--list]
    python benchmarks/gpu_all.py --show [--out DIR]

Ceilings, every CUDA and Triton kernel against fp64 and against PyTorch's own, compute-sanitizer, GPT-2 and DLRM on
every backend and in each precision, CUDA graphs, hardware counters, and what happens when memory runs out or a user
lacks rights (this last job needs root). A job's output and report are kept in --out; a job that ended as it should is
not run again. --budget starts no job that is expected to end later than that (a job knows roughly how long it takes on
an H200). --show prints what is there as Markdown tables: they are those of docs/benchmarks.md. Exit code 1 when a job
ended otherwise than it should.

--gpus 0,1,2,3 works on so many GPUs at once: a job has one GPU, its own ceilings and kernels, and an even share of the
cores, as on a smaller machine; the longest begin first. Without it jobs run one by one, on whatever GPUs are visible.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.cache import cache_dir

PERFKIT = [sys.executable, "-m", "perfkit"]
HERE = Path(__file__).resolve().parent
GPT2 = "eager,compile,thunder,thunder-llmc,llmc"
SLACK = 3  # times its expected minutes, and a job is stopped


@dataclass(frozen=True)
class Job:
    """A command, about how many minutes it takes, the files to keep of it, and the exit code that it should have."""

    name: str
    command: list[str]
    minutes: float
    code: int = 0
    needs: str = ""  # a program that must be on the PATH
    keep: tuple[str, ...] = field(default=())
    after: str = ""  # the job whose folder of work it reads


def run(name: str, minutes: float, *arguments: str, code: int = 0, needs: str = "") -> Job:
    """A job of `perfkit run` on the GPU, of which the report is kept."""
    out = ["--out", f"{{work}}/{name}", "--overwrite"]
    keep = () if code else (f"{{work}}/{name}/report.json", f"{{work}}/{name}/report.html")
    return Job(name, [*PERFKIT, "run", *arguments, "--device", "cuda", *out], minutes, code, needs, keep)


def gpt2(dtype: str, batch: int, *more: str, backends: str = GPT2, minutes: float = 4.5, suffix: str = "") -> Job:
    name = f"gpt2-{dtype}-B{batch}{suffix}"
    size = ["--dtype", dtype, "-B", str(batch), "-T", "1024"]
    return run(name, minutes, "gpt2", *size, "--backend", backends, "--skip-unavailable", *more)


JOBS = [
    Job("doctor", [*PERFKIT, "doctor"], 0.5),
    Job("ceilings", [*PERFKIT, "ceilings", "--device", "cuda"], 0.7),
    Job("kernels", [sys.executable, str(HERE / "gpu_kernels.py"), "--batch", "16", "--json", "{work}/kernels.json"],
        2, keep=("{work}/kernels.json",)),
    Job("bench", [*PERFKIT, "bench", "gelu", "softmax", "matmul", "--device", "cuda", "--dtype", "fp32,bf16"], 1.5),
    Job("sanitize", [sys.executable, str(HERE / "gpu_sanitize.py")], 5, needs="compute-sanitizer"),
    gpt2("bf16", 16),
    gpt2("bf16", 16, "--variant", "sdpa", suffix="-sdpa", backends="eager,compile,thunder,llmc", minutes=3.5),
    gpt2("bf16", 4),
    gpt2("tf32", 16),
    gpt2("tf32", 4),
    gpt2("fp32", 16, minutes=7),
    gpt2("fp32", 4),
    gpt2("bf16", 4, "--variant", "sdpa", "--executors", "sdpa,torchcompile", backends="thunder", minutes=2,
         suffix="-thunder-compile"),
    gpt2("bf16", 4, "--compile-mode", "reduce-overhead", backends="compile", suffix="-graphs", minutes=2),
    run("dlrm-main", 2.5, "dlrm", "--preset", "main", "-B", "2048",
        "--backend", "eager,compile,thunder,triton,kernels"),
    run("dlrm-index", 0.7, "dlrm", "--preset", "small", "--variant", "index-hash-list", "-B", "2048", "--backend",
        "eager"),
    run("lora", 1.2, "lora", "--preset", "main", "--backend", "eager,compile,thunder,triton", "--skip-unavailable"),
    Job("sweep", [*PERFKIT, "sweep", "mlp", "--dim", "width=1024,2048,4096,8192", "--backend", "eager,compile",
                  "--device", "cuda", "--out", "{work}/sweep"], 2.5),
    Job("compare", [*PERFKIT, "compare", "gpt2", "--dtype", "bf16", "-B", "4", "-T", "1024", "--backend",
                    "eager,compile,thunder-llmc,llmc", "--device", "cuda", "--time-limit", "480",
                    "--out", "{work}/compare", "--overwrite"], 10),
    Job("placement", [sys.executable, str(HERE / "placement.py"), "--device", "cuda"], 3),
    run("counters", 4, "gpt2", "--dtype", "bf16", "-B", "4", "-T", "256", "--one-layer", "--profiler", "ncu",
        "--backend", "eager,llmc", needs="ncu"),
    Job("llmc-style", [*PERFKIT, "report", "{work}/counters/llmc/counters.ncu-rep", "--style", "llmc"], 0.2,
        after="counters"),
    Job("permissions", [sys.executable, str(HERE / "gpu_permissions.py")], 2, needs="ncu"),
    run("out-of-memory", 1.5, "gpt2", "--dtype", "bf16", "-B", "1024", "-T", "1024", "--steps", "1", code=1),
]  # fmt: skip


def main() -> int:
    """Run what is due, or show what is there; 1 when a job ended otherwise than it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0, metavar="MINUTES", help="60 by default")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-all"), help="where results are kept; resumes there")
    parser.add_argument("--work", type=Path, help="where whole run folders go; in --out by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="jobs whose name holds this; several by commas")
    parser.add_argument("--again", default=None, metavar="TEXT", help="run these again although they are there")
    parser.add_argument("--gpus", default="", metavar="LIST", help="work on these at once: 0,1,2,3")
    parser.add_argument("--list", action="store_true", help="what there is, and what of it is done")
    parser.add_argument("--show", action="store_true", help="the results that are there, as Markdown")
    arguments = parser.parse_args()
    results = Results(arguments.out)
    if arguments.list:
        for job in JOBS:
            print(f"{job.name:32} {job.minutes:4.1f} min  {results.state(job)}")
        return 0
    if arguments.show:
        print(results.markdown())
        return 0
    work = arguments.work or arguments.out / "runs"
    jobs = [j for j in JOBS if named(j, arguments.only) and (results.due(j) or named(j, arguments.again, False))]
    lanes = lanes_of(arguments.gpus)
    queue = Queue(jobs, arguments.budget, work, longest_first=len(lanes) > 1)
    with ThreadPoolExecutor(len(lanes)) as pool:
        return int(any([*pool.map(lambda lane: work_through(lane, queue, results), lanes)]))


@dataclass(frozen=True)
class Lane:
    """Where jobs run one after the other: the cores they may use and what is set for them; all of it when empty."""

    cores: frozenset[int] = frozenset()
    environment: dict[str, str] = field(default_factory=dict)


def lanes_of(gpus: str) -> list[Lane]:
    """A lane for each GPU of `gpus`, with its share of the cores; one that is left as it is without any."""
    numbers = [n.strip() for n in gpus.split(",") if n.strip()]
    if not numbers:
        return [Lane()]
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(numbers))
    return [Lane(frozenset(cores[i * share : (i + 1) * share] or cores),
                 {"CUDA_VISIBLE_DEVICES": gpu, "PERFKIT_CACHE": str(cache_dir() / f"gpu{gpu}")})
            for i, gpu in enumerate(numbers)]  # fmt: skip


class Queue:
    """The jobs that are due, for the lanes to take from; says which are left out, and why."""

    def __init__(self, jobs: list[Job], budget: float, work: Path, longest_first: bool) -> None:
        self.waiting = sorted(jobs, key=lambda job: -job.minutes) if longest_first else list(jobs)
        self.ends = time.monotonic() + budget * 60
        self.work = work
        self.running: set[str] = set()
        self.changed = threading.Condition()

    def take(self) -> Job | None:
        """The next job that may begin, once there is one; None when there will be none."""
        with self.changed:
            while self.waiting:
                busy = self.running | {job.name for job in self.waiting}
                ready = next((job for job in self.waiting if job.after not in busy), None)
                if ready is None:
                    self.changed.wait()
                    continue
                self.waiting.remove(ready)
                reason = self.why_not(ready)
                if not reason:
                    self.running.add(ready.name)
                    return ready
                say(f"{ready.name}: {reason}")
            return None

    def why_not(self, job: Job) -> str:
        """Why `job` cannot be run; "" where it can."""
        left = (self.ends - time.monotonic()) / 60
        if job.needs and shutil.which(job.needs) is None:
            return f"left out, there is no {job.needs} here"
        if job.after and not (self.work / job.after).is_dir():
            return f"left out, it reads what {job.after} made (--again {job.after})"
        if job.minutes > left:
            return f"left for later, {job.minutes:.1f} minutes do not fit in {left:.1f}"
        return ""

    def done(self, job: Job) -> None:
        with self.changed:
            self.running.remove(job.name)
            self.changed.notify_all()


def work_through(lane: Lane, queue: Queue, results: Results) -> bool:
    """Run jobs of `queue` as long as there are any; whether one ended otherwise than it should."""
    if lane.cores:
        os.sched_setaffinity(0, lane.cores)  # this thread's, which its programs inherit
    failed = False
    while (job := queue.take()) is not None:
        try:
            failed |= not results.run(job, queue.work, lane)
        finally:
            queue.done(job)
    return failed


def named(job: Job, wanted: str | None, otherwise: bool = True) -> bool:
    return any(text in job.name for text in wanted.split(",")) if wanted else otherwise


def say(line: str) -> None:
    """A line in one piece, although several lanes write."""
    print(line + "\n", end="", flush=True)


class Results:
    """The folder of results: `state.json`, and for each job its output and the files it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state.json"
        self.done: dict[str, dict[str, Any]] = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self.lock = threading.Lock()

    def due(self, job: Job) -> bool:
        return not self.done.get(job.name, {}).get("right")

    def state(self, job: Job) -> str:
        known = self.done.get(job.name)
        if known is None:
            return "not run"
        return f"{'done' if known['right'] else 'FAILED'} in {known['seconds']:.0f} s, {known['when']}"

    def run(self, job: Job, work: Path, lane: Lane) -> bool:
        """Run one job, keep its output, and say how it ended."""
        self.folder.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        say(f"{job.name} …")
        began = time.monotonic()
        command = [part.format(work=work) for part in job.command]
        output = self.folder / f"{job.name}.txt"
        with output.open("w") as file:
            try:
                code = subprocess.run(
                    command, stdout=file, stderr=subprocess.STDOUT, timeout=job.minutes * 60 * SLACK, check=False,
                    env={**os.environ, **lane.environment},
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                code = 124
        for kept in (Path(k.format(work=work)) for k in job.keep):
            if kept.is_file():
                shutil.copy(kept, self.folder / f"{job.name}{kept.suffix}")
        right = code == job.code
        seconds = time.monotonic() - began
        self._write(job, {"right": right, "code": code, "seconds": seconds, "when": time.strftime("%Y-%m-%d %H:%M"),
                          "command": shown(job)})  # fmt: skip
        ended = "as it should" if right else f"exit code {code}, see {output}"
        say(f"{job.name}: {ended}, {seconds:.0f} s")
        return right

    def _write(self, job: Job, entry: dict[str, Any]) -> None:
        with self.lock:
            self.done[job.name] = entry
            temporary = self.file.with_suffix(".new")
            temporary.write_text(json.dumps(self.done, indent=1) + "\n")
            os.replace(temporary, self.file)

    def markdown(self) -> str:
        """The tables of docs/benchmarks.md: a section a job that has a report, in the order of `JOBS`."""
        parts = [section(self.folder / f"{job.name}.json", self.done[job.name]) for job in JOBS
                 if job.name in self.done and (self.folder / f"{job.name}.json").is_file()]  # fmt: skip
        return "\n\n".join(part for part in parts if part)


def shown(job: Job) -> str:
    """The command as a person would type it."""
    words = [w for w in job.command if not w.startswith("{work}") and w not in ("--out", "--overwrite", "--json")]
    return " ".join(words).replace(" ".join(PERFKIT), "perfkit").replace(sys.executable, "python").replace(
        f"{HERE}/", "benchmarks/"
    )  # fmt: skip


def section(file: Path, entry: dict[str, Any]) -> str:
    """One run as a table: step with its interval, speed-up, memory, MFU and efficiency of each backend."""
    report = json.loads(file.read_text())
    if "backends" not in report:
        return ""
    lines = [f"### `{entry['command']}`", "",
             "| backend | result | step, ms | 95 % interval | × eager | memory, GiB | MFU | efficiency |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for backend in report["backends"]:
        if backend["timed"] or backend["status"] != "ok":  # eager may have run as the reference alone
            lines.append(f"| {' | '.join(cells(backend))} |")
    return "\n".join(lines)


def cells(backend: dict[str, Any]) -> list[str]:
    """A backend's row of `section`: times in ms, memory in GiB, MFU and efficiency in percent, – where unknown."""
    step, speedup = backend.get("step"), backend.get("speedup")
    if not step:
        return [backend["name"], backend["status"], backend.get("reason") or "–", *["–"] * 5]
    return [
        backend["name"],
        "correct" if backend["status"] == "ok" else backend["status"],
        f"{step['value'] / 1e6:.2f}",
        f"{step['low'] / 1e6:.2f}–{step['high'] / 1e6:.2f}",
        f"{speedup['value']:.2f}" if speedup else "–",
        f"{backend['peak_memory_bytes'] / 2**30:.2f}" if backend.get("peak_memory_bytes") else "–",
        f"{backend['mfu']:.0%}" if backend.get("mfu") else "–",
        f"{backend['efficiency']:.0%}" if backend.get("efficiency") else "–",
    ]


if __name__ == "__main__":
    sys.exit(main())
