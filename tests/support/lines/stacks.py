"""A trace of torch.profiler with stacks: python -m tests.support.lines.stacks FILE."""

import sys

import torch


def augment(x):
    for i in range(3):
        x = x + x[i, 0].item()
    return x


def step(model, x):
    model(augment(x)).square().sum().backward()


def record(path, **options):
    """Write the trace of two steps to `path`."""
    model, x = torch.nn.Linear(8, 4), torch.randn(4, 8)
    step(model, x)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, **options) as profiler:
        for _ in range(2):
            step(model, x)
    profiler.export_chrome_trace(str(path))


if __name__ == "__main__":
    record(sys.argv[1])
