"""Check that an error of 0.1 % in any term of AdamW is found: planted in the catalog's kernel, in C, CUDA and Triton.

    python3 benchmarks/optimizer_faults.py                      C on the CPU: 1 min
    python3 benchmarks/optimizer_faults.py --device cuda        CUDA and Triton on a GPU: 1 min
    TRITON_INTERPRET=1 python3 benchmarks/optimizer_faults.py --language triton       Triton's interpreter: 1 min

Each error is planted in a copy of `kernels/adamw` and looked for in fp32 and bf16 by three checks:

    kernel    the kernel against fp64 (`perfkit.kernels.check`): must find all
    update    what the optimizer changes in a run of GPT-2 tiny with the backend llmc: must find all but an epsilon
              of 1e-8 and a weight decay of 1e-6 a step, which rounding hides in fp32 already
    run       the verdict of that run, in which llmc checks its kernel by itself too: must find all

The kernel without an error must pass all. Exit code 1 where one is not as it must be. llmc runs no Triton: there the
first check is all there is.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FAMILY = ROOT / "kernels" / "adamw"
SOURCES = {"c": "adamw.c", "cuda": "adamw.cu", "triton": "adamw_triton.py"}
LANGUAGES = {"cpu": ("c",), "cuda": ("cuda", "triton")}
RUN = ("c", "cuda")  # the languages of llmc's kernels
DTYPES = ("fp32", "bf16")
NONE = "nothing"
HIDDEN = ("epsilon", "weight decay")  # by rounding, from the check called update

# Planted faults: in each language a text of the source and its replacement.
FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "first moment": {
        "c": ("vec mean = v_load_float(m) * s.beta1 + g * s.one_less_beta1;",
              "vec mean = (v_load_float(m) * s.beta1 + g * s.one_less_beta1) * 1.001f;"),
        "cuda": ("m = n.beta1 * m + n.rest1 * g;", "m = 1.001f * (n.beta1 * m + n.rest1 * g);"),
        "triton": ("first = beta1 * tl.load(m + at, mask=inside) + rest1 * g",
                   "first = (beta1 * tl.load(m + at, mask=inside) + rest1 * g) * 1.001"),
    },
    "second moment": {
        "c": ("vec square = v_load_float(v) * s.beta2 + g * g * s.one_less_beta2;",
              "vec square = (v_load_float(v) * s.beta2 + g * g * s.one_less_beta2) * 1.001f;"),
        "cuda": ("v = n.beta2 * v + n.rest2 * g * g;", "v = 1.001f * (n.beta2 * v + n.rest2 * g * g);"),
        "triton": ("second = beta2 * tl.load(v + at, mask=inside) + rest2 * g * g",
                   "second = (beta2 * tl.load(v + at, mask=inside) + rest2 * g * g) * 1.001"),
    },
    "gradient in the first moment": {
        "c": ("(float)(1.0 - beta1)", "(float)(1.001 * (1.0 - beta1))"),
        "cuda": ("(float)(1.0 - beta1)", "(float)(1.001 * (1.0 - beta1))"),
        "triton": ("beta1, 1.0 - beta1,", "beta1, 1.001 * (1.0 - beta1),"),
    },
    "gradient in the second moment": {
        "c": ("(float)(1.0 - beta2)", "(float)(1.001 * (1.0 - beta2))"),
        "cuda": ("(float)(1.0 - beta2)", "(float)(1.001 * (1.0 - beta2))"),
        "triton": ("beta2, 1.0 - beta2\n", "beta2, 1.001 * (1.0 - beta2)\n"),
    },
    "correction of the first moment": {
        "c": ("(lr / correction1)", "(lr / (1.001 * correction1))"),
        "cuda": ("(lr / correction1)", "(lr / (1.001 * correction1))"),
        "triton": ("lr / correction1,", "lr / (1.001 * correction1),"),
    },
    "correction of the second moment": {
        "c": ("sqrt(correction2)", "sqrt(1.001 * correction2)"),
        "cuda": ("(1.0 / correction2)", "(1.0 / (1.001 * correction2))"),
        "triton": ("1.0 / correction2,", "1.0 / (1.001 * correction2),"),
    },
    "epsilon": {
        "c": ("(float)eps", "(float)(1.001 * eps)"),
        "cuda": ("(float)eps", "(float)(1.001 * eps)"),
        "triton": ("change = eps,", "change = 1.001 * eps,"),
    },
    "weight decay": {
        "c": ("(float)decay", "(float)(1.0 - 1.001 * (1.0 - decay))"),
        "cuda": ("(float)decay", "(float)(1.0 - 1.001 * (1.0 - decay))"),
        "triton": ("eps, decay, lr", "eps, 1.0 - 1.001 * (1.0 - decay), lr"),
    },
    "learning rate": {
        "c": ("(lr / correction1)", "(1.001 * lr / correction1)"),
        "cuda": ("(lr / correction1)", "(1.001 * lr / correction1)"),
        "triton": ("lr / correction1,", "1.001 * lr / correction1,"),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """Result of a check on a planted error: the error farthest beyond its limit, and both figures."""

    fault: str
    language: str
    dtype: str
    check: str  # kernel, update or run
    found: bool
    by: str
    error: float
    allowed: float

    def __str__(self) -> str:
        verdict = "found" if self.found else "passes"
        wrong = "" if self.right else "   WRONG"
        return (
            f"{self.language:7}{self.dtype:5}{self.check:7}{self.fault:33}{verdict:7}"
            f"{self.error:8.1e} of {self.allowed:.1e}  {self.by}{wrong}"
        )

    @property
    def right(self) -> bool:
        """Return whether the check found what it must, and nothing in the unchanged kernel."""
        if self.check == "update" and self.fault in HIDDEN:
            return True
        return self.found == (self.fault != NONE)


def plant(folder: Path, fault: str, language: str) -> Path:
    """A folder of kernels below `folder` with `kernels/adamw`, in which `fault` is planted (NONE: as it is).

    Raises `ValueError` where the source no longer holds the text to replace, or holds it twice.
    """
    shutil.copytree(FAMILY, folder / "adamw", ignore=shutil.ignore_patterns("__pycache__"))
    if fault != NONE:
        source = folder / "adamw" / SOURCES[language]
        before, after = FAULTS[fault][language]
        text = source.read_text()
        if text.count(before) != 1:
            raise ValueError(f"{source.name} holds {before!r} {text.count(before)} times: correct FAULTS.")
        source.write_text(text.replace(before, after))
    return folder


def by_kernel(language: str, device: str, scratch: Path) -> list[Outcome]:
    """Each error, and none, looked for by the check of the fastest version's results against fp64."""
    from perfkit import kernels

    found = []
    for number, fault in enumerate([NONE, *FAULTS]):
        folder = plant(scratch / f"{language}-{number}", fault, language)
        for dtype in DTYPES:
            results = kernels.check(
                "adamw_step", None, dtype, {"N": 100_003}, extra_dirs=[folder], device=device, language=language
            )
            worst = max((e for r in results for e in r.errors), key=lambda e: e.error / e.tolerance)
            found.append(
                Outcome(fault, language, dtype, "kernel", not worst.ok, worst.output, worst.error, worst.tolerance)
            )
    return found


