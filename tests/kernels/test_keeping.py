"""An allocator that keeps what is freed: a tensor lands on the pages of the one before it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from functools import partial

import pytest

from perfkit.kernels.c import keeping, native
from tests.support import forks

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kept on Linux only")


def run(script: str, fresh: bool = False) -> object:
    """Return the JSON that `script` prints, in a process of its own: an allocator is set for good. Page faults are
    counted in a `fresh` one, for a fork has those of the pages that it shares."""
    prelude = """
        import json, resource
        import torch
        from perfkit.kernels.c import keeping

        torch.set_num_threads(1)

        def new_bytes(make):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            kept = make()
            del kept
            return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(script)
    start = partial(subprocess.run, capture_output=True, text=True) if fresh else forks.run
    done = start([sys.executable, "-c", text])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_freed_block_comes_back_with_its_pages():
    found = run(
        """
        said = [keeping._kept, keeping.keep_freed(), keeping.keep_freed(), keeping._kept]
        sizes = [100_000, 1_000_003, 16_000_000]  # numbers of four bytes
        make = lambda: [torch.ones(n) for n in sizes]
        first = new_bytes(make)
        print(json.dumps([said, [new_bytes(make) for _ in range(3)]]))
    """,
        fresh=True,
    )
    said, again = found
    assert said == [False, True, True, True]
    assert max(again) < 100_000, "of 68 MB"


def test_small_objects_do_not_break_a_large_place():
    """A pattern that glibc's heap cannot handle: after each tensor something small stays for good."""
    found = run(
        """
        assert keeping.keep_freed()
        stays = []

        def step():
            for n in (10_000_000, 7_000_000):
                tensor = torch.ones(n)
                stays.append(bytearray(700))
                del tensor

        step()
        print(json.dumps([new_bytes(step) for _ in range(3)]))
    """,
        fresh=True,
    )
    assert max(found) < 100_000, "of 68 MB"


def test_blocks_are_told_apart():
    found = run("""
        assert keeping.keep_freed()
        tensors = [torch.full((n,), float(n)) for n in (40_000, 40_000, 36_000, 1, 3_000_000)]
        addresses = [t.data_ptr() for t in tensors]
        del tensors[1]  # its block serves the next of its size or a little less, and no smaller one
        little, less = torch.full((10_000,), 1.0), torch.full((38_000,), 2.0)
        right = all(bool((t == t.numel()).all()) for t in tensors) and bool((less == 2).all())
        grown = torch.empty(50_000).resize_(90_000).fill_(3)
        shared = torch.ones(60_000).share_memory_()
        print(json.dumps([right, less.data_ptr() == addresses[1], little.data_ptr() in addresses,
                          float(grown.sum()), float(shared.sum())]))
    """)
    assert found == [True, True, False, 270_000.0, 60_000.0]


def test_who_allocates_without_a_tensor_is_served():
    """oneDNN asks PyTorch's allocator for plain addresses, and gives them back as such."""
    found = run("""
        import torch.nn.functional as F
        wrong = []

        def multiply(dtype):
            for rows in (3, 64, 512):
                x, w = torch.ones(rows, 128, dtype=dtype), torch.ones(192, 128, dtype=dtype)
                y = F.linear(x, w)
                y += F.conv1d(x[None].transpose(1, 2), w[..., None])[0].T
                if not bool((y == 256).all()):
                    wrong.append([rows, str(dtype)])

        multiply(torch.bfloat16)
        assert keeping.keep_freed()
        for _ in range(3):
            multiply(torch.bfloat16)
            multiply(torch.float32)
        print(json.dumps(wrong))
    """)
    assert found == []


def test_threads_and_the_profiler_see_it():
    found = run("""
        import threading
        from torch.profiler import ProfilerActivity, profile
        assert keeping.keep_freed()
        wrong = []

        def work(value):
            for i in range(200):
                tensor = torch.full((40_000 + i,), float(value))
                if not bool((tensor == value).all()):
                    wrong.append(value)

        threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            tensor = torch.ones(1_000_000)
        print(json.dumps([wrong, sum(e.self_cpu_memory_usage for e in seen.key_averages() if "empty" in e.key)]))
    """)
    assert found == [[], 4_000_000]


def test_no_memory_is_said_by_torch():
    found = run("""
        assert keeping.keep_freed()
        held = [torch.ones(1_000_000) for _ in range(8)]
        del held
        try:
            torch.empty(1 << 60, dtype=torch.uint8)
            said = ""
        except RuntimeError as error:
            said = str(error)
        print(json.dumps([said, float(torch.ones(1_000_000).sum())]))
    """)
    said, total = found
    assert "memory" in said and total == 1_000_000


def test_without_a_compiler_nothing_is_different(monkeypatch):
    monkeypatch.setattr(native, "_built", lambda source: None)
    monkeypatch.setattr(keeping, "_kept", False)  # another test of this process may have trained with Thunder
    assert not keeping.keep_freed() and not keeping._kept


def test_a_worker_keeps_what_is_freed_where_it_was_asked_to():
    found = run("""
        from perfkit.run.worker import Worker
        from perfkit.workloads import find, resolve_settings

        def kept(**options):
            settings = resolve_settings(find("mlp"), allocator="keep")
            Worker(lambda text: None).prepare(settings, "eager", **options)
            return keeping._kept

        print(json.dumps([kept(reference=True), kept()]))
    """)
    assert found == [False, True]


def test_a_machine_that_cannot_keep_says_so(monkeypatch):
    from perfkit.errors import Unavailable
    from perfkit.run import memory

    monkeypatch.setattr(keeping, "keep_freed", lambda: False)
    with pytest.raises(Unavailable, match="--allocator keep needs Linux and a C"):
        memory.keep_freed()
