from __future__ import annotations

import re

import pytest

from perfkit.hardware.cpu import linux_cpu
from perfkit.hardware.gpu import Gpu
from perfkit.hardware.peaks import _table, ceilings_on_paper, cpu_bounds, find_row, peaks_of
from perfkit.table import RESOURCES
from tests.support.hardware.fakes import xeon


@pytest.mark.parametrize(
    ("device", "row"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA B200", "B200"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe 16 GB"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("NVIDIA GeForce RTX 4070 SUPER", "RTX 4070 Super"),
        ("NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI210", "MI210"),
    ],
)
def test_real_device_strings_find_their_row(device, row):
    found = find_row(device)
    assert found is not None
    assert found.name == row


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA A100-PG509-200",
        "Quadro RTX 6000",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID T4-8Q",
        "AMD Radeon Graphics",
        "AMD Instinct MI300A",
        "",
    ],
)
def test_other_boards_are_unknown_not_a_neighbour(device):
    assert find_row(device) is None
    assert peaks_of(Gpu(index=0, name=device)).values == {}


@pytest.mark.parametrize(
    ("multiprocessors", "row"),
    [(110, "MI250X, one of its two devices"), (104, "MI250, one of its two devices"), (80, "")],
)
def test_boards_of_one_device_string_are_told_apart_by_their_multiprocessors(multiprocessors, row):
    found = find_row("AMD Instinct MI250X/MI250", multiprocessors)
    assert (found.name if found else "") == row
    assert find_row("AMD Instinct MI250X/MI250") is None
    assert find_row("NVIDIA GeForce RTX 3080", 70) is None  # the one of 12 GB has other memory


def test_the_datasheet_of_a_named_device_makes_its_ceilings():
    a100 = {"name": "NVIDIA A100-SXM4-40GB", "numSms": 108}
    made = ceilings_on_paper([a100, a100])
    assert made is not None and made.on_paper
    assert made.dram_bandwidth == 1555e9 and made.bandwidth_for(1e9).name == "memory (datasheet)"
    # Dense, by precision; products in fp32 run on the vector units.
    of_matrix = {"matrix_fp32": 19.5, "matrix_tf32": 156, "matrix_bf16": 312, "matrix_int8": 624, "matrix_fp64": 19.5}
    assert {name: made.compute[name] / 1e12 for name in of_matrix} == pytest.approx(of_matrix)
    v100 = ceilings_on_paper([{"name": "Tesla V100-SXM2-16GB"}])
    assert v100 is not None and v100.compute["matrix_fp64"] == 7.8e12 and "matrix_bf16" not in v100.compute


@pytest.mark.parametrize(
    "gpus",
    [
        [],
        [{"name": None}],
        [{"name": "Some GPU 9000"}],
        [{"name": "NVIDIA A100-SXM4-40GB", "numSms": 42}],  # a part of it
        [{"name": "NVIDIA A100-SXM4-40GB"}, {"name": "NVIDIA A10"}],
        [{"name": "NVIDIA A10"}, {"name": "Some GPU 9000"}],
    ],
)
def test_ceilings_of_a_device_that_is_not_known_are_unknown(gpus):
    assert ceilings_on_paper(gpus) is None


def test_every_row_agrees_with_its_attributes():
    """Multiprocessors × rate × clock must give the datasheet's number: the table checks itself."""
    for row in _table()[1]:
        consumer = re.match(r"RTX \d{4}( Ti| Super)?$", row.name)
        name = f"NVIDIA GeForce {row.name}" if consumer else " ".join([*row.all, *row.any[:1]])
        gpu = Gpu(
            index=0,
            name=name,
            compute_capability=row.compute_capability or None,
            multiprocessors=row.multiprocessors,
            max_clock_hz=row.clock_mhz * 1e6,
        )
        derived = peaks_of(gpu)
        assert set(row.tflops) <= set(RESOURCES)
        for resource, tera in row.tflops.items():
            # Vendors round, and give small fp64 rates with two digits.
            tolerance = 0.04 if tera > 1 else 0.1
            assert derived.values[resource] == pytest.approx(tera * 1e12, rel=tolerance), (row.name, resource)


