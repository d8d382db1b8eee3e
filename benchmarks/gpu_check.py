"""Check perfkit's numbers on this GPU: `make gpu-check`, at most six minutes with nothing cached.

    python benchmarks/gpu_check.py [--json FILE] [--commit HASH] [--work FOLDER] [--only TEXT]

For every change of capture, backends, readers, kernels or workloads. It runs GPT-2 124M in bf16 (B = 4, T = 256) on
four backends, a small DLRM, a tiny Llama that generates, a workload of a user's own, a program that torch.profiler
recorded, one that replays a CUDA graph, and a capture of ncu that is joined; then it holds what perfkit says against
witnesses that share no code with its readers (`gpu_witness.py`):

    trace checks    all checks of every profile hold
    kernel time     a step's kernel time within 0.1 % of the sum over the trace's JSON
    step time       perfkit's measuring loop within 3 % of CUDA events around the same steps, and of those around the
                    steps of a loop of its own, in turns in one process; the run's figure, of another process, within
                    15 %, or within a factor of two where the step waits for the host for most of its time
    power           the mean draw of steps within 10 % of what the driver's energy counter says
    ncu             its counters are joined onto all that one layer can serve; durations of the ten longest kernels
                    within 10 % of ncu's: where one is not, of the median of three captures
    kernels         every CUDA and Triton kernel in bf16 against fp64
    captured graph  of a training step that a program captured into a CUDA graph nine tenths of the kernel time have a
                    module and FLOP, and its matrix FLOP are those of the same step without a graph
    optimizer       an error of 0.1 % planted in AdamW is found, in CUDA and in Triton

One line a check; exit code 1 when one fails. The results go to `benchmarks/gpu-check.json`, which is committed: with
the digests of the files that were checked, so that a test can say which have changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import gpu_witness, optimizer_faults  # noqa: E402
from benchmarks.gpu_judges import (  # noqa: E402
    COUNTED,
    KERNEL_TIME,
    POWER,
    SAME_WORK,
    TOLD,
    Check,
    against_ncu,
    durations,
    step_times,
    trace_checks,
    within,
)
from perfkit.backends.replay import PASSES  # noqa: E402
from perfkit.run_folder import KERNELS  # noqa: E402

RESULT = ROOT / "benchmarks" / "gpu-check.json"
CHECKED = (
    "perfkit/capture",
    "perfkit/backends",
    "perfkit/inductor",
    "perfkit/readers",
    "perfkit/kernels",
    "perfkit/workloads",
    "perfkit/run",
    "perfkit/handwritten",
    "perfkit/tree",
    "perfkit/correctness.py",
    "perfkit/ranges.py",
    "perfkit/hardware",
    "perfkit/timing.py",
    "kernels",
    "workloads",
)
GPT2 = {"dtype": "bf16", "batch_size": 4, "sequence_length": 256, "device": "cuda"}
GPT2_OPTIONS = ["gpt2", "--dtype", "bf16", "-B", "4", "-T", "256"]
BACKENDS = ("eager", "compile", "thunder-llmc", "llmc")
OWN_STEP, TORCH_STEP = "perfkit:step:", "ProfilerStep#"


def digests() -> dict[str, str]:
    """The digest of each file that a GPU check is about, by path from the repository's root."""
    files = (p for name in CHECKED for p in [ROOT / name, *sorted((ROOT / name).rglob("*"))])
    return {
        p.relative_to(ROOT).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()[:16]
        for p in files
        if p.is_file() and "__pycache__" not in p.parts
    }


def changed_since(result: Mapping[str, Any]) -> list[str]:
    """Files that were added, changed or removed since `result` was written."""
    before, now = result["files"], digests()
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


