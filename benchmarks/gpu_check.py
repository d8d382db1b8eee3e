"""Whether perfkit tells the truth of this GPU: `make gpu-check`, at most six minutes with nothing cached.

    python benchmarks/gpu_check.py [--json FILE] [--commit HASH] [--work FOLDER] [--only PARTS]

For every change of capture, backends, readers of traces, kernels or workloads. What is checked:

    trace checks    every check of every profile holds: GPT-2 124M in bf16 (B = 4, T = 256) on four backends, a small
                    DLRM, a workload of a user's own, a program that torch.profiler recorded, and a run joined with ncu
    correct         those runs agree with their references
    kernel time     of a step, within 0.1 % of the sum over the trace's JSON
    step time       within 3 % of CUDA events around the same steps, in a loop of its own right before and after
    ncu             the ten kernels that take most time, within 10 % of what ncu measures of the same launches
    kernels         every CUDA and Triton kernel in bf16 against fp64
    optimizer       errors of 0.1 % planted in AdamW are found, in CUDA and in Triton

The witnesses share no code with perfkit's readers: `checking/witness.py`. Everything builds and compiles side by side;
what measures then runs one after the other, while nothing else does. One line a check; exit code 1 when one fails. The
results go to `benchmarks/gpu-check.json`, which is committed: with the digests of the files that were checked, so that
a test can say which have changed since.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.checking import judges, witness  # noqa: E402
from benchmarks.checking.files import commit_of_checkout, write_result  # noqa: E402
from benchmarks.checking.judges import Check  # noqa: E402
from benchmarks.checking.processes import HeldRun, Process, Witness, environment, script  # noqa: E402

RESULT = ROOT / "benchmarks" / "gpu-check.json"
GPT2 = {"dtype": "bf16", "batch_size": 4, "sequence_length": 256, "device": "cuda"}
GPT2_OPTIONS = ("gpt2", "--dtype", "bf16", "-B", "4", "-T", "256", "--steps", "30")
BACKENDS = ("eager", "compile", "thunder-llmc", "llmc")
UNDER_NCU = ("eager", "llmc")
PARTS = ("kernels", "program", "gpt2", "dlrm", "own", "ncu")
OWN_STEP, TORCH_STEP = "perfkit:step:", "ProfilerStep#"
NCU_OPTIONS = (
    "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
    "--metrics", witness.DURATION, "--force-overwrite",
)  # fmt: skip

# What a part does until its first `yield` starts it, until its second waits until nothing of it runs, then it measures.
Part = Iterator[None]
P = TypeVar("P", bound=Process)


class Session:
    """The parts of the check, and the checks made so far. What they leave goes to the folder `work`."""

    def __init__(self, work: Path, only: Sequence[str] = ()) -> None:
        self.work, self.only = work, tuple(only)
        self.checks: list[Check] = []
        self._began = time.monotonic()
        self._processes: list[Process] = []

    def run(self) -> None:
        """All parts, or those that `only` names. What cannot be checked has failed, and the others go on."""
        parts = {name: self.part(name) for name in PARTS if name in (self.only or PARTS)}
        try:
            self.say("measuring the ceilings, unless they are known")
            subprocess.run(self.perfkit("ceilings", "--device", "cuda"), env=environment(), capture_output=True)
            for stage in ("starting", "preparing", "measuring"):
                for name in list(parts):
                    self.say(f"{stage}: {name}")
                    self._advance(name, parts)
        finally:
            for process in self._processes:
                process.close()

    def part(self, name: str) -> Part:
        make: Callable[[], Part] = getattr(self, name)
        return make()

    def _advance(self, name: str, parts: dict[str, Part]) -> None:
        try:
            next(parts[name])
        except StopIteration:
            del parts[name]
        except Exception as error:
            del parts[name]
            self.add(Check(name, False, note=f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"))

    def say(self, text: str) -> None:
        print(f"[{self.seconds:4.0f} s] {text}", flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def add(self, *checks: Check) -> None:
        for check in checks:
            self.checks.append(check)
            self.say(check.line())

    # ---- what needs no quiet GPU ----

    def kernels(self) -> Part:
        command = script("gpu_kernels.py", "--check-only", "--dtype", "bf16")
        yield from self._script("kernels against fp64", ["nice", *command], wrong="WRONG")

    def optimizer(self) -> Part:
        """Both languages side by side, in processes of their own: a kernel that replaces another does so for good."""
        parts = [
            self._script(
                f"errors of 0.1 % in AdamW, {language}",
                script("optimizer_faults.py", "--device", "cuda", "--language", language),
                wrong="WRONG",
            )
            for language in ("cuda", "triton")
        ]
        for part in parts:
            next(part)
        yield
        for part in parts:
            next(part, None)

    def _script(self, name: str, command: Sequence[str], wrong: str) -> Part:
        process = self.started(Process(command, self.work / f"{name.replace(' ', '-')}.log"))
        yield
        code, printed = process.result()
        self.add(judges.script_says(name, code, printed or process.last_words(), wrong))

    def program(self) -> Part:
        """A trace that plain torch.profiler wrote."""
        trace = self.work / "program.pt.trace.json"
        recording = self.started(Process(script("checking/witness.py", "program", trace), self.work / "program.log"))
        yield
        if recording.result()[0]:
            raise RuntimeError(recording.last_words())
        report = Process(self.perfkit("report", trace, "--json"), self.work / "program-report.log")
        (found,) = report.backends()
        self.add(judges.trace_checks("a program's trace", found), self.kernel_time("a program's trace", trace, found))

    # ---- what measures ----

    def gpt2(self) -> Part:
        """Four backends; their steps are timed once more by CUDA events, before and after."""
        run = self.held("gpt2", *GPT2_OPTIONS, "--backend", ",".join(BACKENDS))
        clocks = {
            name: self.started(Witness(self.work, f"steps-{name}", (), "steps", "gpt2", name, json.dumps(GPT2)))
            for name in BACKENDS
        }
        yield
        run.await_prepared()
        for clock in clocks.values():
            clock.await_ready()
        yield
        times = {name: clock.step_times() for name, clock in clocks.items()}
        found = self.judged("gpt2", run)
        for name, clock in reversed(clocks.items()):
            times[name] += clock.step_times()
            clock.close()
        for name in BACKENDS:
            step = ((found.get(name) or {}).get("step") or {}).get("value")
            by_events = statistics.median(times[name])
            self.add(judges.within(f"step time, gpt2 {name}", step, by_events, judges.STEP_TIME))

    def dlrm(self) -> Part:
        yield from self.profiled("dlrm", "dlrm", "--preset", "small", "--backend", "eager,kernels")

    def own(self) -> Part:
        model = shutil.copy(ROOT / "examples" / "my_model.py", self.work)
        yield from self.profiled("own", model, "--preset", "wide")

    def profiled(self, name: str, *arguments: str | Path) -> Part:
        run = self.held(name, *arguments)
        yield
        run.await_prepared()
        yield
        self.judged(name, run)

    def ncu(self) -> Part:
        """A run whose counters are joined; then kernel durations of the run `gpt2` against ncu's own."""
        if shutil.which("ncu") is None:
            raise RuntimeError("there is no ncu on the PATH")
        run = self.held("ncu", *GPT2_OPTIONS, "--profiler", "ncu", "--one-layer")
        yield
        run.await_prepared()
        yield
        launchers = {name: self.under_ncu(name) for name in UNDER_NCU}  # they build while the run captures
        for name, backend in self.judged("ncu", run).items():
            self.add(judges.joined(f"gpt2 {name}", backend))
        for launcher in launchers.values():
            launcher.await_ready()
        for name, launcher in launchers.items():
            launcher.go()
            code, _ = launcher.result()
            if code:
                raise RuntimeError(launcher.last_words())
            self.add(*judges.against_ncu(f"gpt2 {name}", self.launches(name), self.counted(name)))

    # ---- helpers ----

    def perfkit(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "perfkit", *map(str, arguments)]

    def started(self, process: P) -> P:
        """The process, which is ended with the session."""
        self._processes.append(process)
        return process

    def held(self, name: str, *arguments: str | Path) -> HeldRun:
        out = ("--device", "cuda", "--out", self.work / name, "--overwrite", "--json")
        return self.started(HeldRun(self.perfkit("run", *arguments, *out), self.work / f"{name}.log"))

    def judged(self, name: str, run: HeldRun) -> dict[str, Mapping[str, Any]]:
        """Let the run measure, check every backend of it, and give what is reported of each."""
        run.go_on()
        found: dict[str, Mapping[str, Any]] = {b["name"]: b for b in run.backends() if b["timed"]}
        for backend, said in found.items():
            what = f"{name} {backend}"
            self.add(judges.correct(what, said), judges.trace_checks(what, said))
            trace = next((self.work / name / backend).glob("*.pt.trace.json.gz"), None)
            self.add(self.kernel_time(what, trace, said))
        return found

    def kernel_time(self, what: str, trace: Path | None, said: Mapping[str, Any]) -> Check:
        mark = TORCH_STEP if said["kind"] != "run" else OWN_STEP
        by_json = witness.kernel_ns(trace, mark) if trace else None
        return judges.within(f"kernel time, {what}", said.get("kernel_ns"), by_json, judges.KERNEL_TIME)

    def under_ncu(self, backend: str) -> Witness:
        report = self.work / f"ncu-{backend}.ncu-rep"
        command = ["ncu", *NCU_OPTIONS, "--export", str(report)]
        launches = ("launches", "gpt2", backend, json.dumps(GPT2))
        return self.started(Witness(self.work, f"ncu-{backend}", command, *launches))

    def counted(self, backend: str) -> list[witness.Launch]:
        """What ncu measured of one step."""
        command = ["ncu", "--import", str(self.work / f"ncu-{backend}.ncu-rep"), "--csv", "--page", "raw"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return witness.launches_of_ncu(printed)

    def launches(self, backend: str) -> list[list[witness.Launch]]:
        """What perfkit says of the kernels of each step that it profiled, in their order."""
        import perfkit

        frame = perfkit.read(self.work / "gpt2").tables[backend].frame
        kernels = frame[(frame["kind"] == "gpu_kernel") & frame["grid_x"].notna()].sort_values("start_ns")
        shape = [f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"]
        return [
            [
                witness.Launch(row["name"], tuple(int(row[n]) for n in shape), float(row["duration_ns"]))
                for row in step.to_dict("records")
            ]
            for _, step in kernels.groupby("step")
        ]


def main() -> int:
    """Check this machine's GPU; 1 when a check fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", type=Path, help="where the results go; without --only, gpu-check.json beside this file"
    )
    parser.add_argument("--commit", default="", help="the commit that is checked, where this is no checkout of git")
    parser.add_argument("--work", type=Path, help="where the runs go and stay; a temporary folder by default")
    parser.add_argument("--only", default="", metavar="PARTS", help=f"some of {','.join(PARTS)}; ncu needs gpt2")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    if set(only) - set(PARTS):
        parser.error(f"--only takes some of {', '.join(PARTS)}, separated by commas.")
    import torch

    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA GPU on this machine. Run this on one that has a GPU.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="perfkit-gpu-check-") as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        session = Session(work, only)
        session.run()
    to = arguments.json or (None if only else RESULT)
    if to:
        write_result(to, arguments.commit or commit_of_checkout(ROOT), only, session.seconds, session.checks, ROOT)
    failed = sum(not check.ok for check in session.checks)
    made = len(session.checks)
    print(f"{made - failed} of {made} checks hold, in {session.seconds:.0f} s" + (f"; {to}" if to else ""))
    return int(failed > 0 or not made)


if __name__ == "__main__":
    sys.exit(main())