@pytest.mark.parametrize(
    ("name", "capability", "sms", "clock", "bus", "memory_clock", "memory", "fp32"),
    [
        ("NVIDIA A100-SXM4-40GB", "8.0", 108, 1410, 5120, 1215, 1555e9, 19.5e12),
        ("Tesla T4", "7.5", 40, 1590, 256, 5001, 320e9, 8.1e12),
        ("NVIDIA H100 80GB HBM3", "9.0", 132, 1980, 5120, 2619, 3352e9, 66.9e12),
        ("NVIDIA GeForce RTX 4090", "8.9", 128, 2520, 384, 10501, 1008e9, 82.6e12),
    ],
)
def test_attributes_give_the_known_peaks(name, capability, sms, clock, bus, memory_clock, memory, fp32):
    gpu = Gpu(
        index=0, name=name, compute_capability=capability, multiprocessors=sms, max_clock_hz=clock * 1e6,
        memory_bus_bits=bus, memory_clock_hz=memory_clock * 1e6,
    )  # fmt: skip
    peaks = peaks_of(gpu)
    assert peaks.values["memory"] == pytest.approx(memory, rel=0.005)
    assert peaks.values["vector_fp32"] == pytest.approx(fp32, rel=0.01)
    assert "multiprocessors" in peaks.how["vector_fp32"]


def test_tensor_peaks_of_hopper_are_dense_and_at_the_tensor_clock():
    gpu = Gpu(index=0, name="NVIDIA H200", compute_capability="9.0", multiprocessors=132, max_clock_hz=1980e6)
    values = peaks_of(gpu).values
    assert values["matrix_bf16"] == pytest.approx(989.4e12, rel=0.001)
    assert values["matrix_fp8"] == pytest.approx(1979e12, rel=0.001)
    assert values["matrix_fp64"] == pytest.approx(66.9e12, rel=0.001)


def test_an_unlisted_board_of_a_known_generation_is_derived_from_its_attributes():
    """An H100 of some kind: not in the table, yet its multiprocessors, clock and bus say what it can do."""
    gpu = Gpu(
        index=0, name="NVIDIA H100 QX", compute_capability="9.0", multiprocessors=132, max_clock_hz=1785e6,
        memory_bus_bits=6016, memory_clock_hz=2619e6,
    )  # fmt: skip
    peaks = peaks_of(gpu)
    assert peaks.label == ""
    assert peaks.values["vector_fp32"] == pytest.approx(132 * 256 * 1785e6)
    assert peaks.values["memory"] == pytest.approx(3938e9, rel=0.001)


def test_a_professional_board_does_not_get_the_consumer_rate():
    gpu = Gpu(index=0, name="NVIDIA RTX A6000", compute_capability="8.6", multiprocessors=84, max_clock_hz=1800e6)
    assert peaks_of(gpu).values["matrix_fp16"] == pytest.approx(154.8e12, rel=0.001)
    l40 = Gpu(index=0, name="NVIDIA L40", compute_capability="8.9", multiprocessors=142, max_clock_hz=2490e6)
    assert peaks_of(l40).values["matrix_fp16"] == pytest.approx(181e12, rel=0.001)  # half of what an L40S does


def test_bounds_of_a_cpu_are_derived_or_absent(tmp_path):
    cpu = linux_cpu(xeon(tmp_path), frozenset(range(8)))
    bounds = cpu_bounds(cpu, 4)
    if cpu.architecture == "x86_64":
        assert bounds.values["vector_fp32"] == 4 * 3.8e9 * 2 * 16 * 2
        assert bounds.values["vector_fp64"] == bounds.values["vector_fp32"] / 2
        assert "upper bound" in bounds.how["vector_fp32"]
    silent = linux_cpu(tmp_path / "nothing", frozenset({0}))
    assert cpu_bounds(silent, 1).values == {}
