"""Marks: seen by a profiler, free of trace when nobody listens, gone with their block."""

import json

import pytest
import torch
from torch import nn

from perfkit import profile_names, ranges


@pytest.fixture(autouse=True)
def _environment_is_read_anew():
    ranges.tool_listens.cache_clear()
    yield
    ranges.tool_listens.cache_clear()


def names_in(trace):
    return [
        e["name"] for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") in ("user_annotation", "cpu_op")
    ]


def profiled(tmp_path, work):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    return names_in(tmp_path / "t.json")


def test_step_pass_and_modules_are_seen_by_the_profiler(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))

    def work():
        with ranges.step(3), ranges.modules_marked(model), ranges.in_pass("forward"):
            model(torch.ones(1, 2))

    found = profiled(tmp_path, work)
    assert [n for n in found if n.startswith(profile_names.PREFIX)] == [
        "perfkit:step:3",
        "perfkit:pass:forward",
        "perfkit:module:0",
        "perfkit:module:1",
        "perfkit:module:1.0",
    ]


def test_hooks_go_away_and_ranges_close_when_a_module_raises(tmp_path):
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model = nn.Sequential(Raises())

    def work():
        try:
            with ranges.modules_marked(model):
                model(torch.ones(1))
        except ValueError:
            pass
        with ranges.mark("after"):
            torch.ones(1)

    assert next(n for n in profiled(tmp_path, work) if ":" not in n) == "after"
    assert not model[0]._forward_pre_hooks and not model[0]._forward_hooks


def test_a_tool_is_noticed_by_its_environment(monkeypatch):
    for name in ranges._INJECTION:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PERFKIT_NVTX", raising=False)
    assert not ranges.tool_listens()
    ranges.tool_listens.cache_clear()
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/somewhere/libtool.so")
    assert ranges.tool_listens()
    ranges.tool_listens.cache_clear()
    monkeypatch.delenv("NVTX_INJECTION64_PATH")
    monkeypatch.setenv("PERFKIT_NVTX", "1")
    assert ranges.tool_listens()


def test_marks_reach_nvtx_when_a_tool_listens(monkeypatch):
    import nvtx

    opened = []
    monkeypatch.setenv("PERFKIT_NVTX", "1")
    real = nvtx.annotate
    monkeypatch.setattr(
        nvtx, "annotate", lambda name, domain: opened.append((name, domain)) or real(name, domain=domain)
    )
    with ranges.in_pass("backward"):
        pass
    assert opened == [("perfkit:pass:backward", "perfkit")]


def test_a_step_by_hand_says_what_a_kernel_serves(tmp_path):
    """`at` marks the module, and with `serves` the operators by their weights; unheard it is one object for all."""
    from perfkit import handwritten
    from perfkit.readers.kineto.trace import read_trace

    sum_and_norm = [("h.0", "add", 3), ("h.0.ln", "layer_norm", 2)]
    assert handwritten.at("h.0", sum_and_norm) is ranges.mark("anything")
    x = torch.ones(64, 64)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    with profiler as profile, ranges.step(0), ranges.in_pass("forward"):
        with handwritten.at("h.0.ln", sum_and_norm):
            torch.add(x, x)
        with handwritten.at("h.0.fc"):
            torch.mm(x, x)
    profile.export_chrome_trace(str(tmp_path / "t.json"))
    frame = read_trace(tmp_path / "t.json", layers="h.*").frame
    assert frame["module"].tolist() == ["h.0", "h.0.fc"]
    assert frame["placed_by"].tolist() == ["declared", "range"]
    assert frame["serves"][0] == "forward|h.0|add|0.6;forward|h.0.ln|layer_norm|0.4"
    assert frame["serves"].isna()[1] and frame["range"].isna().all()
