"""How long a collective takes over named and measured links."""

from itertools import pairwise

import pytest

from perfkit.errors import UsageError
from perfkit.hardware.collectives.results import CollectiveSweep, SizeTime
from perfkit.scale.links import KINDS, Link, Network, link, network

OWN = Link("own", 100e9, 1.0, 1e-6, 1e-6, 1e-6, base_s=0.0)
FAR = Link("far", 10e9, 1.0, 10e-6, 10e-6, 10e-6, base_s=0.0)


@pytest.mark.parametrize(
    ("operation", "ranks", "expected"),
    [
        ("all_reduce", 2, 1e-2 + 2e-6),  # 2 (n - 1) steps, 2 (n - 1) / n of the bytes
        ("all_reduce", 8, 1.75e-2 + 14e-6),
        ("all_gather", 4, 0.75e-2 + 3e-6),
        ("reduce_scatter", 4, 0.75e-2 + 3e-6),
        ("broadcast", 4, 1e-2 + 3e-6),
    ],
)
def test_a_ring_inside_a_host(operation, ranks, expected):
    assert Network(8, OWN, FAR).seconds(operation, ranks, 1e9) == pytest.approx(expected)


def test_several_hosts_are_bound_by_their_ports_and_far_steps_cost_more():
    made = Network(4, OWN, FAR)
    assert made.hosts(8) == 2 and made.hosts(9) == 3
    ring = 12 * 1e-6 + 2 * 10e-6 + 1.75 * 1e9 / 40e9  # four ports of 10 GB/s a host
    assert made.seconds("all_reduce", 8, 1e9) == pytest.approx(ring, rel=1e-3)
    assert Network(1, OWN, FAR).seconds("all_gather", 2, 1e9) == pytest.approx(0.5e9 / 10e9 + 10e-6)
    # In an all-to-all at most 7/8 of a rank's bytes pass its own port.
    assert made.seconds("all_to_all", 8, 1e9) == pytest.approx(0.875e9 / 10e9, rel=1e-3)


def test_a_small_message_takes_the_tree_over_many_hosts():
    small = KINDS["ndr"], KINDS["nvlink4"]
    made = Network(8, small[1], small[0])
    ring = made._way("all_reduce", 1024, 1e3, quick=True, tree=False)
    assert made.seconds("all_reduce", 1024, 1e3) < ring / 5


def test_more_bytes_or_more_ranks_never_take_less():
    made = Network(8, KINDS["nvlink4"], KINDS["ndr"])
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        times = [[made.seconds(operation, n, s) for s in (1e3, 1e6, 1e9)] for n in (2, 8, 64, 512)]
        assert all(a <= b for row in times for a, b in pairwise(row))
        assert all(a <= b for column in zip(*times, strict=True) for a, b in pairwise(column))
    assert made.seconds("all_reduce", 1, 1e9) == made.seconds("all_reduce", 8, 0.0) == 0.0


def sweep(operation, ranks, *points):
    made = [SizeTime(bytes=size, seconds=seconds, calls=20) for size, seconds in points]
    return CollectiveSweep(operation=operation, ranks=ranks, carrier="nccl", measured_at="2026-11-23", points=made)


def test_what_was_measured_holds_and_more_ranks_have_more_steps_at_the_same_bus_bandwidth():
    measured = sweep("all_reduce", 2, (1e3, 1e-5), (1e9, 1e-2 + 1e-5))
    made = Network(8, None, FAR, [measured])
    assert made.seconds("all_reduce", 2, 1e9) == measured.seconds(1e9)
    assert made.seconds("all_reduce", 4, 1e9) == pytest.approx(3e-5 + 1.5e-2)  # 6 steps for 2; 1.5 for 1
    assert made.seconds("all_reduce", 4, 10) == pytest.approx(3e-5)


def test_links_by_name_and_by_rate():
    assert (
        link("ndr").wire == 50e9
        and link("12.5GB/s:30us").simple_s == pytest.approx(30e-6)
        and link("1GB/s").rate == 1e9
    )
    for wrong in ("nvlink", "50Gb/s", "GB/s", ""):
        with pytest.raises(UsageError, match="is not a kind of link"):
            link(wrong)


def test_what_is_inside_a_host_where_nothing_is_said():
    measured = [sweep("all_reduce", 2, (1e3, 1e-5))]
    assert network("", 8, "cuda:0", "NVIDIA H200", []).inside is KINDS["nvlink4"]
    assert network("", 8, "cuda:0", "NVIDIA H200", measured).inside is None
    assert network("nvlink3,ethernet", 8, "cuda:0", "", measured).between is KINDS["ethernet"]
    assert network("measured,hdr", 8, "cpu", "", measured).between is KINDS["hdr"]
    assert network("", 8, "cuda:0", "NVIDIA H100 PCIe", []).inside is KINDS["pcie5"]
    with pytest.raises(UsageError, match=r"not known. Measure them: perfkit ceilings --ranks 2; or name them"):
        network("", 8, "cpu", "a CPU", [])
    with pytest.raises(UsageError, match="--device cuda"):
        network("measured", 8, "cuda:0", "NVIDIA H200", [])
    with pytest.raises(UsageError, match="--per-host 0"):
        network("nvlink4", 0, "cuda:0", "", [])
