"""Programs without steps: recorded whole, as one step, where that is asked for."""

import sys

import pytest

from perfkit.capture.agent.order import Order
from perfkit.capture.agent.recording import counting as module
from perfkit.capture.agent.recording.counting import Counting
from perfkit.capture.agent.tracing.profiler import recording
from tests.support.programs.captured import ENVIRONMENT, alone, capture

PROGRAM = """
import torch
torch.manual_seed(0)
a = torch.randn(64, 64)
for _ in range(5):
    a = torch.tanh(a @ a)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
model(a).sum().backward()
print(a.sum().item(), model[0].weight.grad.sum().item())
"""


def test_a_program_without_steps_is_recorded_whole(tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, "-c", PROGRAM]
    found, without = capture(words, tmp_path, Order(steps=1, whole=True)), alone(words)
    assert (found.code, found.stdout, found.stderr) == (0, without.stdout, without.stderr)
    (_, result) = found.recorded[0]
    assert result.steps_are == "the whole program counts as one step" and not (result.problem or result.notes)
    frame = found.table().frame
    rows = frame[frame["step"].notna()]
    products = rows[rows["name"] == "aten::mm"]
    assert len(products[products["pass"].isna()]) == 5  # outside of calls of modules the pass is unknown
    assert {("forward", "0"), ("backward", "0")} <= set(zip(rows["pass"], rows["module"], strict=True))


BY_HAND = """
import torch
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
for _ in range(10):
    model.zero_grad()
    loss = torch.nn.MSELoss()(model(torch.randn(4, 8)), torch.zeros(4, 8))
    loss.backward()
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)
print(loss.item())
"""


def test_a_program_that_changes_its_parameters_itself_is_recorded_by_steps(tmp_path, monkeypatch):
    """pytorch/examples' word_language_model: the model and its criterion took turns, and no boundary was found before
    the evaluation, which was shown as inference."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, "-c", BY_HAND]
    found, without = capture(words, tmp_path, Order(warmup=3, steps=2)), alone(words)
    assert (found.code, found.stdout) == (0, without.stdout)
    (_, result) = found.recorded[0]
    assert result.steps_are == "a step is one call of the outermost module, and what follows until the next"
    assert result.training and result.found == 6 and len(result.step_ns) == 2
    rows = found.table().frame
    rows = rows[rows["step"] == 0]
    # None of nanoGPT's products, which allow TF32 on every device, was judged on a CPU.
    assert rows["flop_matrix_fp32"].sum() == 2 * (2 * 4 * 8 * 8)
    changes = rows[(rows["pass"] == "optimizer") & (rows["name"] == "aten::add_")]
    assert len(changes) == 2 and {"forward", "backward"} <= set(rows["pass"])


def test_the_profiler_does_not_warn_of_cycles_that_there_are_not(recwarn):
    profiler = recording(False, False)
    with profiler:
        profiler.step()
    profiler.prepare_trace()  # a second cycle: of that torch.profiler would warn
    assert not [one for one in recwarn if "end of each cycle" in str(one.message)]


class Cuda:
    """torch.cuda of a program: notes what is asked of it."""

    def __init__(self):
        self.asked = []
        self.profiler = self

    def start(self):
        self.asked.append("start")

    def stop(self):
        self.asked.append("stop")


@pytest.mark.parametrize(
    ("boundaries", "asked"), [(3, []), (4, ["start"]), (5, ["start", "stop"]), (9, ["start", "stop"])]
)
def test_counters_are_of_one_step(tmp_path, monkeypatch, boundaries, asked):
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": cuda}))
    for name in ("on_gpu", "synchronize"):
        monkeypatch.setattr(module, name, lambda: True)
    monkeypatch.setattr("perfkit.capture.agent.recording.recorder.other_profiler", lambda: False)
    monkeypatch.setattr("perfkit.capture.agent.recording.recorder.synchronize", lambda: None)
    recorder = Counting(Order(warmup=3, steps=1, counters=True), tmp_path)
    over = [recorder.boundary(lambda: True) for _ in range(boundaries)]
    assert cuda.asked == asked and over[-1] == (boundaries >= 5)
    recorder.finish()
    assert cuda.asked.count("start") == cuda.asked.count("stop") and recorder.result.recorded == (boundaries >= 5)


def test_counters_need_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "on_gpu", lambda: False)
    recorder = Counting(Order(warmup=1, steps=1, counters=True), tmp_path)
    assert recorder.boundary(lambda: True) and "no GPU" in recorder.result.problem
