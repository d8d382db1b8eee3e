"""Room on the heap: made and given back where the C library is glibc, never more than there is memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap

import pytest

from perfkit.capture import heap, memory
from perfkit.kernels.c import keeping


def test_room_is_a_part_of_what_is_available():
    assert heap.room(None, 1e9, 0.0) == heap.room(1e9, None, 0.0) == 0
    assert heap.room(8e9, 4e9, 0.0) == 1_000_000_000
    assert heap.room(8e9, 5e8, 0.0) == 500_000_000, "no more than the process holds already"
    assert heap.room(1e12, 4e9, 0.0) == heap.MOST


def test_a_step_that_takes_fresh_pages_by_itself_gets_no_room():
    assert heap.room(8e9, 5e8, 0.1 * 5e8) == 500_000_000, "few: room changes little"
    assert heap.room(8e9, 3e9, 1.2e9) == 0


def test_a_gpu_another_library_and_kept_tensors_get_none(monkeypatch):
    monkeypatch.setattr(keeping, "_kept", False)  # another test's kernels may have set tensors apart in this process
    with heap.with_room("cuda", 0.0) as size:
        assert size == 0
    with monkeypatch.context() as patched:
        patched.setattr(heap.sys, "platform", "darwin")
        with heap.with_room("cpu", 0.0) as size:
            assert size == 0
    monkeypatch.setattr(keeping, "_kept", True)
    with heap.with_room("cpu", 0.0) as size:
        assert size == 0


@pytest.mark.skipif(heap.glibc() is None or memory.available_bytes() is None, reason="the C library is not glibc")
def test_what_is_allocated_then_lands_on_pages_that_were_touched():
    """In a process of its own: the heap of this one is in no known state."""
    script = """
        import resource
        from perfkit.capture import heap
        heap.room = lambda available, resident, fresh: 64_000_000

        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

        def touch(library):
            before = faults()
            blocks = [library.malloc(100_000) for _ in range(300)]
            for block in blocks:
                heap.ctypes.memset(block, 1, 100_000)
            found = faults() - before
            for block in blocks:
                library.free(block)
            return found

        library = heap.glibc()
        without = touch(library)
        library.malloc_trim(0)
        with heap.with_room("cpu", 0.0) as size:
            assert size == 64_000_000
            within = touch(library)
        print(without, within)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    without, within = map(int, done.stdout.split())
    assert without > 0.9 * 30_000_000 / resource.getpagesize()
    assert within < 0.1 * without
