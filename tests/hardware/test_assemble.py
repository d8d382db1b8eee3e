from __future__ import annotations

import msgspec
import pytest

from perfkit.hardware.assemble import DeviceFacts, assemble, unsettled
from perfkit.hardware.ceilings import Ceilings, from_json, to_json
from perfkit.hardware.observation import MIB, Observation, cpu_plan

WHEN = "2026-01-01T00:00:00+00:00"


def machine(**changes):
    facts = {"fingerprint": "f", "device": "cpu", "device_name": "Fake", "threads": 2, "x86": True}
    return DeviceFacts(**{**facts, **changes})


def memory(size, rate, what="triad", by="c", number=0, ok=True):
    return Observation(resource="memory", what=what, how=by, rate=rate, by=by, round=number, working_set=size, ok=ok)


def unit(resource, rate, by="torch", number=0):
    return Observation(resource=resource, what="matmul", how=by, rate=rate, by=by, round=number)


def check(ceilings: Ceilings, name: str):
    return next(c for c in ceilings.checks if c.name == name)


def test_the_best_pattern_of_each_size_is_the_ceiling_and_its_rounds_are_kept():
    seen = [
        memory(MIB, 100.0),
        memory(MIB, 110.0, what="sum"),
        memory(MIB, 104.5, what="sum", number=1),
        memory(4 * MIB, 60.0),
        memory(4 * MIB, 59.0, number=1),
    ]
    found = assemble(seen, machine(), WHEN)
    assert found.bandwidth == [(MIB, 110.0), (4 * MIB, 60.0)]
    best = found.details[0]
    assert (best.name, best.samples) == ("sum", (110.0, 104.5))
    assert best.spread == pytest.approx(0.05)
    assert check(found, "repeatable").ok
    assert found.warnings == []


def test_rounds_that_disagree_are_a_warning_and_ask_for_more():
    seen = [memory(MIB, 100.0), memory(MIB, 50.0, number=1), memory(4 * MIB, 40.0), memory(4 * MIB, 39.0, number=1)]
    found = assemble(seen, machine(), WHEN)
    repeatable = check(found, "repeatable")
    assert repeatable.ok is False
    assert "50%" in repeatable.text
    assert "--refresh" in repeatable.text
    assert found.warnings == [repeatable.text]
    assert unsettled(seen) == [MIB]
    assert unsettled([*seen, memory(MIB, 95.0, number=2)]) == []
    assert unsettled(seen[:1]) == [MIB]  # one round proves nothing


def test_on_a_gpu_working_sets_too_short_to_judge_by_may_disagree():
    def rounds(size, rate):
        return [memory(size, rate, by="torch"), memory(size, rate / 2, by="torch", number=1)]

    gpu = machine(device="cuda:0", x86=False)
    assert check(assemble(rounds(MIB, 5e12), gpu, WHEN), "repeatable").ok is None  # 0.2 µs
    assert check(assemble(rounds(64 * MIB, 5e12), gpu, WHEN), "repeatable").ok is False  # 13 µs


def test_wrong_results_are_left_out_and_reported():
    found = assemble([memory(MIB, 900.0, ok=False), memory(MIB, 100.0)], machine(), WHEN)
    assert found.bandwidth == [(MIB, 100.0)]
    assert check(found, "results").ok is False
    assert any("wrong results" in warning for warning in found.warnings)
    with pytest.raises(ValueError, match="no bandwidth"):
        assemble([memory(MIB, 900.0, ok=False)], machine(), WHEN)


def test_a_faster_torch_raises_the_roof_and_says_so():
    found = assemble([memory(MIB, 100.0), memory(MIB, 130.0, what="torch add", by="torch")], machine(), WHEN)
    assert found.bandwidth == [(MIB, 130.0)]
    below = check(found, "torch below the roof")
    assert below.ok is False
    assert "30% faster" in below.text


def test_torch_below_the_roof_is_said_with_its_share():
    found = assemble([memory(MIB, 100.0), memory(MIB, 93.0, what="torch add", by="torch")], machine(), WHEN)
    below = check(found, "torch below the roof")
    assert below.ok
    assert "93%" in below.text


