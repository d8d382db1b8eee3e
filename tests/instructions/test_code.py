"""Hot instructions and lines, by hand; test_nvidias_reader.py has real reports."""

from __future__ import annotations

import msgspec
import pytest

from perfkit.instructions import courses
from perfkit.instructions.changes import changes
from perfkit.instructions.hot import NO_LINES, hot_kernel
from perfkit.instructions.results import FILLED, CounterCourse, Instruction, KernelCode, Marker
from perfkit.instructions.waits import producer
from perfkit.render.page import render_text
from perfkit.render.pages import code as rendered

SOURCE = "__global__ void f()\n{\n  float a = x[i * 32];\n  y[i] = a + 1;\n}\n"


def instruction(at: int, sass: str, line: int = 0, samples: float = 0.0, **counts: float) -> Instruction:
    """An instruction whose samples all wait for memory."""
    stalls = {"long_scoreboard": samples} if samples else {}
    file = "/src/f.cu" if line else ""
    return Instruction(at=at, sass=sass, file=file, line=line, counts={"samples": samples, **counts}, stalls=stalls)


def strided() -> KernelCode:
    """A kernel whose load is strided, and which waits for it on the next line."""
    load = instruction(0x10, "LDG.E R2, desc[UR4][R4.64]", 3, 0, executed=10, sectors=320, ideal_sectors=40)
    load.counts |= {"threads": 320, "threads_on": 240}
    add = instruction(0x20, "FADD R3, R2, 1", 4, 80.0, executed=10, threads_on=320)
    store = instruction(0x30, "STG.E desc[UR4][R6.64], R3", 4, 20.0, executed=10, sectors=40, ideal_sectors=40)
    return KernelCode(
        name="f", duration_ns=1000.0, busiest=0.9, unit="device memory", instructions=[load, add, store],
        sources={"/src/f.cu": SOURCE}, markers=[Marker(rule="CPIStall", message="80% of all stalls.", at=0x20)],
    )  # fmt: skip


def test_a_line_waits_for_the_load_above_it_and_what_is_needless_bounds_nothing() -> None:
    hot = hot_kernel(strided())
    add, store = hot.instructions
    assert (add.where, add.share, add.reasons) == ("+0x20 f.cu:4", 0.8, [("long_scoreboard", 1.0)])
    assert add.waits_for == "LDG.E at f.cu:3" and add.nvidia == ["80% of all stalls."]
    # Device memory is busy 90 % of the time, yet seven of eight sectors need not be moved: that need not stay.
    assert add.saving_ns == pytest.approx(800.0) and "88% of the sectors are needless" in add.why
    assert store.saving_ns == pytest.approx(200.0) and store.why == "its waits are gone and all else stays"
    code = strided()
    code.instructions[0].counts["sectors"] = 40
    add = hot_kernel(code).instructions[0]
    assert add.saving_ns == pytest.approx(100.0) and add.why.startswith("device memory is busy 90%")
    (line,) = hot.lines
    assert (line.where, line.code, line.share) == ("f.cu:4", "y[i] = a + 1;", 1.0)


def test_ratios_are_of_sums_over_instructions_that_have_both_counts() -> None:
    code = strided()
    code.instructions[0].counts["samples"] = 50.0
    load = next(spot for spot in hot_kernel(code).instructions if spot.at == 0x10)
    assert (load.sectors_per_request, load.ideal_sectors_per_request, load.threads_off) == (32.0, 4.0, 0.25)
    assert load.conflicts is None and load.local_sectors is None
    shared = instruction(0, "LDS R0, [R1]", 0, 5.0, executed=4, wavefronts=32, ideal_wavefronts=8)
    (spot,) = hot_kernel(KernelCode(name="g", duration_ns=100.0, busiest=0.5, instructions=[shared])).instructions
    assert spot.conflicts == 3.0 and "bank conflicts make 75% of the wavefronts" in spot.why


def test_absent_is_absent() -> None:
    code = KernelCode(name="f", instructions=[instruction(0, "BRA 0x0", 0, 3.0, executed=2, threads_on=32)])
    hot = hot_kernel(code)
    (spot,) = hot.instructions
    assert spot.saving_ns is None and spot.sectors_per_request is None and spot.threads_off is None
    assert hot.lines == [] and NO_LINES in hot.notes


@pytest.mark.parametrize(
    ("above", "waiting", "reason", "found"),
    [
        (["LDG.E.128 R4, desc[UR4][R2.64]"], "FADD R1, RZ, -R7", "long_scoreboard", 0),
        (["LDG.E R4, [R2.64]", "MOV R4, R9"], "FADD R1, R4, R4", "long_scoreboard", None),
        (["LDG.E R4, [R2.64]", "@P0 MOV R4, R9"], "FADD R1, R4, R4", "long_scoreboard", 0),
        (["LDS R4, [R2]", "LDG.E R5, [R2.64]"], "FFMA R1, R4, R5, R1", "short_scoreboard", 0),
        (["LDS R4, [R2]"], "FFMA R1, R4, R5, R1", "long_scoreboard", None),
        (["LDG.E R4, [R2.64]"], "STG.E [R8.64], R4", "long_scoreboard", 0),
        (["LDG.E R9, [R2.64]"], "STG.E [R8.64], R4", "long_scoreboard", 0),
        (["STG.E [R4.64], R9"], "FADD R1, R4, R4", "long_scoreboard", None),
        (["LDG.E R4, [R2.64]"], "FADD R1, R4, R4", "barrier", None),
        (["BAR.SYNC.DEFER_BLOCKING 0x0", "LDG.E R4, [R2.64]"], "FADD R1, R4, R4", "barrier", 0),
        (["STG.E [R4.64], R9", "LDG.E R4, [R2.64]", "EXIT"], "BRA 0x0", "drain", 0),
    ],
)  # fmt: skip
def test_the_load_that_is_waited_for(above: list[str], waiting: str, reason: str, found: int | None) -> None:
    code = [Instruction(at=16 * i, sass=text) for i, text in enumerate([*above, waiting])]
    load = producer(code, len(above), reason)
    assert load is (None if found is None else code[found])


