"""All that perfkit claims of a GPU, measured again: one command that resumes where it stopped.

    python benchmarks/gpu_all.py [--budget MINUTES] [--out DIR] [--only TEXT] [--again TEXT] [--list]
    python benchmarks/gpu_all.py --show

Ceilings, every CUDA and Triton kernel against fp64 and against PyTorch's own, compute-sanitizer, GPT-2 and DLRM on
every backend and in each precision, Llama, CUDA graphs, hardware counters, and what happens when memory runs out or a
user lacks rights (this last job needs root). A job's output and report are kept in --out. What came of each job
(commit, GPU, the rows of its table, its last lines) goes to `gpu-all.json` in this folder, which is committed: a job
that ended as it should is not run again, on this machine or on the next. --budget starts no job that is expected to
end later than that (a job knows roughly how long it takes on an H200). --show prints what is there as Markdown tables:
they are those of docs/benchmarks.md. Exit code 1 when a job did not end as it should.

--gpus 0,1,2,3 works on these GPUs at once: a job has one GPU, its own ceilings and kernels, and an even share of the
cores, as on a smaller machine; the longest begin first. Without it jobs run one by one, on whatever GPUs are visible.
Jobs that measure no time may share one: `--gpus 0,0,0 --only doctor,sanitize,placement,permissions`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_check import commit_of_checkout  # noqa: E402
from benchmarks.gpu_results import Results  # noqa: E402
from perfkit.cache import cache_dir  # noqa: E402

PERFKIT = [sys.executable, "-m", "perfkit"]
HERE = Path(__file__).resolve().parent
GPT2 = "eager,compile,thunder-llmc,llmc"
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


def gpt2(dtype: str, batch: int, *more: str, backends: str = GPT2, minutes: float = 2.2, suffix: str = "") -> Job:
    """A job that runs GPT-2 at T = 1024 on `backends`; `minutes` is how long it may take."""
    name = f"gpt2-{dtype}-B{batch}{suffix}"
    size = ["--dtype", dtype, "-B", str(batch), "-T", "1024"]
    return run(name, minutes, "gpt2", *size, "--backend", backends, "--skip-unavailable", *more)


def llama(parts: str, minutes: float, *more: str) -> Job:
    """Parts of `llama_gpu.py`: its goals are printed with the figures, reached or not."""
    command = [sys.executable, str(HERE / "llama_gpu.py"), "--measure", "--only", parts, *more]
    return Job(f"llama-{parts.replace(',', '-')}", command, minutes)


JOBS = [
    Job("doctor", [*PERFKIT, "doctor"], 0.5),
    Job("ceilings", [*PERFKIT, "ceilings", "--device", "cuda"], 0.7),
    Job("kernels", [sys.executable, str(HERE / "gpu_kernels.py"), "--batch", "16", "--json", "{work}/kernels.json"],
        2, keep=("{work}/kernels.json",)),
    Job("bench", [*PERFKIT, "bench", "gelu", "softmax", "matmul", "--device", "cuda", "--dtype", "fp32,bf16"], 1.5),
    Job("sanitize", [sys.executable, str(HERE / "gpu_sanitize.py")], 5, needs="compute-sanitizer"),
    gpt2("bf16", 16, backends=f"{GPT2},thunder", minutes=3.5),
    gpt2("bf16", 16, "--variant", "sdpa", suffix="-sdpa"),
    gpt2("bf16", 4),
    gpt2("bf16", 4, "--variant", "sdpa", suffix="-sdpa"),
    gpt2("tf32", 16, minutes=2.5),
    gpt2("tf32", 4),
    gpt2("fp32", 16, minutes=4),
    gpt2("fp32", 4, minutes=2.5),
    gpt2("bf16", 4, "--variant", "sdpa", "--executors", "sdpa,torchcompile", backends="thunder", minutes=2,
         suffix="-thunder-compile"),
    gpt2("bf16", 4, "--compile-mode", "reduce-overhead", backends="compile", suffix="-graphs", minutes=1.3),
    run("dlrm-main", 2.5, "dlrm", "--preset", "main", "-B", "2048",
        "--backend", "eager,compile,thunder,triton,kernels"),
    run("dlrm-index", 0.7, "dlrm", "--preset", "small", "--variant", "index-hash-list", "-B", "2048", "--backend",
        "eager"),
    run("lora", 1.2, "lora", "--preset", "main", "--backend", "eager,compile,thunder,triton", "--skip-unavailable"),
    llama("kernels,head", 2.5),
    llama("train", 4.5),
    llama("decode", 4),
    Job("sweep", [*PERFKIT, "sweep", "mlp", "--dim", "width=1024,2048,4096,8192", "--backend", "eager,compile",
                  "--device", "cuda", "--out", "{work}/sweep"], 2.5),
    Job("compare", [*PERFKIT, "compare", "gpt2", "--dtype", "bf16", "-B", "4", "-T", "1024", "--backend",
                    "compile,thunder-llmc,llmc", "--device", "cuda", "--time-limit", "300",
                    "--out", "{work}/compare", "--overwrite"], 6),
    Job("placement", [sys.executable, str(HERE / "placement.py"), "--device", "cuda"], 3),
    run("counters", 4, "gpt2", "--dtype", "bf16", "-B", "4", "-T", "256", "--one-layer", "--profiler", "ncu",
        "--backend", "eager,llmc", needs="ncu"),
    Job("llmc-style", [*PERFKIT, "report", "{work}/counters/llmc/counters.ncu-rep", "--style", "llmc"], 0.2,
        after="counters"),
    Job("permissions", [sys.executable, str(HERE / "gpu_permissions.py")], 2, needs="ncu"),
    run("out-of-memory", 1.5, "gpt2", "--dtype", "bf16", "-B", "1024", "-T", "1024", "--steps", "1", code=1),
]  # fmt: skip


def main() -> int:
    """Run the jobs that are missing, or show what is there; return 1 when a job did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0, metavar="MINUTES", help="60 by default")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-all"), help="where outputs and reports are kept")
    parser.add_argument("--work", type=Path, help="where whole run folders go; in --out by default")
    parser.add_argument("--state", type=Path, default=HERE / "gpu-all.json", help="what came of each job")
    parser.add_argument("--commit", default="", help="the commit that is measured, where this is not a checkout of git")
    parser.add_argument("--only", default="", metavar="TEXT", help="jobs whose name holds this; several by commas")
    parser.add_argument("--again", default=None, metavar="TEXT", help="run these again although they are there")
    parser.add_argument("--gpus", default="", metavar="LIST", help="work on these at once: 0,1,2,3")
    parser.add_argument("--list", action="store_true", help="what there is, and what of it is done")
    parser.add_argument("--show", action="store_true", help="the results that are there, as Markdown")
    arguments = parser.parse_args()
    results = Results(arguments.state, arguments.commit or commit_of_checkout())
    if arguments.list:
        for job in JOBS:
            print(f"{job.name:32} {job.minutes:4.1f} min  {results.told(job.name)}")
        return 0
    if arguments.show:
        print(results.markdown([job.name for job in JOBS]))
        return 0
    work = arguments.work or arguments.out / "runs"
    jobs = [j for j in JOBS if named(j, arguments.only) and (results.due(j.name) or named(j, arguments.again, False))]
    lanes = lanes_of(arguments.gpus)
    queue = Queue(jobs, arguments.budget, work, longest_first=len(lanes) > 1)
    with ThreadPoolExecutor(len(lanes)) as pool:
        return int(any([*pool.map(lambda lane: work_through(lane, queue, arguments.out, results), lanes)]))