def test_without_the_compiled_program_there_is_nothing_to_compare():
    found = assemble([memory(MIB, 93.0, by="torch"), unit("matrix_fp32", 10.0)], machine(), WHEN)
    assert check(found, "torch below the roof").ok is None
    # On x86 fp32 products run on the vector units: the best that is known of them.
    assert found.compute["vector_fp32"] == 10.0
    assert "product on the vector units" in found.compute_for("vector_fp32").how
    other = assemble([memory(MIB, 93.0, by="torch"), unit("matrix_fp32", 10.0)], machine(x86=False), WHEN)
    assert "vector_fp32" not in other.compute


def test_of_a_product_that_several_libraries_make_the_best_rate_of_each_is_kept():
    rates = {"torch.mm, fp32": (20.0, 21.0), "oneDNN linear, fp32": (50.0, 49.0)}
    seen = [
        msgspec.structs.replace(unit("matrix_fp32", rate, number=number), how=how)
        for how, values in rates.items()
        for number, rate in enumerate(values)
    ]
    alone = msgspec.structs.replace(unit("matrix_bf16", 90.0), how="torch.mm, bf16")
    functions = [
        msgspec.structs.replace(unit("functions", rate), how=how) for how, rate in (("a, fp32", 3.0), ("b, fp32", 12.0))
    ]
    found = assemble([memory(MIB, 93.0), *seen, alone, *functions], machine(), WHEN)
    assert found.libraries["matrix_fp32"] == {"torch.mm": 21.0, "oneDNN linear": 50.0}
    assert found.libraries["functions"] == {"a": 3.0, "b": 12.0} and "functions" not in found.compute
    assert found.compute["matrix_fp32"] == 50.0
    assert from_json(to_json(found)).libraries == found.libraries


def test_units_take_the_best_and_narrow_types_compute_in_fp32():
    seen = [
        memory(MIB, 1.0),
        unit("matrix_bf16", 400.0),
        unit("matrix_bf16", 420.0, number=1),
        unit("vector_fp32", 200.0, "c"),
    ]
    found = assemble(seen, machine(), WHEN)
    assert found.compute == {"matrix_bf16": 420.0, "vector_bf16": 200.0, "vector_fp16": 200.0, "vector_fp32": 200.0}
    assert "computed in fp32" in found.compute_for("vector_bf16").how


def test_fp8_is_a_ceiling_beside_the_datasheet_and_only_where_it_was_right():
    seen = [memory(MIB, 1e12, by="torch"), unit("matrix_bf16", 0.8e15)]
    gpu = machine(device="cuda:0", x86=False, datasheet={"matrix_bf16": 1e15, "matrix_fp8": 2e15})
    found = assemble([*seen, unit("matrix_fp8", 1.5e15), unit("matrix_fp8", 1.4e15, number=1)], gpu, WHEN)
    made = found.compute_for("matrix_fp8")
    assert made is not None
    assert (made.value, made.unit, made.samples) == (1.5e15, "FLOP/s", (1.5e15, 1.4e15))
    assert found.compute == {"matrix_bf16": 0.8e15, "matrix_fp8": 1.5e15}
    assert check(found, "within theory").text == "matrix bf16 reaches 80% of its theoretical peak"
    wrong = msgspec.structs.replace(unit("matrix_fp8", 1.5e15), ok=False)
    assert "matrix_fp8" not in assemble([*seen, wrong], gpu, WHEN).compute
    without = assemble(seen, gpu, WHEN)  # a torch that has no such product
    assert "matrix_fp8" not in without.compute and without.warnings == []


def test_a_product_above_the_vector_units_is_suspicious_on_x86():
    seen = [memory(MIB, 1.0), unit("vector_fp32", 100.0, "c"), unit("matrix_fp32", 150.0)]
    assert check(assemble(seen, machine(), WHEN), "vector units").ok is False
    assert check(assemble(seen, machine(x86=False), WHEN), "vector units").ok is None
    fine = [memory(MIB, 1.0), unit("vector_fp32", 100.0, "c"), unit("matrix_fp32", 88.0)]
    assert check(assemble(fine, machine(), WHEN), "vector units").text.endswith("88% of the vector units")


def test_more_than_the_datasheet_is_a_broken_measurement():
    seen = [memory(MIB, 90.0), unit("matrix_bf16", 120.0)]
    found = assemble(seen, machine(datasheet={"memory": 100.0, "matrix_bf16": 100.0}), WHEN)
    theory = check(found, "within theory")
    assert theory.ok is False
    assert "matrix bf16 reaches 120%" in theory.text
    assert check(assemble(seen, machine(bounds={"matrix_bf16": 130.0}), WHEN), "within theory").ok
    assert check(assemble(seen, machine(), WHEN), "within theory").ok is None


