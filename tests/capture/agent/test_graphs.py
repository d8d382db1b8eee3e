"""Captures of CUDA graphs in a program: what is recorded of them and when nothing is, by graphs of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perfkit import ranges
from perfkit.capture.agent.order import Order, captures
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.recording import graphs as module
from perfkit.capture.agent.recording.graphs import GraphCaptures
from perfkit.capture.agent.recording.recorder import RECORDING, Recorder
from perfkit.capture.agent.steps.rounds import key_of


class Graph:
    """As `torch.cuda.CUDAGraph`, without a GPU."""

    fails = ""

    def capture_begin(self, pool: Any = None) -> str:
        if self.fails == "begin":
            raise RuntimeError("no capture")
        return "begun"

    def capture_end(self) -> None:
        if self.fails == "end":
            raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GraphCaptures:
    of_threads = module.profilers.of_threads
    monkeypatch.setattr(module.profilers, "of_threads", lambda *_: of_threads(False, False, True))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", type("CUDAGraph", (Graph,), dict(vars(Graph))))
    made = GraphCaptures(Recorder(Order(), tmp_path / "process-1"))
    made.install(Patches())
    return made


def capture(graph: Any, work: Callable[[], Any] = lambda: torch.ones(4) + 1) -> None:
    assert graph.capture_begin(pool=None) == "begun"
    work()
    graph.capture_end()


def names(path: Path) -> set[str]:
    return {event["name"] for event in json.loads(path.read_text())["traceEvents"]}


def test_each_capture_has_a_trace_and_each_replay_tells_of_which_it_is(
    recording: GraphCaptures, tmp_path: Path
) -> None:
    first, second, other = (torch.cuda.CUDAGraph() for _ in range(3))
    capture(first)
    assert not recording.capturing
    capture(second, lambda: torch.ones(4) * 2)
    found = captures(tmp_path / "process-1")
    assert found.keys() == {0, 1}
    assert {"aten::add", "perfkit:pass:forward"} <= names(found[0]) and "aten::mul" in names(found[1])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for graph in (second, other, first):
            with recording.replaying(graph):
                torch.ones(1)
    told = [event.name for event in profiler.events() if event.name.startswith("perfkit:graph:")]
    assert told == ["perfkit:graph:1", "perfkit:graph:0"]


def test_a_replay_is_a_call_of_the_model_that_its_graph_holds(recording: GraphCaptures) -> None:
    """An engine calls its model for prompts and replays a graph for each size of a batch: all are its iterations."""
    model, head, graph, training = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), *(torch.cuda.CUDAGraph() for _ in "ab")
    recording.called(model, "model")  # outside of any capture
    assert recording.model_of(graph) is None
    with torch.no_grad():
        capture(graph, lambda: [recording.called(one, "role") for one in (model, head)])
    capture(training, lambda: recording.called(model, "role"))
    assert recording.model_of(graph) == (key_of(model), "role") and recording.model_of(training) is None
    recording.called(model, "model")
    assert recording.model_of(training) is None


def test_passes_and_modules_are_marked_while_a_capture_is_recorded(recording: GraphCaptures) -> None:
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    assert recording.capturing
    assert not recording._session.is_touched_here  # what the program does meanwhile is its own
    graph.capture_end()
    assert not recording.capturing


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_a_capture_that_fails_leaves_nothing_switched_on(recording: GraphCaptures, tmp_path: Path, fails: str) -> None:
    graph = torch.cuda.CUDAGraph()
    graph.fails = fails
    with pytest.raises(RuntimeError):
        capture(graph)
    assert not recording.capturing and not ranges.listening()
    assert captures(tmp_path / "process-1") == {}
    graph.fails = ""
    capture(graph)
    assert captures(tmp_path / "process-1").keys() == {0}


def test_nothing_is_recorded_of_a_compiler_beside_another_profiler_or_while_steps_are(
    recording: GraphCaptures, tmp_path: Path
) -> None:
    space: dict[str, Any] = {"__name__": "torch._inductor.cudagraph_trees", "capture": capture}
    exec("def record(graph):\n    capture(graph)", space)
    space["record"](torch.cuda.CUDAGraph())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        capture(torch.cuda.CUDAGraph())
    recording._recorder.state = RECORDING
    capture(torch.cuda.CUDAGraph())
    assert captures(tmp_path / "process-1") == {}


def test_a_recording_that_cannot_begin_is_switched_off(
    recording: GraphCaptures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: bool) -> None:
        raise RuntimeError("no passes here")

    monkeypatch.setattr(recording._session, "record", broken)
    capture(torch.cuda.CUDAGraph())
    assert not recording.capturing and not ranges.listening()
    assert "no passes here" in recording._recorder.result.notes[0]


def test_what_goes_wrong_is_said_and_never_the_programs(
    recording: GraphCaptures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: bool) -> Any:
        raise RuntimeError("no profiler here")

    monkeypatch.setattr(module.profilers, "of_threads", broken)
    capture(torch.cuda.CUDAGraph())
    capture(torch.cuda.CUDAGraph())
    [note] = recording._recorder.result.notes
    assert note == "What a CUDA graph holds was not recorded: RuntimeError: no profiler here."


@pytest.mark.parametrize("version", ["12.4", "11.8", None])
def test_nothing_is_recorded_where_a_second_session_may_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", type("CUDAGraph", (Graph,), dict(vars(Graph))))
    GraphCaptures(Recorder(Order(), tmp_path)).install(Patches())
    capture(torch.cuda.CUDAGraph())
    assert captures(tmp_path) == {}


def test_recording_stops_when_it_has_taken_long_enough(
    recording: GraphCaptures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_S", 0.0)
    capture(torch.cuda.CUDAGraph())
    capture(torch.cuda.CUDAGraph())
    assert captures(recording._recorder.folder).keys() == {0}