def by_run(language: str, device: str, scratch: Path) -> list[Outcome]:
    """Each error, and none, looked for in the first steps of GPT-2 tiny on llmc, judged as `perfkit run` does."""
    from perfkit import correctness
    from perfkit.correctness import CHECKED_STEPS
    from perfkit.run.stages.reference import BY_EAGER
    from perfkit.run.worker import Worker
    from perfkit.workloads import find, resolve_settings

    def prepared(backend: str, reference: bool = False, **given: object) -> Worker:
        options = {"preset": "tiny", "batch_size": 2, "sequence_length": 32, "device": device, **given}
        worker = Worker(lambda text: None)
        worker.prepare(resolve_settings(find("gpt2"), **options), backend, reference=reference)
        return worker

    def first_steps(worker: Worker, reference: Path) -> correctness.FirstSteps:
        found: correctness.FirstSteps = worker.first_steps(CHECKED_STEPS, str(reference))["found"]
        return found

    def referred(dtype: str) -> tuple[Path, list[float]]:
        """The folder of the reference, and its losses: as many as a run in this precision has."""
        folder = scratch / f"reference-{dtype}"
        folder.mkdir()
        steps = 1 if dtype in BY_EAGER else CHECKED_STEPS
        worker = prepared("eager", reference=True, dtype=dtype)
        return folder, worker.first_steps(steps, str(folder), write=True)["found"].losses

    outcomes = []
    for dtype in DTYPES:
        reference, losses = referred(dtype)
        eager = first_steps(prepared("eager", dtype=dtype), reference)
        for number, fault in enumerate([NONE, *FAULTS]):
            folder = plant(scratch / f"run-{dtype}-{number}", fault, language)
            found = first_steps(prepared("llmc", dtype=dtype, kernel_dirs=(str(folder),)), reference)
            verdict = correctness.judge(dtype, "fp64", found, eager, losses, 64)
            updates = [c for c in verdict.checks if c.name in found.updates]
            for check, among in (("update", updates), ("run", verdict.checks)):
                worst = max(among, key=lambda c: math.inf if c.error is None else c.error / c.allowed)
                error = math.nan if worst.error is None else worst.error
                outcomes.append(Outcome(fault, language, dtype, check, not worst.ok, worst.name, error, worst.allowed))
    return outcomes


def outcomes(language: str, device: str) -> list[Outcome]:
    """All of one language, from a process of its own: kernels that replace others do so until their process ends.

    Raises `RuntimeError` with its last words where the process fails.
    """
    command = [sys.executable, __file__, "--device", device, "--language", language, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.startswith("["):
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return [Outcome(**one) for one in json.loads(done.stdout)]


def in_this_process(language: str, device: str) -> list[Outcome]:
    """`outcomes`, here."""
    with tempfile.TemporaryDirectory() as scratch:
        found = by_kernel(language, device, Path(scratch))
        return found + (by_run(language, device, Path(scratch)) if language in RUN else [])


def main() -> int:
    """Plant faults in the optimizer's kernels; return 1 when the checks of a run miss one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(LANGUAGES), default="cpu")
    parser.add_argument("--language", choices=sorted(SOURCES), help="all of the device by default")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.language:
        found = in_this_process(arguments.language, arguments.device)
    else:
        found = [o for language in LANGUAGES[arguments.device] for o in outcomes(language, arguments.device)]
    if arguments.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        print(*found, sep="\n")
    return int(not all(one.right for one in found))


if __name__ == "__main__":
    sys.exit(main())
