"""When the recorder waits for a GPU, and what it times, by a clock and a GPU of the test's own."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.capture.agent.order import LINES, Order
from perfkit.capture.agent.recording import recorder as module
from perfkit.capture.agent.recording.recorder import DONE, RECORDING, STARTING, WARMING, Recorder
from perfkit.capture.agent.steps.ends import CALL, OPTIMIZER, REPLAY, StepFinder
from perfkit.capture.agent.watch import Watcher

MS = 1_000_000
_PROFILER = {"prepare_trace": lambda: None, "start_trace": lambda: None, "stop_trace": lambda: None} | {
    "experimental_config": ()
}


class Gpu:
    """Each step takes the host 1 ms and the GPU 10, which works at the same time; waiting for it takes what it has
    left."""

    def __init__(self) -> None:
        self.now = self.ready = 0

    def launch(self) -> None:
        self.ready = max(self.ready, self.now) + 10 * MS
        self.now += MS

    def wait(self) -> None:
        self.now = max(self.now, self.ready)


@pytest.mark.parametrize("warmup", [1, 2, 3, 4, 5, 10, 11])
def test_work_that_was_queued_before_the_first_wait_is_in_no_timed_step(
    warmup: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()
    profiler = SimpleNamespace(**_PROFILER)
    monkeypatch.setattr(module, "on_gpu", lambda: True)
    monkeypatch.setattr(module, "gpu_uuid", lambda: "of the test")
    monkeypatch.setattr(module.time, "time", lambda: gpu.now / 1e9)
    monkeypatch.setattr(module, "other_profiler", lambda: False)
    monkeypatch.setattr(module, "synchronize", gpu.wait)
    monkeypatch.setattr(module.profilers, "of_threads", lambda *_: profiler)
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: gpu.now)
    recorder = Recorder(Order(warmup=warmup, steps=1), tmp_path)
    while recorder.state == WARMING:
        gpu.launch()
        recorder.boundary(lambda: True)
    assert set(recorder.result.samples_ns) <= {10 * MS}
    assert len(recorder.result.samples_ns) == max(0, warmup - 1 - (warmup + 1) // 2)
    began = gpu.now - 10 * MS * len(recorder.result.samples_ns)  # the steps that were timed, for who watches the GPU
    assert recorder.result.timed_spans == [(pytest.approx(began / 1e9), gpu.now / 1e9)]
    assert recorder.result.gpu == "of the test"


def test_what_steps_take_from_the_kernel_is_of_those_that_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first steps map everything for the first time: they are left out, as of the time."""
    profiler = SimpleNamespace(**_PROFILER)
    monkeypatch.setattr(module.profilers, "of_threads", lambda *_: profiler)
    taken = [(9e9, 9e9), (9.5e9, 9.1e9), (9.9e9, 9.2e9), *((1e10 + 4096.0 * i, 1e10 + 50.0 * i) for i in range(9))]
    at_boundaries = iter(taken)
    monkeypatch.setattr(module, "paging", lambda: next(at_boundaries))
    recorder = Recorder(Order(warmup=7, steps=1), tmp_path)
    while recorder.state == WARMING:
        recorder.boundary(lambda: True)
    assert len(recorder.result.samples_ns) == 3
    assert (recorder.result.fresh_bytes, recorder.result.system_ns) == (4096.0, 50.0)


@pytest.mark.parametrize(("boundaries", "timed"), [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (10, 5)])
@pytest.mark.parametrize("least", [False, True])
def test_the_first_step_which_is_cold_is_never_timed(
    boundaries: int, timed: int, least: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step between two boundaries was timed: 822 µs, where later ones take 30. With the `least` warm-up
    there are more boundaries than it asks for where something is waited for."""
    profiler = SimpleNamespace(**_PROFILER)
    monkeypatch.setattr(module.profilers, "of_threads", lambda *_: profiler)
    clock = iter([0, *range(800, 2000, 30)])
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: next(clock))
    recorder = Recorder(Order(warmup=1 if least else boundaries, steps=1), tmp_path)
    ready = iter([False] * (boundaries - 1) + [True])
    while recorder.state == WARMING:
        recorder.boundary(lambda: next(ready) if least else True)
    assert recorder.state == STARTING
    assert recorder.result.samples_ns == [30.0] * (min(max(boundaries - 2, 0), 2) if least else timed)


def test_calls_of_modules_before_the_first_step_of_the_optimizer_are_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LBFGS calls its model twenty times in a step: of 8 steps perfkit said that they were 28."""
    profiler = SimpleNamespace(**_PROFILER)
    monkeypatch.setattr(module.profilers, "of_threads", lambda *_: profiler)
    watcher = Watcher(Recorder(Order(warmup=5), tmp_path), lambda: None)
    watcher.steps = StepFinder(lambda: True)
    watcher.recorder.marks = False
    for step in range(1, 7):
        for _ in range(20):
            watcher.signal(CALL, "model")
        watcher.signal(OPTIMIZER, "lbfgs", "LBFGS")
        assert watcher.recorder.result.found == step
    assert watcher.recorder.state == RECORDING
    watcher.recorder.session.stop(goes_on=False)
    watcher.remove()


@pytest.mark.parametrize(("kind", "outer"), [(OPTIMIZER, "forward"), (REPLAY, "")])
def test_what_a_graph_replays_has_no_pass(kind: str, outer: str, tmp_path: Path) -> None:
    """A graph of a whole training step was called a forward pass."""
    watcher = Watcher(Recorder(Order(), tmp_path), lambda: None)
    watcher.steps.kind = kind
    try:
        watcher._begin(watcher.threads.own)
    finally:
        watcher.remove()
    assert watcher.recorder.outer_pass == outer


def test_lines_are_recorded_in_the_step_after_the_profiled_ones(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    recorder = Recorder(Order(warmup=1, steps=1, lines=True), tmp_path)
    active = []
    for _ in range(5):
        torch.ones(2).sum()
        recorder.boundary(lambda: True)
        active.append((recorder.session._is_recording, recorder.lines._session._is_recording))
    # It is armed for a step, records one, and records the lines of one.
    assert active == [(False, False), (True, False), (False, True), (False, False), (False, False)]
    assert recorder.state == DONE and (tmp_path / LINES).is_file()


@pytest.mark.parametrize("memory", [False, True])
def test_lines_and_allocations_are_of_one_thread(memory: bool, tmp_path: Path) -> None:
    """A session of one thread ended in another: a server under `--memory` crashed, exit code 139."""
    torch = pytest.importorskip("torch")
    recorder = Recorder(Order(warmup=2, steps=2, lines=True, memory=memory), tmp_path)
    for _ in range(5):
        torch.ones(2).sum()
        thread = threading.Thread(target=recorder.boundary, args=(lambda: True,))
        thread.start()
        thread.join()
    assert recorder.state == DONE and recorder.result.recorded and len(recorder.result.step_ns) == 2
    starts = [note.partition(":")[0] for note in recorder.result.notes]
    assert starts == ["No allocations"] * memory + ["No source lines"]
