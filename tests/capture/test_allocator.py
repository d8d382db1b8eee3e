"""An allocator that keeps what is freed: the second block of a size lands on the pages of the first."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from perfkit import allocator

HALF = 64_000_000  # bytes: a block of that size is mapped apart otherwise


@pytest.mark.skipif(allocator.glibc() is None, reason="the C library is not glibc")
def test_a_freed_block_comes_back_with_its_pages():
    """In a process of its own: what is set is set for good."""
    script = f"""
        import ctypes, json, resource
        from perfkit import allocator

        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

        def used():
            before = faults()
            block = library.malloc({HALF})
            ctypes.memset(block, 1, {HALF})
            library.free(block)
            return (faults() - before) * resource.getpagesize()

        library = allocator.glibc()
        usual = [used(), used()]
        said = [allocator.keeps_freed(), allocator.keep_freed(), allocator.keep_freed(), allocator.keeps_freed()]
        kept = [used(), used()]
        print(json.dumps([usual, said, kept]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    usual, said, kept = json.loads(done.stdout)
    assert said == [False, True, True, True]
    assert min(usual) > 0.9 * HALF and kept[0] > 0.5 * HALF and kept[1] < 0.01 * HALF


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    monkeypatch.setattr(allocator, "_kept", False)  # another test of this process may have trained with Thunder
    assert allocator.glibc() is None and not allocator.keep_freed()
