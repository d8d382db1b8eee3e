from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perfkit.hardware import identity
from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.cpu import linux_cpu
from perfkit.hardware.identity import comparable, environment, fingerprint, hash_of, memory_class, usable_threads
from tests.support.hardware.fakes import xeon


@pytest.fixture
def cpu(tmp_path):
    return linux_cpu(xeon(tmp_path), frozenset(range(8)))


def test_the_fingerprint_holds_what_matters_and_only_that(cpu):
    base = hash_of(cpu, 4, [])
    assert len(base) == 12
    assert hash_of(copy.deepcopy(cpu), 4, []) == base
    assert hash_of(cpu, 2, []) != base
    assert hash_of(cpu, 4, ["NVIDIA H200"]) != base
    assert hash_of(cpu, 4, [], switched=True) != base
    for change in ({"model": "Other"}, {"stepping": "6/143/9"}, {"quota": 1.0}, {"memory_bytes": 2**34}, {"simd": ()}):
        assert hash_of(msgspec.structs.replace(cpu, **change), 4, []) != base, change
    # A little more memory kept by the firmware, another governor or clock: the same machine.
    for change in ({"memory_bytes": cpu.memory_bytes - 2**28}, {"governor": "performance"}, {"max_frequency_hz": None}):
        assert hash_of(msgspec.structs.replace(cpu, **change), 4, []) == base, change


def test_order_of_gpus_does_not_matter(cpu):
    assert hash_of(cpu, 4, ["A", "B"]) == hash_of(cpu, 4, ["B", "A"])


@pytest.mark.parametrize(
    ("size", "words"), [(25276514304, "32 GiB"), (16 * 2**30 - 2**28, "16 GiB"), (None, "unknown")]
)
def test_memory_class(size, words):
    assert memory_class(size) == words


def test_threads_follow_torch_then_the_environment_then_the_cores(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert usable_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "none")
    assert usable_threads() == identity.read_cpu().usable

    class Torch:
        get_num_threads = staticmethod(lambda: 7)

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert usable_threads() == 7
    assert fingerprint() == fingerprint(7) != fingerprint(6)


def test_the_environment_is_plain_data_and_names_what_measures():
    found = environment()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["fingerprint"] == fingerprint()
    assert found["cpu"]["model"]
    assert found["threads"]["count"] >= 1
    assert found["versions"]["numpy"]
    assert found["python"].startswith(found["python_minor"])
    assert comparable(found, copy.deepcopy(found)) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("versions", "torch"), "1.0", "torch: "),
        (("cpu", "model"), "Other CPU", "CPU: "),
        (("threads", "count"), 99, "threads: "),
        (("threads", "OMP_PROC_BIND"), "close", "thread binding (OMP_PROC_BIND): "),
        (("gpu_names",), ["NVIDIA H200"], "GPUs: "),
        (("compiler",), "clang version 99", "C compiler: "),
        (("os", "system"), "Darwin", "operating system: "),
    ],
)
def test_differences_that_forbid_comparing_are_named(path, value, words):
    one, other = environment(), environment()
    one["versions"]["torch"], one["compiler"] = "2.13.0", "cc 12"
    other["versions"]["torch"], other["compiler"] = "2.13.0", "cc 12"
    place = other
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (difference,) = comparable(one, other)
    assert difference.startswith(words)
    assert "NVIDIA H200" in difference or str(value) in difference


def test_loads_and_clocks_do_not_forbid_comparing():
    one, other = environment(), environment()
    other.update(load_average=[9.0, 9.0, 9.0], cpu_clock_hz=1.0, perfkit="9.9")
    assert comparable(one, other) == []


def test_what_is_not_told_is_no_difference():
    full = environment()
    assert comparable(full, {}) == []
    without = environment()
    without["versions"]["thunder"] = None
    assert comparable(full, without) == []


def test_the_environment_needs_neither_torch_nor_pandas():
    code = (
        "import sys; from perfkit.hardware.identity import environment; environment(); "
        "print([m for m in ('torch', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_library_that_answers_mkls_question_is_seen(tmp_path: Path) -> None:
    """It doubles what MKL reaches on processors that are not Intel's: ceilings without it are another machine's."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "switch.c", tmp_path / "libswitch.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run([*compiler.command, "-shared", "-fPIC", "-o", library, source], check=True)
    code = "from perfkit.hardware.identity import fingerprint, mkl_switched; print(mkl_switched(), fingerprint())"

    def said(**more: str) -> list[str]:
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True)
        return done.stdout.split()

    (without, machine), (with_it, other) = said(), said(LD_PRELOAD=str(library))
    assert (without, with_it) == ("False", "True") and machine != other
