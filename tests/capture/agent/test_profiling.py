"""`perfkit.profile` and `perfkit.range` in a program's own code."""

import subprocess
import sys
import timeit

import pytest
import torch
from torch import nn

import perfkit
from perfkit.capture.agent.models import conditions
from perfkit.errors import RunFailed, UsageError


@pytest.fixture
def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        with perfkit.range("loss"):
            loss = model(torch.randn(32, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def test_a_block_records_its_steps(tmp_path, train):
    call = nn.Module.__call__
    with perfkit.profile(tmp_path / "mine", warmup=3, steps=2) as p:
        for _ in range(8):
            train()
            p.step()
    assert nn.Module.__call__ is call and torch.autograd.backward.__module__ == "torch.autograd"
    table = p.reading.table
    assert set(table.frame["pass"].dropna()) == {"forward", "backward", "optimizer"}
    assert {"0", "2"} <= set(table.frame["module"].dropna()) and table.facts["steps"] == 2
    assert "loss" in set(table.frame["range"].dropna())
    record = p.reading.source.manifest.backends[0]
    assert len(record.profiled_ns) == 2 and record.samples_ns
    assert "what the program marked" in p._repr_html_() or "<table" in p._repr_html_()
    with pytest.raises(UsageError, match="holds a run already"), perfkit.profile(tmp_path / "mine"):
        pass


def test_a_decorated_function_is_a_step(tmp_path, train):
    profile = perfkit.profile(tmp_path / "mine", warmup=1, steps=1)
    step = profile(train)
    for _ in range(5):
        step()
    assert profile.reading.table.facts["steps"] == 1
    assert conditions.NOT_TIMED in profile.reading.source.manifest.warnings


def test_too_few_steps_are_explained(tmp_path, train, capsys):
    with perfkit.profile(tmp_path / "mine", warmup=5, steps=3) as p:
        for _ in range(4):
            train()
            p.step()
    assert "The program took 4 steps, and 9 are needed" in capsys.readouterr().err
    with pytest.raises(RunFailed, match="took 4 steps"):
        _ = p.reading
    assert not (tmp_path / "mine").exists()


def test_an_error_in_the_block_stays_the_error(tmp_path, train):
    p = perfkit.profile(tmp_path / "mine", warmup=1, steps=5)

    def loop():
        with p:
            for number in range(9):
                train()
                p.step()
                1 / (number - 4)

    with pytest.raises(ZeroDivisionError):
        loop()
    assert 1 <= p.reading.table.facts["steps"] < 5


def test_numbers_that_cannot_be():
    with pytest.raises(UsageError, match="at least 1"):
        perfkit.profile(warmup=0)


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys, perfkit; perfkit.profile('x'); perfkit.range('y').__enter__()"
    code += "; print({'torch', 'pandas'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_range_is_free_while_nothing_records():
    def marked():
        with perfkit.range("loss"):
            pass

    assert min(timeit.repeat(marked, number=1000, repeat=5)) / 1000 < 10e-6
