"""Programs that watch themselves: python profilers.py cprofile|schedule|autograd|tracemalloc|setprofile|settrace|…"""

import collections
import cProfile
import os
import pstats
import sys
import tracemalloc

import torch
from torch import nn

STEPS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
numbers = torch.Generator().manual_seed(1)


def step():
    x = torch.randn(8, 32, generator=numbers)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def show(averages):
    """Print how often each event happened."""
    print(sorted((one.key, one.count) for one in averages if one.count))


def cprofile():
    """cProfile over all steps counts calls of the program's and of torch's functions."""
    with cProfile.Profile() as watch:
        losses = [step() for _ in range(STEPS)]
    calls = pstats.Stats(watch).stats
    files = (__file__, os.path.dirname(torch.__file__))
    wanted = {"step", "forward", "zero_grad", "_call_impl", "backward", "sgd"}
    print(sorted((name, one[0]) for (file, _, name), one in calls.items() if name in wanted and file.startswith(files)))
    print(f"{sum(losses):.8f}")


def schedule():
    """torch.profiler with a schedule of three cycles."""
    ready = []
    plan = torch.profiler.schedule(wait=4, warmup=1, active=3, repeat=3)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan, with_stack=True, with_modules=True,
        on_trace_ready=lambda one: ready.append(one.key_averages()),
    ) as watch:  # fmt: skip
        for _ in range(STEPS):
            step()
            watch.step()
    for averages in ready:
        show(one for one in averages if one.key.startswith(("aten::", "autograd::")))


def autograd():
    """The older profiler, from the fifth step to the tenth, and once more at the end."""
    for number in range(STEPS):
        if number in (5, STEPS - 2):
            watch = torch.autograd.profiler.profile(record_shapes=True, use_kineto=number == 5)
            watch.__enter__()
        with torch.profiler.record_function("my step"):
            step()
        if number in (10, STEPS - 1):
            watch.__exit__(None, None, None)
            show(watch.key_averages())


def tracemalloc_():
    """Python's allocations by the lines of this file."""
    tracemalloc.start(5)
    kept = [step() for _ in range(STEPS)]
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
    print(len(kept), bool(snapshot.statistics("lineno")), tracemalloc.is_tracing())
    tracemalloc.stop()


def hook(install, current, wanted):
    """A hook of the program's own stays in place, and sees the program's calls."""
    calls = collections.Counter()

    def seen(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename == __file__:
            calls[frame.f_code.co_name] += 1
        return seen if wanted == "trace" else None

    install(seen)
    losses = [step() for _ in range(STEPS)]
    print(current() is seen, sorted(calls.items()))
    install(None)
    print(f"{sum(losses):.8f}")


def setprofile():
    hook(sys.setprofile, sys.getprofile, "profile")


def settrace():
    hook(sys.settrace, sys.gettrace, "trace")


def observer():
    """Operators by an execution trace observer, for the first fifteen steps."""
    import json
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        watch = torch.profiler.ExecutionTraceObserver().register_callback(file.name)
        watch.start()
        for _ in range(15):
            step()
        watch.stop()
        watch.unregister_callback()
        names = collections.Counter(node["name"] for node in json.load(file)["nodes"])
    for _ in range(STEPS - 15):
        step()
    print(sorted(names.items()))


def epochs():
    """Ranges over several steps end in other profiles than they began in: perfkit's, or one of the program's own."""
    opened = []
    for number in range(STEPS):
        for _ in range(2000 if 3 < number < 8 else 0):
            opened.append((number, torch.profiler.record_function("epoch").__enter__()))
        step()
        while opened and opened[0][0] <= number - 2:
            opened.pop(0)[1].__exit__(None, None, None)
    print(len(opened), step())


def itself():
    """Is a profiler on? The program asks in each step, and has none."""
    from torch.autograd import _profiler_enabled

    print([step() for _ in range(STEPS)][-1], _profiler_enabled(), sys.getprofile(), sys.gettrace())


globals()[{"tracemalloc": "tracemalloc_"}.get(sys.argv[1], sys.argv[1])]()
