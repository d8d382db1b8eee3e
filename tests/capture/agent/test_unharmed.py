"""Programs of many kinds (in `unharmed/`), which must print and end under `perfkit capture` as they do alone."""

import os
import re
import sys

import pytest

import perfkit
from perfkit.capture.agent.order import LINES, Order
from tests.support.programs.captured import ENVIRONMENT, HERE, alone, capture

KINDS = {
    "threads": ("pool", "logger", "trainers", "evaluator"),
    "processes": ("spawn", "fork", "loader", "child", "hogwild"),
    "loaders": ("numbers", "iterable", "fails", "spawn", "forkserver", "left"),
    "optimizers": ("lbfgs", "two", "anew", "functional", "averaged", "scheduled", "hooked", "own"),
    "compiling": ("breaks", "shapes", "autograd", "step", "stance", "fixed", "strict", "graphs", "explained", "traced"),
    "profilers": ("cprofile", "schedule", "autograd", "tracemalloc", "setprofile", "settrace", "observer", "itself"),
    "modes": ("dispatch", "function", "nested", "inference", "anomaly", "deterministic", "default"),
    "recomputing": ("reentrant", "plain", "nested", "selective", "offloaded"),
    "transforms": ("vmap", "hessian", "script", "export", "fx", "subclass", "parametrized"),
    "hooks": ("tensors", "modules", "graph", "call", "late", "backward", "everywhere"),
    "endings": (
        *(f"{way} 12" for way in ("exit", "raise", "text", "now", "kill", "abort", "terminate", "handled")),
        *(f"{way} 12" for way in ("interrupt", "caught", "forward", "backward", "recovered", "replaced")),
        *(f"{way} 4" for way in ("exit", "interrupt", "caught", "forward", "backward", "recovered", "hook", "thread")),
    ),
    "introspection": ("",),
    "references": ("models", "batches", "cycle", "many"),
    "inputs": ("lazy", "equal", "attributes", "fake", "strange", "names"),
    "updates": ("wrapped", "penalty", "reentrant", "thread", "instances"),
    "interrupted": ("handler", "generator", "context"),
    "surroundings": ("numbers", "environment", "closed", "folder"),
    "servers": ("tasks", "pool", "socket"),
    "loops": ("trainer", "unsynced", "functions", "nested", "scripted", "exported", "pools"),
    "objects": ("copied", "called", "partial", "graphs", "overridden", "finalized", "methods"),
    "systems": ("spawned", "signals", "leaving", "serving", "shared", "streams"),
}
PROGRAMS = [f"{name} {kind}".strip() for name, kinds in KINDS.items() for kind in kinds]
# Where a program fails inside what perfkit watches, its traceback has perfkit's frames between its own.
OWN = os.path.dirname(perfkit.__file__).encode()
FRAME = re.compile(rb'  File "' + re.escape(OWN) + rb"/[^\n]*\n(?:    [^\n]*\n)*")
# Torch's profiler, the program's or perfkit's, looks for GPUs once a process, and says so where a build for CUDA finds
# no driver; it leaves a thread, of which Python 3.12 warns where the program forks.
PROFILED = re.compile(
    rb"ERROR:[^\n]*DeviceProperties\.cpp[^\n]*\n|"
    rb"[^\n]*DeprecationWarning: This process [^\n]* use of fork\(\)[^\n]*\n(?:  [^\n]*\n)?"
)
NUMBER = re.compile(rb"0x[0-9a-f]+|\d+")  # times, addresses and process numbers


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def printed(stderr):
    return NUMBER.sub(b"0", PROFILED.sub(b"", FRAME.sub(b"", stderr))).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_unharmed(program, tmp_path):
    name, *arguments = program.split()
    words = [sys.executable, str(HERE / "unharmed" / f"{name}.py"), *arguments]
    found, without = capture(words, tmp_path), alone(words)
    assert found.stdout.splitlines() == without.stdout.splitlines()
    assert printed(found.stderr) == printed(without.stderr)
    assert found.code == (without.returncode if without.returncode >= 0 else 128 - without.returncode)


def test_the_programs_own_profile_during_the_warmup_has_none_of_perfkits_ranges(tmp_path):
    """The passes of six warm-up steps were in it."""
    words = [sys.executable, str(HERE / "unharmed" / "profilers.py"), "autograd"]
    assert capture(words, tmp_path, Order(warmup=12, steps=2)).stdout == alone(words).stdout


@pytest.mark.parametrize("memory", [False, True])
def test_a_range_may_end_in_another_session_than_it_began_in(memory, tmp_path):
    """PyTorch wrote the ends of ranges over several steps into the freed memory of perfkit's first session: exit code
    139, where lines were recorded after it."""
    words = [sys.executable, str(HERE / "unharmed" / "profilers.py"), "epochs"]
    found, without = capture(words, tmp_path, Order(warmup=3, steps=2, lines=True, memory=memory)), alone(words)
    assert (found.code, found.stdout) == (without.returncode, without.stdout)
    assert memory or printed(found.stderr) == printed(without.stderr)  # where memory is recorded, PyTorch warns of it
    [(folder, result)] = found.recorded
    assert (folder / LINES).is_file() and len(result.step_ns) == 2


@pytest.mark.parametrize("warmup", [1, 3])
def test_allocations_of_steps_in_threads_that_come_and_go(warmup, tmp_path):
    """The session of one thread ended in another. One step before the recording does not show that they change."""
    words = [sys.executable, str(HERE / "unharmed" / "updates.py"), "thread"]
    found, without = capture(words, tmp_path, Order(warmup=warmup, steps=1, memory=True)), alone(words)
    assert (found.code, found.stdout) == (without.returncode, without.stdout)
    [(_, result)] = found.results
    if warmup > 1:
        assert result.recorded and result.notes[0].startswith("No allocations: the steps are of several threads")
    else:
        assert not result.recorded and "has to end in the thread in which it began" in result.problem