def test_what_changed_in_a_kernel() -> None:
    first, second = strided(), strided()
    second.duration_ns = 400.0
    second.sources = {"/src/f.cu": SOURCE.replace("x[i * 32]", "x[i]").replace("{\n", "{\n\n")}
    for one in second.instructions:
        one.line += 1
    (line,) = changes([first], [second])
    assert (line.where, line.code, line.first_ns, line.second_ns) == ("f.cu:5", "y[i] = a + 1;", 1000.0, 400.0)
    for code in (first, second):
        for one in code.instructions:
            one.line = 0
    del second.instructions[1]
    found = {one.code: (one.first_ns, one.second_ns) for one in changes([first], [second])}
    assert found == {"FADD R3, R2, 1": (800.0, None), "STG.E desc[UR4][R6.64], R3": (200.0, 400.0)}
    assert changes([first], [first]) == []


def test_page_and_listing() -> None:
    code = strided()
    text = render_text(rendered.page("f.ncu-rep", [code]), width=150)
    assert "Hottest instructions of f" in text and "NVIDIA's own markers" in text and "LDG.E at f.cu:3" in text
    made = msgspec.json.decode(rendered.render_html("f.ncu-rep", [code]).split('id="data">')[1].split("</script>")[0])
    source, sass = made["report"]["kernels"][0]["listings"]
    assert [row["number"] for row in source["rows"] if "heat" in row] == ["4"]
    assert [(row["number"], row["heat"]) for row in sass["rows"] if "heat" in row] == [("0x20", 1.0), ("0x30", 0.25)]


def test_needless_work_bounds_its_line_by_all_waits() -> None:
    """Conflicts fill a unit, so that warps wait for it at other instructions: a line with them may save those too."""
    lds = instruction(0x10, "LDS R4, [R3]", 3, 30.0, executed=10, wavefronts=320, ideal_wavefronts=10)
    red = instruction(0x20, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [R4.64], R7", 4, 20.0, sectors=10, threads_on=320)
    other = instruction(0x30, "IMAD R5, R5, R4, R0", 5, 50.0)
    code = KernelCode(name="f", duration_ns=1000.0, busiest=0.9, unit="L1", instructions=[lds, red, other])
    saved = {spot.at: (spot.saving_ns, spot.why) for spot in hot_kernel(code).instructions}
    assert saved[0x10] == (1000.0, "bank conflicts make 97% of the wavefronts, for which warps may wait anywhere")
    assert saved[0x20] == (1000.0, "threads of a warp take turns at one address, for which warps may wait anywhere")
    assert saved[0x30] == (500.0, "its waits are gone and all else stays")
    red.counts["sectors"] = 40.0  # a word for each thread
    assert hot_kernel(code).instructions[2].saving_ns == 200.0


def test_the_life_of_a_kernel_has_a_beginning_a_middle_and_a_tail() -> None:
    at = [100.0 * i for i in range(1, 10)]
    filled = CounterCourse(
        name=FILLED, unit="cycle", interval_ns=100.0, at_ns=at, values=[900, 900, 900, 900, 90, 90, 90, 90, 45]
    )
    memory = CounterCourse(name="device memory", unit="%", interval_ns=100.0, at_ns=at, values=[40.0] * 8 + [0.0])
    idle = CounterCourse(name="tensor pipe", unit="%", interval_ns=100.0, at_ns=at, values=[0.0] * 9)
    code = strided()
    code.courses = [filled, memory, idle]
    assert list(courses.said(code)) == [
        "In the last 600 ns (60% of the kernel) under half as many multiprocessors have blocks as at the most."
    ]
    first, *_ = courses.parts(code)
    assert (first.first, first.middle, first.last) == (None, pytest.approx(100 * (4 + 0.4) / 8), 5.0)
    text = render_text(rendered.page("f.ncu-rep", [code]), width=150)
    assert "Over the life of f" in text and "████▂▂▂▂▁" in text and "tensor pipe" not in text
    assert [one["name"] for one in rendered.record("f", [code])["kernels"][0]["life"]] == [
        FILLED,
        "device memory",
        "tensor pipe",
    ]
    assert '"figures":[{"title":"multiprocessors with blocks"' in rendered.render_html("f.ncu-rep", [code])
    code.courses = []
    assert list(courses.said(code)) == [] and "Over the life" not in render_text(rendered.page("f", [code]))
