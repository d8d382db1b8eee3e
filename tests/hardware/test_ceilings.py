from __future__ import annotations

import pytest

from perfkit.hardware.ceilings import Ceiling, from_json, to_json
from perfkit.hardware.observation import GIB, KIB, MIB
from tests.support.hardware.fakes import made_ceilings


def test_the_envelope_never_rises_with_size():
    ceilings = made_ceilings()
    rates = [rate for _, rate in ceilings.envelope()]
    assert rates == [400e9, 200e9, 200e9, 50e9]
    assert rates == sorted(rates, reverse=True)
    assert [size for size, _ in ceilings.envelope()] == [size for size, _ in ceilings.bandwidth]


@pytest.mark.parametrize(
    ("working_set", "rate", "stands_for"),
    [
        (0, 400e9, 64 * KIB),
        (64 * KIB, 400e9, 64 * KIB),
        (MIB - 1, 400e9, 64 * KIB),  # between two sizes the smaller one's roof: never too low
        (MIB, 200e9, MIB),
        (20 * MIB, 200e9, 16 * MIB),
        (256 * MIB, 50e9, 256 * MIB),
        (100 * GIB, 50e9, 256 * MIB),
    ],
)
def test_bandwidth_for_a_working_set(working_set, rate, stands_for):
    roof = made_ceilings().bandwidth_for(working_set)
    assert (roof.value, roof.working_set, roof.resource) == (rate, stands_for, "memory")


def test_roofs_rise_nowhere_over_a_fine_grid():
    ceilings = made_ceilings()
    rates = [ceilings.bandwidth_for(KIB * 1.3**step).value for step in range(60)]
    assert rates == sorted(rates, reverse=True)


def test_roofs_are_named_by_pattern_size_and_cache():
    ceilings = made_ceilings()
    assert ceilings.bandwidth_for(1).name == "triad, 64 KiB working set (fits L1d)"
    assert ceilings.bandwidth_for(1.5 * MIB).name == "triad, 1 MiB working set (fits L2)"
    assert ceilings.bandwidth_for(GIB).name == "triad, 256 MiB working set (main memory)"


def test_main_memory_and_units():
    ceilings = made_ceilings()
    assert ceilings.dram_bandwidth == 50e9
    unit = ceilings.compute_for("matrix_fp32")
    assert unit is not None
    assert unit.value == 200e9
    assert ceilings.compute_for("matrix_fp8") is None


def test_a_measured_fp8_unit_is_kept_and_found_by_name():
    made = Ceiling(name="matmul 8192×8192×8192", resource="matrix_fp8", unit="FLOP/s", value=1.4e15, how="fast")
    whole = made_ceilings()
    whole.compute["matrix_fp8"] = made.value
    whole.details.append(made)
    assert from_json(to_json(whole)).compute_for("matrix_fp8") == made


def test_json_round_trip():
    ceilings = made_ceilings(warnings=["busy"])
    assert from_json(to_json(ceilings)) == ceilings


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": 3}', "\x00\xff", '{"schema": 1}'])
def test_what_is_not_ceilings_is_refused(text):
    with pytest.raises(ValueError, match="not ceilings"):
        from_json(text)


def test_other_schemas_and_empty_curves_are_refused():
    with pytest.raises(ValueError, match="schema 99"):
        from_json(to_json(made_ceilings(schema=99)))
    with pytest.raises(ValueError, match="no bandwidth"):
        from_json(to_json(made_ceilings(bandwidth=[])))
    with pytest.raises(ValueError, match="no bandwidth"):
        made_ceilings(bandwidth=[]).bandwidth_for(1)