def test_bandwidth_in_place_is_a_curve_of_its_own():
    in_place = msgspec.structs.replace(memory(MIB, 390.0), resource="memory in place", what="negate")
    found = assemble([memory(MIB, 200.0), in_place], machine(), WHEN)
    assert found.bandwidth == [(MIB, 200.0)]
    assert found.in_place == [(MIB, 390.0)]
    assert found.bandwidth_for(MIB, in_place=True).value == 390.0
    assert "negate" in found.bandwidth_for(MIB, in_place=True).name
    without = assemble([memory(MIB, 200.0)], machine(), WHEN)
    assert without.bandwidth_for(MIB, in_place=True).value == 200.0


def test_what_is_read_alone_is_a_curve_of_its_own_and_patterns_that_write_are_witnesses():
    big = 64 * MIB
    in_place = msgspec.structs.replace(memory(MIB, 390.0), resource="memory in place", what="negate")
    seen = [
        memory(MIB, 200.0, what="copy"),
        memory(MIB, 180.0, what="sum"),
        in_place,  # half of it is read: more than the sum reached
        memory(big, 42.0, what="copy"),
        memory(big, 39.0),
        memory(big, 30.0, what="sum"),
        memory(big, 90.0, what="fill"),
        memory(big, 30.5, what="torch sum", by="torch"),
    ]
    found = assemble(seen, machine(), WHEN)
    assert found.bandwidth == [(MIB, 200.0), (big, 90.0)]
    assert found.reading == [(MIB, 195.0), (big, 30.5)]
    assert found.reading_for(2 * big).name == "reads of torch sum, 64 MiB working set (main memory)"
    assert found.reading_for(2 * MIB).name == "reads of negate, 1 MiB working set (main memory)"
    assert from_json(to_json(found)).reading == found.reading


def test_torch_alone_tells_nothing_of_reading():
    found = assemble([memory(MIB, 100.0, what="torch sum", by="torch")], machine(device="cuda:0"), WHEN)
    assert found.reading == []
    assert found.reading_for(MIB) is None
    assert found.memory_time(50.0, 50.0, MIB)[0] == 1.0


def test_rounds_of_reading_are_to_agree_as_well():
    rounds = [memory(MIB, 100.0, what="copy"), memory(MIB, 99.0, what="copy", number=1)]
    assert unsettled(rounds) == []
    assert unsettled([*rounds, memory(MIB, 90.0, what="sum")]) == [MIB]
    assert unsettled([*rounds, memory(MIB, 90.0, what="sum"), memory(MIB, 89.0, what="sum", number=1)]) == []


def test_memory_takes_as_long_as_all_bytes_or_as_those_read():
    found = assemble([memory(MIB, 40.0), memory(MIB, 30.0, what="sum")], machine(), WHEN)
    seconds, ceiling = found.memory_time(120.0, 0.0, MIB)
    assert (seconds, ceiling.value, ceiling.resource) == (4.0, 30.0, "memory, read alone")
    seconds, ceiling = found.memory_time(80.0, 40.0, MIB)  # as a triad does: reading them takes 2.7 s
    assert (seconds, ceiling.value, ceiling.resource) == (3.0, 40.0, "memory")


def test_a_rising_curve_is_told_but_is_no_defect():
    seen = [memory(MIB, 50.0), memory(2 * MIB, 100.0), memory(4 * MIB, 80.0)]
    found = assemble(seen, machine(), WHEN)
    rises = check(found, "falls with size")
    assert rises.ok is None
    assert "100% faster" in rises.text
    assert [rate for _, rate in found.envelope()] == [100.0, 100.0, 80.0]


def test_the_plan_spans_cache_to_memory_and_stays_within_memory():
    plan = cpu_plan(32 * MIB, 24 * 2**30)
    assert plan.sizes[0] == 64 * 1024
    assert plan.sizes[-1] == 256 * MIB
    assert plan.main_memory == 512 * MIB
    ratios = [b / a for a, b in zip(plan.sizes, plan.sizes[1:], strict=False)]
    assert max(ratios) < 1.5
    assert cpu_plan(384 * MIB, 2**40).sizes[-1] == 4 * 384 * MIB
    small = cpu_plan(32 * MIB, 2 * 2**30)
    assert (small.sizes[-1], small.main_memory) == (128 * MIB, None)