@dataclass(frozen=True)
class Lane:
    """A place where jobs run one after the other: their cores and their environment; the whole machine when empty."""

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
            return f"left out, {job.needs} is missing here"
        if job.after and not (self.work / job.after).is_dir():
            return f"left out, it reads what {job.after} made (--again {job.after})"
        if job.minutes > left:
            return f"left for later, {job.minutes:.1f} minutes do not fit in {left:.1f}"
        return ""

    def done(self, job: Job) -> None:
        """Take `job` from those that run, and wake those that wait for its place."""
        with self.changed:
            self.running.remove(job.name)
            self.changed.notify_all()


def work_through(lane: Lane, queue: Queue, out: Path, results: Results) -> bool:
    """Run jobs of `queue` as long as there are any; return whether one did not end as it should."""
    if lane.cores:
        os.sched_setaffinity(0, lane.cores)  # this thread's, which its programs inherit
    failed = False
    while (job := queue.take()) is not None:
        try:
            failed |= not carry_out(job, out, queue.work, lane, results)
        finally:
            queue.done(job)
    return failed


def named(job: Job, wanted: str | None, otherwise: bool = True) -> bool:
    """Return whether the job's name holds one of the texts in `wanted` (commas); `otherwise` when none is given."""
    return any(text in job.name for text in wanted.split(",")) if wanted else otherwise


def say(line: str) -> None:
    """A line in one piece, although several lanes write."""
    print(line + "\n", end="", flush=True)


def carry_out(job: Job, out: Path, work: Path, lane: Lane, results: Results) -> bool:
    """Run one job, keep its output and files in `out`, and record in `results` how it ended; return whether as it
    should."""
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    say(f"{job.name} …")
    began = time.monotonic()
    command = [part.format(work=work) for part in job.command]
    output = out / f"{job.name}.txt"
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
            shutil.copy(kept, out / f"{job.name}{kept.suffix}")
    right, seconds = code == job.code, time.monotonic() - began
    results.add(job.name, shown(job), right, code, seconds, output, out / f"{job.name}.json")
    ended = "as it should" if right else f"exit code {code}, see {output}"
    say(f"{job.name}: {ended}, {seconds:.0f} s")
    return right


def shown(job: Job) -> str:
    """The command as a person would type it."""
    words = [w for w in job.command if not w.startswith("{work}") and w not in ("--out", "--overwrite", "--json")]
    return " ".join(words).replace(" ".join(PERFKIT), "perfkit").replace(sys.executable, "python").replace(
        f"{HERE}/", "benchmarks/"
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
