"""Lines of a generated program: their names, and the kernels in them and right after them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit import profile_names
from perfkit.profile_names import line_of
from perfkit.readers.kineto.trace import read_trace
from tests.support.readers.traces import event, mark, node, op, write

WORD = st.text(st.characters(codec="ascii", exclude_characters="|;", exclude_categories=["Cc"]), min_size=1)


@given(st.sampled_from(["forward", "backward"]), st.integers(1, 10**8), st.lists(st.tuples(WORD, WORD), max_size=4))
def test_a_line_reads_as_it_was_written(program, number, places):
    members = [(module, operator, 1 / len(places)) for module, operator in places]
    line = line_of(profile_names.line_name(program, number, "symbol", members))
    assert line is not None
    assert (line.program, line.number, line.evidence) == (program, number, "symbol")
    assert [part[:2] for part in line.served] == places
    assert sum(part[2] for part in line.served) == pytest.approx(1 if places else 0, abs=1e-5)


@pytest.mark.parametrize(
    "name",
    ["perfkit:line:", "perfkit:line:forward:x:symbol:a|b|1", "perfkit:line:forward:1:symbol:a|b", "forward:1",
     "perfkit:line:forward:1:symbol:a|b|much"],
)  # fmt: skip
def test_a_damaged_name_tells_nothing(name):
    assert line_of(name) is None


def light(name, start, end):
    """A range as the profiler shows those of `ranges.line_marker`: an operator."""
    return event("cpu_op", name, start, end)


def read(tmp_path, *events):
    passes = [
        mark("perfkit:step:0", 0, 1000),
        mark("perfkit:pass:forward", 10, 300),
        mark("perfkit:pass:backward", 300, 700),
        mark("perfkit:pass:optimizer", 700, 990),
    ]
    flat = [e for one in events for e in (one if isinstance(one, list) else [one])]
    return read_trace(write(tmp_path / "t.json", [*passes, *flat]), layers="h.*", passes={"classifier": ("head",)})


def test_work_in_lines_has_their_places(tmp_path):
    table = read(
        tmp_path,
        light("perfkit:line:forward:7:symbol:h.1.mlp|gelu|1", 20, 60),
        op("aten::tanh", 25, 45, [[4, 4]]),
        light("perfkit:line:forward:8:symbol:h.0|add|0.75;head|linear|0.25", 60, 90),
        op("aten::add", 65, 85, [[4, 4], [4, 4]]),
        op("aten::mul", 100, 120, [[4, 4], [4, 4]]),
        light("perfkit:line:forward:9:none:", 130, 160),
        op("aten::relu", 135, 150, [[4, 4]]),
    )
    frame = table.frame.set_index("short_name")
    assert frame["module"].fillna("").to_dict() == {"tanh": "h.1.mlp", "add": "h.0", "mul": "", "relu": ""}
    assert frame.loc["tanh", ["operator", "layer", "placed_by", "range"]].tolist() == [
        "gelu",
        1,
        "symbol",
        "generated:7",
    ]
    assert frame.loc["add", "serves"] == "forward|h.0|add|0.75;classifier|head|linear|0.25"
    assert frame.loc["relu", ["range", "placed_by"]].tolist() == ["generated:9", "none"]
    assert frame.loc["mul", ["range", "serves"]].isna().all()


def test_what_autograd_sums_behind_the_last_line_belongs_to_it(tmp_path):
    table = read(
        tmp_path,
        node("ThunderFunctionBackward", 310, 500, seq=3),
        op("aten::zero_", 312, 314, [[9]]),
        light("perfkit:line:backward:4:symbol:h.0|linear|1", 320, 400),
        op("aten::mm", 330, 390, [[4, 4], [4, 4]]),
        light("perfkit:line:backward:9:parameter:wte|embedding|1", 400, 401),
        op("aten::add_", 450, 480, [[9, 4], [9, 4]]),
        node("AnotherBackward", 510, 600, seq=2),
        op("aten::add_", 520, 580, [[9, 4], [9, 4]]),
    )
    places = list(
        zip(table.frame["short_name"], table.frame["module"].fillna(""), table.frame["placed_by"], strict=True)
    )
    assert ("mm", "h.0", "symbol") in places
    assert ("add_", "wte", "parameter") in places
    assert sum(module == "wte" for _, module, _ in places) == 1
    assert all(module == "" for name, module, _ in places if name == "zero_")


def test_nvtx_readers_know_the_module_of_a_line():
    assert profile_names.module_of("perfkit:line:forward:8:symbol:h.0|add|0.25;h.1|linear|0.75") == "h.1"
    assert profile_names.module_of("perfkit:line:forward:8:none:") is None
