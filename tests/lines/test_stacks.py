"""Lines of traces that hold stacks of their own, and of steps that are joined by what they call."""

import json
import threading
from functools import partial

import numpy as np
import pytest

from perfkit.analysis import source_lines
from perfkit.capture.agent.lines import line_tracer
from perfkit.readers.kineto.lines import calls
from perfkit.readers.kineto.lines.stacks import SourceFrame, _innermost, is_library
from perfkit.readers.kineto.trace import read_trace
from tests.support.lines.stacks import augment, record
from tests.support.readers.traces import event, mark, op, write

torch = pytest.importorskip("torch")


def first_line(function):
    return function.__code__.co_firstlineno


@pytest.mark.parametrize("with_frames", [True, False])
def test_a_trace_with_stacks_is_used_as_it_is(with_frames, tmp_path):
    """By the frames, which are events, or where these are gone by the call stacks of operators."""
    path = tmp_path / "trace.json"
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    record(path, experimental_config=config)
    if not with_frames:
        path.write_text(path.read_text().replace('"cat": "python_function"', '"cat": "unread"'))
    table = read_trace(path)
    entries = {entry["function"]: entry for entry in table.facts["lines"]}
    assert entries["augment"]["line"] == first_line(augment)
    assert not entries["augment"]["exact"]
    assert entries["augment"]["waits"] == 6  # of 3 in each of two steps
    lines = table.frame.groupby("operator")["line"].agg(set)
    assert all("in augment" in line for line in lines["aten::add"])
    assert all("in step" in line for line in lines["aten::linear"])


def test_the_library_is_told_from_the_users_code():
    """Paths of torch.profiler lack the folders of sys.path."""
    assert is_library("torch/nn/functional.py")
    assert is_library("threading.py")
    assert is_library("/usr/lib/python3.11/contextlib.py")
    assert is_library("/home/me/venv/lib/python3.12/site-packages/mine/a.py")
    assert is_library("<frozen importlib._bootstrap>")
    assert is_library("/home/me/cache/qz/cqzvpgcjhsu5vxjmvfwhbvg6tzhlmn5bz6pqhc3m3cqzvpgcjhsu.py"), "Inductor's"
    assert not is_library("train.py")
    assert not is_library("mine/torch.py")
    assert not is_library("/home/me/torch/train.py")


def test_time_outside_of_the_users_frames_has_no_line(tmp_path):
    """Shares are of all of the host's time, not only of that in frames of the user."""
    function = partial(event, "python_function")
    events = [
        mark("ProfilerStep#1", 0, 1000),
        function("vllm/worker.py(5): prepare", 0, 400),
        function("train.py(3): step", 400, 600),
        function("torch/nn/functional.py(1): relu", 450, 500),
        op("aten::relu", 460, 490),
        function("vllm/worker.py(9): execute", 600, 1000),
        event("cuda_runtime", "cudaLaunchKernel", 640, 660, correlation=1),
        event("kernel", "k", 700, 800, pid=0, tid=7, device=0, stream=7, correlation=1),
    ]
    found = read_trace(write(tmp_path / "t.json", events)).facts
    (line,) = (entry for entry in found["lines"] if entry["host_ns"])
    rest = found["unknown_lines"]
    assert (line["text"], line["host_ns"], rest["host_ns"]) == ("train.py:3 in step (its first line)", 200e3, 800e3)
    assert (line["python_ns"], rest["python_ns"]) == (170e3, 780e3)
    assert (line["idle_ns"], rest["idle_ns"]) == (200e3, 700e3)
    (shown,) = source_lines.by_measure(found, "between_ns")
    assert shown.share == 0.2


def test_generated_code_is_nobodys_wherever_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setattr(line_tracer, "_FOLDERS", None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    assert line_tracer.kind_of(str(tmp_path / "cache" / "ab" / "cab.py")) == line_tracer.LIBRARY
    assert line_tracer.kind_of(str(tmp_path / "train.py")) == line_tracer.USER


def test_the_innermost_frame_of_the_user_in_a_call_stack():
    stack = [
        "<built-in method linear>",
        "torch/nn/modules/linear.py(130): forward",
        "train.py(7): forward",
        "train.py(3): <module>",
    ]
    assert _innermost(stack) == (
        SourceFrame("train.py", 7, "forward", False), SourceFrame("torch/nn/modules/linear.py", 130, "forward", False),
    )  # fmt: skip
    assert _innermost(["", "damaged("]) == (None, None)


def test_calls_are_matched_in_order_and_only_where_it_is_certain():
    assert calls.matched(["a", "b", "c"], ["a", "b", "c"]).tolist() == [0, 1, 2]
    assert calls.matched(["a", "x", "b", "c"], ["a", "b", "c"]).tolist() == [0, -1, 1, 2]
    assert calls.matched(["a", "b"], ["a", "y", "z", "b"]).tolist() == [0, 3]
    assert np.array_equal(calls.matched([], ["a"]), [])
    assert calls.matched(["q"], []).tolist() == [-1]


def _outer(x):
    first = [_inner(x) for _ in range(4)]
    return sum(first) + x.cosh()


def _inner(x):
    y = x.sin()
    return _innermost_call(y)


def _innermost_call(y):
    return y.tan()


def test_ranges_end_with_their_frames_where_marking_ends_in_the_middle_of_calls(monkeypatch, tmp_path):
    """To end them there crashed programs whose step was long."""
    monkeypatch.setattr(line_tracer, "MOST", 8)
    tracer = line_tracer.LineTracer()

    def record():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            tracer.start()
            _outer(torch.ones(3))
            tracer.stop()
        profiler.export_chrome_trace(str(tmp_path / "t.json"))

    thread = threading.Thread(target=record)  # where no frames of pytest are marked
    thread.start()
    thread.join()
    assert tracer.problem == "Source lines are marked for the first 8 lines of a step, and no longer."
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    outer = [e for e in events if e["name"].startswith("perfkit:at:") and e["name"].endswith(": _outer")]
    (last,) = [e for e in events if e["name"] == "aten::cosh"]
    assert any(e["ts"] <= last["ts"] and last["ts"] + last["dur"] <= e["ts"] + e["dur"] for e in outer)
    assert len([e for e in events if e["name"].endswith(": _innermost_call")]) < 4
