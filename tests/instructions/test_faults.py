"""Faults by instruction and line: made by hand at both sides of their evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.analysis.results import Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.rules import reasons
from perfkit.instructions import faults
from perfkit.instructions.products import products
from perfkit.instructions.results import Instruction, KernelCode

GROUP = Group(
    key="k", count=1, time_ns=1e6, share=1.0, bytes=1e8, roof_ns=3e5, judged_ns=1e6, efficiency=0.3, headroom_ns=7e5,
    bound="memory", ceiling="DRAM", family="other",
)  # fmt: skip
QUIET = Counters(blocks=1e5, waves=100.0, multiprocessors=132, busy={"DRAM": 0.3, "L2": 0.2})
SOURCE = "\n".join(f"line {number};" for number in range(1, 20))


def one(sass: str, line: int, stalls: dict[str, float] | None = None, **counts: float) -> Instruction:
    stalls = stalls or {}
    counts = {"executed": 100.0, "threads_on": 3200.0, "samples": float(sum(stalls.values())), **counts}
    return Instruction(at=0, sass=sass, file="/src/k.cu" if line else "", line=line, counts=counts, stalls=stalls)


def code(*instructions: Instruction) -> KernelCode:
    for place, made in enumerate(instructions):
        made.at = 16 * place
    return KernelCode(name="k", duration_ns=1e6, instructions=list(instructions), sources={"/src/k.cu": SOURCE})


def told(made: KernelCode, group: Group = GROUP, **counters: object) -> dict[str, Reason]:
    return {reason.name: reason for reason in reasons(group, replace(QUIET, code=made, **counters))}


def named(reason: Reason) -> list[tuple[str, int, float]]:
    return [(place.file, place.line, pytest.approx(place.share)) for place in reason.lines]


def conflicting(waits: float, fronts: float = 3200.0) -> KernelCode:
    return code(
        one("STS [R1], R2", 3, wavefronts=100, ideal_wavefronts=100),
        one("LDS R4, [R3]", 4, {"mio_throttle": waits / 2}, wavefronts=fronts, ideal_wavefronts=100),
        one("FADD R5, R4, R5", 5, {"short_scoreboard": waits / 2, "selected": 100 - waits}),
    )


def test_bank_conflicts_name_the_access_and_not_the_line_that_waits() -> None:
    found = told(conflicting(60))["bank-conflicts"]
    assert named(found) == [("k.cu", 4, 1.0)] and found.lines[0].code == "line 4;"
    # The unit is full for all warps: waits at other instructions may be for it, and only the roof bounds the saving.
    assert found.saving_ns == GROUP.headroom_ns and "60 % of the warps' time are waits" in found.text
    assert "3.10 k of 3.30 k wavefronts" in found.text
    assert "bank-conflicts" not in told(conflicting(10))  # few wait
    assert "bank-conflicts" not in told(conflicting(60, fronts=120))  # few conflicts
    assert "bank-conflicts" not in told(conflicting(60), Group(**{**_fields(), "efficiency": 0.9}))


def _fields() -> dict[str, object]:
    return {name: getattr(GROUP, name) for name in GROUP.__struct_fields__}


def test_atomics_that_share_an_address() -> None:
    made = code(
        one("LDG.E R7, desc[UR4][R2.64]", 3, sectors=400, ideal_sectors=400),
        one("FMUL R7, R7, 0.5", 3, {"long_scoreboard": 10}),
        one("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R4.64], R7", 4, {"lg_throttle": 50}, sectors=100),
        one("EXIT", 5),
        one("BRA 0x10", 0, {"drain": 40}),
    )
    found = told(made)["atomics"]
    # A drain after EXIT is a wait for the last store above; the wait for the load is its own.
    assert named(found) == [("k.cu", 4, 1.0)] and "90 % of the warps' time" in found.text
    assert "threads of a warp have the same address" in found.text
    made.instructions[2].counts["sectors"] = 400.0  # 32 threads on 4 sectors: each may have a word of its own
    assert "the same address" not in told(made)["atomics"].text
    made.instructions[2].counts["executed"] = 0.0
    assert "atomics" not in told(made)


def test_waits_whose_load_is_unknown_count_for_the_bound() -> None:
    made = code(one("ATOMG.E.ADD R4, [R2.64], R7", 4), one("IADD3 R5, R9, R5", 5, {"long_scoreboard": 80, "wait": 20}))
    found = told(made)["atomics"]
    assert "80 % of the warps' time" in found.text and named(found) == [("k.cu", 4, 1.0)]


def test_a_barrier_is_named_with_where_the_last_warps_are() -> None:
    made = code(
        one("LDG.E R4, [R2.64]", 3, sectors=400, ideal_sectors=400),
        one("STS [R1], R4", 4, {"long_scoreboard": 30}),
        one("BAR.SYNC.DEFER_BLOCKING 0x0", 5),
        one("LDS R6, [R1]", 6, {"barrier": 70}),
    )
    found = told(made)["barrier"]
    assert named(found) == [("k.cu", 5, 1.0)] and found.saving_ns == pytest.approx(0.7e6)
    assert "the last ones are at k.cu:4 most" in found.text
    made.instructions[3].stalls = {"barrier": 10, "wait": 90}
    made.instructions[3].counts["samples"] = 100
    assert "barrier" not in told(made)


def test_uneven_blocks_name_the_loop() -> None:
    made = code(
        one("LDC R1, c[0x0][0x28]", 2, {"long_scoreboard": 500}),
        one("LDG.E R4, [R2.64]", 7, {"wait": 30}, executed=5000),
        one("FFMA R5, R4, R5, R5", 8, {"long_scoreboard": 70}, executed=5000),
    )
    found = told(made, blocks=528.0, waves=0.5, evenness=0.2)
    assert named(found["imbalance"]) == [("k.cu", 8, 0.7), ("k.cu", 7, 0.3)]
    assert found["imbalance"].saving_ns == pytest.approx(0.8e6) and "few-blocks" not in found
    assert "imbalance" not in told(made, blocks=528.0, waves=0.5, evenness=0.9)
    # 133 blocks on 132 multiprocessors: half of the time of the last one is all that the others can have.
    assert "imbalance" not in told(made, blocks=133.0, waves=0.1, evenness=0.5)


def test_without_lines_the_instruction_is_named() -> None:
    made = conflicting(60)
    for instruction in made.instructions:
        instruction.line, instruction.file = 0, ""
    (place,) = told(made)["bank-conflicts"].lines
    assert (place.file, place.line, place.function, place.code) == ("+0x10", 0, "k", "LDS R4, [R3]")


def test_amounts_of_spills_and_needless_sectors() -> None:
    made = code(
        one("STL [R1], R2", 3, local_sectors=400),
        one("LDL R2, [R1]", 4, local_sectors=1200),
        one("LDG.E R4, [R2.64]", 5, sectors=3200, ideal_sectors=400),
        one("@P0 FADD R4, R4, R4", 6, threads_on=800.0),
    )
    assert [(place.line, place.share) for place in faults.places(made, faults.local_sectors(made))] == [
        (4, 0.75),
        (3, 0.25),
    ]
    assert faults.needless_sectors(made) == [0, 0, 2800, 0] and faults.idle_threads(made) == [0, 0, 0, 2400]
    assert faults.places(made, [0.0] * 4) == []


def looped(before: float, *, sectors: float = 10, times: float = 100) -> KernelCode:
    """A loop of 80 turns after a prologue in which warps are found `before` of 100 times."""
    return code(
        one("LDC R1, c[0x0][0x28]", 3, {"imc_miss": before / 4}, executed=times),
        one("IMAD R2, R1, UR4, R3", 4, {"wait": before / 4}, executed=times),
        one("LDG.E R4, desc[UR4][R2.64]", 5, {"long_scoreboard": before / 2}, executed=times, sectors=sectors),
        one("LDG.E R5, desc[UR4][R6.64]", 7, {"long_scoreboard": 60 - before}, executed=8000, sectors=800),
        one("FADD R8, R5, R8", 8, {"wait": 40}, executed=8000),
        one("STG.E desc[UR4][R6.64], R8", 9, executed=times, sectors=10),
    )


def test_a_long_prologue_names_its_lines() -> None:
    found = told(looped(40), waves=8.0)["prologue"]
    assert named(found) == [("k.cu", 5, 0.5), ("k.cu", 3, 0.25), ("k.cu", 4, 0.25)]
    # A persistent kernel has one wave's: 7/8 of 40 % go.
    assert found.saving_ns == pytest.approx(1e6 * 0.4) and "in each of 8.0 waves" in found.text
    assert told(looped(40), waves=0.5)["prologue"].saving_ns == pytest.approx(4e5)  # hidden behind the kernel before
    assert told(looped(40), Group(**{**_fields(), "headroom_ns": 1e5}), waves=8.0)["prologue"].saving_ns == 1e5


@pytest.mark.parametrize(
    "made",
    [
        looped(10),  # short
        looped(40, sectors=600),  # it moves what the kernel moves: the work itself
        looped(40, times=8000),  # no loop
        looped(40, times=4000),  # a loop of two turns: half of the instructions are before it
    ],
)
def test_no_prologue(made: KernelCode) -> None:
    assert "prologue" not in told(made, waves=8.0)


def product(*loop: str) -> KernelCode:
    """Two loads of four values, and sixteen sums of products of them, unless other lines are given."""
    rows = loop or tuple(
        f"FFMA R{16 + 4 * i + k}, R{4 + i}, R{8 + k}, R{16 + 4 * i + k}" for i in range(4) for k in range(4)
    )
    loads = [one("LDS.128 R4, [R2]", 3, executed=1000), one("LDS.128 R8, [R3]", 4, executed=1000)]
    return code(*loads, *(one(row, 5, executed=1000) for row in rows), one("BRA 0x0", 6, executed=1000))


VECTOR = Group(**{**_fields(), "family": "other", "bound": "vector_fp32", "efficiency": 0.9})


def test_a_product_on_the_vector_units_is_found_by_its_instructions() -> None:
    found = told(product(), VECTOR, tensor_active=0.0, busy={"DRAM": 0.1, "L1": 0.4, "multiprocessors": 0.9})
    reason = found["tensor-idle"]
    assert named(reason) == [("k.cu", 5, 1.0)] and "84 % of its instructions" in reason.text
    assert reason.saving_ns == pytest.approx(9e5)  # what device memory is busy with stays


def test_a_compilers_registers_are_used_again_and_sums_change_theirs() -> None:
    """In nvcc's code of a product, addresses had half of the registers of loaded values before, and sums moved on."""
    rows = [f"FFMA R{32 + k}, R{4 + k % 4}, R{8 + k // 4}, R{16 + k}" for k in range(16)]
    begun = [one(f"FFMA R{16 + k}, RZ, RZ, RZ", 2, executed=1) for k in range(16)]
    before = [one("IMAD.WIDE R4, R0, 0x4, R6", 2, executed=1), *begun]
    made = product(*rows, *rows)
    made.instructions[:0] = before
    assert sum(products(made)) == 32_000
    made.instructions.insert(len(before) + 2, one("FMUL R4, R4, R30", 4, executed=1000))  # no longer what was loaded
    assert sum(products(made)) == 24_000


@pytest.mark.parametrize(
    "made",
    [
        product("FFMA R16, R4, R8, R16", "FFMA R17, R5, R9, R17"),  # a value is used once: memory decides
        product(*[f"FFMA R16, R{4 + k % 4}, R16, R{8 + k % 4}" for k in range(16)]),  # a polynomial
        product(*[f"FFMA R16, R{4 + k % 4}, R{4 + k % 4}, R16" for k in range(16)]),  # a sum of squares
        product(*[f"FFMA R16, R{4 + k % 4}, R{30 + k % 4}, R16" for k in range(16)]),  # with numbers that it computed
        product(*[f"FFMA R16, R4, R{8 + k % 4}, R16" for k in range(16)], "HMMA.16816.F32 R20, R4, R8, R20"),
    ],
)
def test_no_product(made: KernelCode) -> None:
    assert "tensor-idle" not in told(made, VECTOR, tensor_active=0.0)
    assert "tensor-idle" not in told(product(), VECTOR, tensor_active=0.3)