@dataclass
class Session:
    """The commands in their order, and the checks made so far."""

    work: Path
    only: str = ""
    checks: list[Check] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    witnesses: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def run(self) -> None:
        """Everything, or what `only` names. What needs no quiet GPU runs while the witnesses build and compile."""
        self.part(self.gpt2)
        self.witnesses = {name: self.witness(name) for name in self.times}
        self.side_by_side(self.kernels, self.program, self.optimizer, self.graph)
        self.part(self.steps)
        self.side_by_side(self.dlrm, self.own, self.tokens)
        self.part(self.ncu)

    def side_by_side(self, *parts: Callable[[], None]) -> None:
        """Run parts at once, and wait for all of them."""
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(self.part, parts))

    def part(self, part: Callable[[], None]) -> None:
        """Run a part that `only` names. A check that cannot be made has failed, and the others go on."""
        if self.only in part.__name__:
            try:
                part()
            except Exception as error:
                self.add(Check(part.__name__, False, note=f"{type(error).__name__}: {str(error)[:300]}"))

    def add(self, *checks: Check) -> None:
        """Keep checks and print each with the seconds since the session began."""
        self.checks += checks
        for check in checks:
            print(f"[{time.monotonic() - self.began:4.0f} s] {check.line()}", flush=True)

    def perfkit(self, *arguments: str | Path, to: str = "") -> str:
        """Return the output of a perfkit command. Its stderr is kept in `work`, and is shown where it fails."""
        log = self.work / f"{to or arguments[0]}.log"
        with log.open("w") as errors:
            done = subprocess.run(
                [sys.executable, "-m", "perfkit", *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            )
        if done.returncode > 1 or not done.stdout:  # 1: a backend of a run failed, and its report says which
            words = " ".join(map(str, arguments))
            raise RuntimeError(f"perfkit {words} ended with {done.returncode}: {log.read_text()[-400:]}")
        return done.stdout

    def run_folder(self, name: str, *arguments: str | Path) -> dict[str, Any]:
        """The report of `perfkit run`, by backend, after the checks that every run must pass."""
        folder = self.work / name
        printed = self.perfkit("run", *arguments, "--device", "cuda", "--out", folder, "--overwrite", "--json", to=name)
        backends = {b["name"]: b for b in json.loads(printed)["backends"] if b["timed"]}
        for backend, found in backends.items():
            what = f"{name} {backend}"
            self.add(Check(f"correct, {what}", found["status"] == "ok", note=found["reason"]))
            self.add(trace_checks(what, found))
            witness = gpu_witness.kernel_ns(next((folder / backend).glob("*.pt.trace.json.gz")), OWN_STEP)
            self.add(within(f"kernel time, {what}", found["kernel_ns"], witness, KERNEL_TIME))
        return backends

    def gpt2(self) -> None:
        """Run GPT-2 on all backends; the times of its steps and their kernels, in ns, serve later parts."""
        found = self.run_folder("gpt2", *GPT2_OPTIONS, "--backend", ",".join(BACKENDS))
        self.times = {name: (b["step"]["value"], b["kernel_ns"]) for name, b in found.items()}

    def witness(self, backend: str) -> subprocess.Popen[str]:
        """A process that builds GPT-2 on the backend and waits, to time its steps by CUDA events."""
        script = [sys.executable, str(ROOT / "benchmarks" / "gpu_witness.py"), "steps", "gpt2", backend]
        with (self.work / f"witness-{backend}.log").open("w") as log:
            return subprocess.Popen(
                [*script, json.dumps(GPT2)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=search_path(),
            )

    def steps(self) -> None:
        """Step times by CUDA events, one backend after the other, once all witnesses have built theirs."""
        for process in self.witnesses.values():
            _line(process, gpu_witness.READY)
        for name, process in self.witnesses.items():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            said = _line(process, gpu_witness.TIMES)
            process.wait()
            if not said:
                raise RuntimeError(f"the steps of {name} were not timed: see {self.work}/witness-{name}.log")
            found = json.loads(said)
            ours, counted = found.pop("watts")
            note = f"{ours or 0:.0f} W by its samples, {counted:.0f} by the energy counter"
            self.add(*step_times(f"gpt2 {name}", *self.times[name], **found))
            self.add(within(f"power, gpt2 {name}", ours, counted, POWER, note))

    def kernels(self) -> None:
        """Check every GPU kernel in bf16 against fp64."""
        script = [sys.executable, str(ROOT / "benchmarks" / "gpu_kernels.py"), "--check-only", "--dtype", "bf16"]
        done = subprocess.run(script, capture_output=True, text=True, env=search_path())
        lines = (done.stdout + done.stderr).strip().splitlines()
        wrong = [line for line in lines if line.startswith("WRONG")]
        said = [line for line in lines if line.startswith("#")]
        self.add(Check("kernels against fp64", done.returncode == 0, note="; ".join(wrong or said or lines[-1:])))

    def dlrm(self) -> None:
        """Check a run of a small DLRM."""
        self.run_folder("dlrm", "dlrm", "--preset", "small", "--backend", "eager,kernels")

    def own(self) -> None:
        """Check a run of a user's own workload."""
        self.run_folder("own", ROOT / "examples" / "my_model.py", "--preset", "wide", "--backend", "eager")

    def tokens(self) -> None:
        """A small Llama that generates tokens: right, and its passes are replayed in timed steps."""
        size = ["--preset", "tiny", "--generate", "12", "--prompt", "16", "-B", "2", "--dtype", "bf16"]
        found = self.run_folder("tokens", "llama", *size, "--backend", "kernels,llmc")
        for name, backend in found.items():
            self.add(Check(f"passes are replayed, tokens {name}", PASSES in backend["warnings"]))

    def program(self) -> None:
        """A trace that plain torch.profiler wrote."""
        trace = self.work / "program.pt.trace.json"
        script = [sys.executable, str(ROOT / "benchmarks" / "gpu_witness.py"), "program", str(trace)]
        subprocess.run(script, check=True, capture_output=True)
        (found,) = json.loads(self.perfkit("report", trace, "--json"))["backends"]
        self.add(trace_checks("a program's trace", found))
        witness = gpu_witness.kernel_ns(trace, TORCH_STEP)
        self.add(within("kernel time, a program's trace", found["kernel_ns"], witness, KERNEL_TIME))

    def graph(self) -> None:
        """A training script that captures its whole step into a CUDA graph, and the same without one: the graph's
        kernels have the work of the launches that it was captured from."""
        import perfkit

        script: list[str | Path] = [
            sys.executable,
            ROOT / "tests" / "support" / "programs" / "gpt2.py",
            "--device",
            "cuda",
            "--steps",
            "12",
        ]
        flop: dict[str, float] = {}
        for name, more in (("plain", []), ("graph", ["--graph"])):
            out = self.work / f"program-{name}"
            self.perfkit("capture", "--warmup", "4", "--out", out, "--", *script, *more, to=name)
            (found,) = json.loads(self.perfkit("report", out, "--json", to=f"report-{name}"))["backends"]
            frame = perfkit.read(out).tables["program"].frame
            inside = frame[frame["step"] >= 0]
            flop[name] = float(inside.filter(like="flop_matrix").sum().sum()) / inside["step"].nunique()
        self.add(trace_checks("a program's graph", found))
        known = min(found["coverage"]["module"], found["coverage"]["flop"])
        note = f"{known:.1%} of its kernel time has a module and FLOP"
        self.add(Check("a program's graph is known from its capture", known >= TOLD, known, TOLD, note))
        note = f"{flop['graph']:.6g} FLOP a step against {flop['plain']:.6g}"
        self.add(within("matrix FLOP of a program's graph", flop["graph"], flop["plain"], SAME_WORK, note))

    def ncu(self) -> None:
        """A run whose counters are joined, and durations of its trace against ncu's."""
        if shutil.which("ncu") is None:
            raise RuntimeError("ncu is not on the PATH")
        import perfkit

        options = ["--profiler", "ncu", "--one-layer", "--cache-control", "none", "--backend", "eager"]
        found = self.run_folder("ncu", *GPT2_OPTIONS, *options)
        folder = self.work / "ncu" / "eager"
        trace = _of_layers(perfkit.read(folder.parent).tables["eager"].frame)
        counted = _of_layers(perfkit.read(folder / "counters.ncu-rep").table.frame)
        counters = trace["instructions_origin"] == "counter"
        known = float(trace["duration_ns"][counters].sum() / trace["duration_ns"].sum())
        note = f"{known:.1%} of the kernel time before the optimizer has counters"
        self.add(Check("ncu's counters are joined", found["eager"]["status"] == "ok" and known >= COUNTED, note=note))
        traced, launches = (durations(frame.to_dict("records")) for frame in (trace, counted))
        checks = list(against_ncu("gpt2 eager", traced, launches))
        if not all(check.ok for check in checks):
            self.capture_again(folder, launches)
            checks = list(against_ncu("gpt2 eager", traced, launches))
        self.add(*checks)

    def capture_again(self, folder: Path, launches: dict[tuple[Any, ...], list[float]]) -> None:
        """Add two more captures of a backend's folder to `launches`: a single launch of a short kernel says little."""
        from perfkit.capture.nsight import joining, ncu
        from perfkit.run import counters
        from perfkit.run_folder import read_manifest

        plan = counters.NsightPlan(
            tool="ncu", one_layer=True, ncu=ncu.NcuOptions(cache_control="none", profiler_api=True)
        )
        settings, layers = read_manifest(folder.parent).settings, joining.layers_of(folder / KERNELS)
        for number in (2, 3):
            copy = Path(shutil.copytree(folder, self.work / f"ncu-{number}"))
            counters.add(plan, settings, "eager", copy, lambda text: None, lambda: layers)
            more = _of_layers(joining.kernel_table(copy / joining.COUNTERS).frame)
            for kernel, found in durations(more.to_dict("records")).items():
                launches[kernel] += found

    def optimizer(self) -> None:
        """Errors of 0.1 % planted in AdamW's terms are found, in CUDA and in Triton: side by side, for time."""
        languages = optimizer_faults.LANGUAGES["cuda"]
        with ThreadPoolExecutor() as pool:
            all_found = list(pool.map(lambda language: optimizer_faults.outcomes(language, "cuda"), languages))
        for language, found in zip(languages, all_found, strict=True):
            wrong = [str(outcome) for outcome in found if not outcome.right]
            note = "; ".join(wrong) or f"{len(found)} verdicts are as they must be"
            self.add(Check(f"errors planted in AdamW, {language}", not wrong, note=note))

    def result(self, commit: str) -> dict[str, Any]:
        """Return the content of `gpu-check.json`."""
        import torch

        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()
        return {
            "commit": commit, "date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(),
            "driver": driver[0] if driver else "unknown", "torch": torch.__version__, "only": self.only,
            "seconds": round(time.monotonic() - self.began), "ok": all(check.ok for check in self.checks),
            "checks": [asdict(check) for check in self.checks], "files": digests(),
        }  # fmt: skip


def _of_layers(frame: Any) -> Any:
    """Kernels of all passes but the optimizer, whose launches are over all parameters: of one layer they are others."""
    return frame[(frame["kind"] == "gpu_kernel") & frame["grid_x"].notna() & (frame["pass"] != "optimizer")]


def _line(process: subprocess.Popen[str], start: str) -> str:
    """The rest of the process's next line that begins with `start`; "" when it ends without one."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    return ""


def search_path() -> dict[str, str]:
    """The environment in which a script imports perfkit from this checkout."""
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), known)))}


def commit_of_checkout() -> str:
    """The commit that is checked out, with "+" where files differ from it; "unknown" without git."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        status = ["git", "status", "--porcelain", "--untracked-files=no"]
        dirty = subprocess.run(status, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("+" if dirty else "")


def main() -> int:
    """Check this machine's GPU; return 1 when a check fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results go; without --only, gpu-check.json in this folder")
    parser.add_argument("--commit", default="", help="the commit that is checked, where this is not a checkout of git")
    parser.add_argument("--work", type=Path, help="where the runs go; a temporary folder by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="parts whose name holds this")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA GPU on this machine. Run this on one that has a GPU.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="perfkit-gpu-check-") as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        os.environ.update(search_path())
        session = Session(work, arguments.only)
        session.run()
    result = session.result(arguments.commit or commit_of_checkout())
    to = arguments.json or (None if arguments.only else RESULT)
    if to:
        to.write_text(json.dumps(result, indent=1) + "\n")
    failed = sum(not check.ok for check in session.checks)
    made = len(session.checks)
    print(f"{made - failed} of {made} checks hold, in {result['seconds']} s" + (f"; {to}" if to else ""))
    return int(failed > 0 or not session.checks)


if __name__ == "__main__":
    sys.exit(main())
