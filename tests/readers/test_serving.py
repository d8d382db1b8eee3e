"""Iterations of serving engines: what their names say, the steps and passes that they are, and the phases' figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfkit.analysis.report.serving import serving
from perfkit.engines import Iteration, iteration_of
from perfkit.readers.kineto.trace import read_trace
from perfkit.render.cells import NOTE_LIMIT
from perfkit.render.sections.serving import serving_table
from tests.support.readers.traces import Event, event, mark, write

NAMES = {
    "execute_context_2(512)_generation_30(30)": Iteration(2, 30, 512, 30),
    "execute_context_0(0)_generation_0(0)": Iteration(0, 0, 0, 0),
    "execute_context_1(888_788544)_generation_0(0)": Iteration(1, 0, 888, 0),
    "execute_context_1(512_262144)_generation_3(3_3)": Iteration(1, 3, 512, 3),
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)": Iteration(0, 32, 0, 32, 55_086),
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)": Iteration(
        9, 37, 8155, 37, 8430 + 34_489
    ),
    "step[DECODE bs=32]": Iteration(0, 32, 0, 32),
    "step[EXTEND bs=15 toks=15360]": Iteration(15, 0, 15_360, 0),
    "step[TARGET_VERIFY bs=4]": Iteration(0, 4, 0, None),
    "step[MIXED bs=3]": Iteration(0, 0, None, None, None, 3),
    "step[MIXED bs=5 c=2 g=3 c_sq=700 c_sk=900 c_sqsq=1 c_sqsk=2 g_sq=3 g_sk=640 g_sqsq=3 g_sqsk=640]": Iteration(
        2, 3, 700, 3, 1540
    ),
    "step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 c_sqsq=9 c_sqsk=9 g_sq=0 g_sk=0 g_sqsq=0 g_sqsk=0]": Iteration(
        1, 0, 3, 0, 3
    ),
    "step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30]": Iteration(0, 2, 0, 2, 30),
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]": Iteration(0, 64, 0, 128, 131_072),
    "step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]": Iteration(2, 0, 12, 0, 20),
    "step[TARGET_VERIFY bs=2 c_sq=6 c_sqsq=18 c_sqsk=90 c_sk=30]": Iteration(0, 2, 0, 6, 30),
    "prefill[bs=2 tok=1400 ctx=[800, 600]]": Iteration(2, 0, 1400, 0),
    "prefill[bs=1 tok=1400 ctx=1400]": Iteration(1, 0, 1400, 0),
    "prefill[bs=6 tok=1700 ctx=[409, 409, 400]...+3 sqsq=5 sqsk=6 sk=1800 tbo=1]": Iteration(6, 0, 1700, 0, 1800),
    "eager_decode[bs=3 tok=3 ctx=[9, 8, 7]]": Iteration(0, 3, 0, 3),
    "decode[bs=64 tok=64 d=64]": Iteration(0, 64, 0, 64),
    "decode[bs=117/128 tok=117 d=117 sqsq=117 sqsk=2000 sk=2000]": Iteration(0, 117, 0, 117, 2000),
    "decode[bs=32 tok=128 d=32 spec=3]": Iteration(0, 32, 0, 128),
    "decode[bs=128 tok=384 p=2 d=126 spec=2]": Iteration(2, 126, None, None),
    "step[IDLE]": Iteration(0, 0, 0, 0),
    "[Executor] _forward_step 12: 2 ctx reqs, 30 gen reqs": Iteration(2, 30, None, None),
    "[Executor] _forward_step 12: 2 ctx reqs, 512 ctx tokens, 30 gen reqs": Iteration(2, 30, 512, None),
    "[Executor] _forward_step: 0 ctx reqs, 8 gen reqs": Iteration(0, 8, 0, None),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_an_iteration_is_called(name: str) -> None:
    assert iteration_of(name) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [
        "step 3",
        "ProfilerStep#4",
        "capture_32_FULL",
        "step[SPLIT bs=3]",
        "step[]",
        "decode[bs=4]",
        "prefill[bs=1 tok=x]",
        "",
    ],
)
def test_what_is_no_iteration(name: str) -> None:
    assert iteration_of(name) is None


def test_phases() -> None:
    named = {"execute_context_1(8)_generation_0(0)": "prefill", "execute_context_1(8)_generation_2(2)": "mixed",
             "execute_context_0(0)_generation_2(2)": "decode", "step[IDLE]": "idle",
             "step[MIXED bs=3]": "mixed"}  # fmt: skip
    assert {name: found.phase for name in named if (found := iteration_of(name))} == named


def _engine() -> list[Event]:
    """A prefill and two decodes of an engine whose host runs ahead of the GPU, and a launch before all of them."""
    names = [
        ("execute_context_2(300)_generation_0(0)", 100.0, 50.0),
        ("execute_context_0(0)_generation_2(2)", 200.0, 10.0),
        ("execute_context_0(0)_generation_2(2)", 300.0, 10.0),
    ]
    events: list[Event] = [event("user_annotation", "ProfilerStep#1", 90, 400)]
    free, number = 500.0, 1
    for name, at, length in names:
        events.append(event("user_annotation", name, at, at + 60))
        events.append(
            event("user_annotation", "step[DECODE bs=2]" if length < 20 else "step[EXTEND bs=2]", at + 1, at + 59)
        )
        for i in range(4):
            call = at + 5 + 10 * i
            events.append(event("cuda_runtime", "cudaLaunchKernel", call, call + 3, correlation=number))
            events.append(
                event("kernel", "k", free, free + length, pid=0, tid=7, device=0, stream=7, correlation=number)
            )
            free, number = free + length, number + 1
        free += 5
    return events


def test_iterations_are_steps_and_phases_are_passes(tmp_path: Path) -> None:
    table = read_trace(write(tmp_path / "t.json", _engine()))
    assert table.facts["step_names"] == [
        "execute_context_2(300)_generation_0(0)", *["execute_context_0(0)_generation_2(2)"] * 2,
    ]  # fmt: skip
    frame = table.frame
    assert frame.groupby("step")["duration_ns"].sum().tolist() == [200_000, 40_000, 40_000]
    assert frame.groupby("pass", observed=True)["duration_ns"].sum().to_dict() == {"decode": 80_000, "prefill": 200_000}
    prefill, decode = serving(table.facts)
    assert (prefill.name, prefill.iterations, prefill.prompt_tokens, prefill.new_tokens) == ("prefill", 1, 300, 0)
    assert (decode.name, decode.iterations, decode.requests, decode.new_tokens) == ("decode", 2, (2, 2), 4)
    # From the first kernel to the next iteration's: 200 + 5 and 40 + 5 µs, and 40 of the last.
    assert (prefill.time_ns, decode.time_ns) == (205_000, 85_000)
    assert decode.busy == pytest.approx(80 / 85) and decode.tokens_per_second == pytest.approx(4 / 85e-6)
    assert decode.context is None
    assert msgspec.json.encode([prefill, decode])  # a number of NumPy's ended the report in JSON with a traceback


def test_the_name_that_says_most_counts(tmp_path: Path) -> None:
    events = [
        mark("step[DECODE bs=2]", 100, 200),
        mark("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk90sqsq2sqsk90)", 105, 195),
        event("cuda_runtime", "cudaLaunchKernel", 120, 123, correlation=1),
        event("kernel", "k", 130, 150, pid=0, tid=7, device=0, stream=7, correlation=1),
    ]
    (decode,) = serving(read_trace(write(tmp_path / "t.json", events)).facts)
    assert decode.context == 90


def test_a_mixed_iteration_whose_requests_are_not_split(tmp_path: Path) -> None:
    """Its kernels were counted with the iteration before."""
    events: list[Event] = []
    names = ["step[EXTEND bs=1 toks=40]", "step[DECODE bs=1]", "step[MIXED bs=3]", *["step[DECODE bs=3]"] * 2]
    for number, name in enumerate(names):
        at = 1000.0 * (number + 1)
        events += [
            mark(name, at, at + 60),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, at + 8, correlation=number + 1),
            event("kernel", "k", at + 10, at + 910, pid=0, tid=7, device=0, stream=7, correlation=number + 1),
        ]
    table = read_trace(write(tmp_path / "t.json", events))
    assert table.frame["pass"].tolist() == ["prefill", "decode", "mixed", "decode", "decode"]
    _, mixed, decode = serving(table.facts)
    assert (mixed.name, mixed.iterations, mixed.requests) == ("mixed", 1, (3, 3))
    assert (mixed.prompts, mixed.prompt_tokens, mixed.new_tokens, mixed.tokens_per_second) == (None,) * 4
    assert (decode.iterations, decode.new_tokens, decode.token_ns) == (3, 7, 900_000.0)  # of the last alone


def test_a_trace_without_an_engine_has_no_phases(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 120, 123, correlation=1),
        event("kernel", "k", 130, 150, pid=0, tid=7, device=0, stream=7, correlation=1),
    ]
    assert serving(read_trace(write(tmp_path / "t.json", events)).facts) == []


def test_the_table(tmp_path: Path) -> None:
    made = serving_table(serving(read_trace(write(tmp_path / "t.json", _engine())).facts))
    assert made is not None
    cells = {column.header: [cell.text for cell in column.cells] for column in made.columns}
    assert cells["phase"] == ["prefill", "decode"] and cells["batch"] == ["2", "2"]
    assert cells["prompt tokens"] == ["300", "0"] and "context" not in cells
    assert all(len(note) <= NOTE_LIMIT for note in made.notes)
