"""Sweeps of collectives between ranks: formulas, what is made of the ranks' lines, a real sweep, and how it is kept."""

import json

import msgspec
import pytest

from perfkit.errors import RunFailed, Unavailable, UsageError
from perfkit.hardware import store
from perfkit.hardware.ceilings import Ceilings, from_json, to_json
from perfkit.hardware.collectives import measure
from perfkit.hardware.collectives.formulas import bus_bandwidth, seconds_at
from perfkit.hardware.collectives.results import OPERATIONS, CollectiveSweep, SizeTime, sweep_for
from tests.support.ceilings import requested


@pytest.mark.parametrize(
    ("operation", "ranks", "expected"),
    [("all_reduce", 2, 100e9), ("all_reduce", 8, 175e9), ("all_gather", 4, 75e9), ("reduce_scatter", 4, 75e9),
     ("all_to_all", 4, 75e9), ("broadcast", 8, 100e9), ("send_recv", 2, 100e9), ("barrier", 2, None),
     ("all_reduce", 1, None)],
)  # fmt: skip
def test_bus_bandwidth_is_nccl_tests(operation, ranks, expected):
    assert bus_bandwidth(operation, ranks, 100e6, 1e-3) == (expected and pytest.approx(expected))


def test_a_message_between_two_sizes():
    points = [(1e3, 1e-5), (1e6, 1e-5), (1e8, 1e-3)]
    assert [seconds_at(points, size) for size in (1, 1e4, 1e7, 1e9)] == pytest.approx([1e-5, 1e-5, 1e-4, 1e-2])


def lines(**changes):
    yield {"software": {"torch": "2.11.0"}, "carrier": "nccl"}
    for number in (0, 1):
        for name in OPERATIONS:
            yield {"progress": f"{name} · round {number + 1}"}
            for size in (2048.0, 1024.0):
                yield {"operation": name, "bytes": size, "seconds": size * (1.1 - 0.1 * number), "calls": 20}


def test_of_several_rounds_the_best_counts():
    said = []
    found = measure._sweeps(lines(), 2, said.append)
    assert [s.operation for s in found] == list(OPERATIONS) and len(said) == 12
    assert found[0].carrier == "nccl" and found[0].software == {"torch": "2.11.0"} and found[0].latency_s == 1024.0
    assert [(p.bytes, p.seconds, p.calls) for p in found[0].points] == [(1024.0, 1024.0, 20), (2048.0, 2048.0, 20)]
    assert found[0].points[0].spread == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("line", "raised", "said"),
    [
        ({"unavailable": "8 ranks need 8 GPUs.", "hint": "Take fewer."}, Unavailable, "8 ranks need 8 GPUs"),
        ({"wrong": "all_reduce"}, RunFailed, "all_reduce between 2 ranks gave wrong results"),
        ({"progress": "the end"}, RunFailed, "did not end within"),
    ],
)
def test_what_a_sweep_may_say_instead(line, raised, said):
    with pytest.raises(raised, match=said):
        measure._sweeps([line], 2, print)


def test_what_stands_for_what():
    sweeps = [sweep("send_recv"), sweep("broadcast")]
    assert sweep_for(sweeps, "recv", 2) is sweeps[0] and sweep_for(sweeps, "reduce", 2) is sweeps[1]
    assert sweep_for(sweeps, "send", 4) is None and sweep_for(sweeps, "all_reduce", 2) is None


def sweep(operation, ranks=2, torch="2.11.0"):
    points = [SizeTime(bytes=2.0**20 * 4**i, seconds=1e-4 * 2**i, calls=20) for i in range(2)]
    return CollectiveSweep(
        operation=operation, ranks=ranks, carrier="gloo", measured_at="now", points=points, software={"torch": torch}
    )


@pytest.fixture(scope="module")
def real():
    return measure.measure("cpu", 2, 2, lambda text: None, requested("cpu"))


def test_two_ranks_measure_every_collective(real):
    assert [s.operation for s in real] == list(OPERATIONS) and {s.carrier for s in real} == {"gloo"}
    for one in real:
        assert [p.bytes for p in one.points] == [2**10, 2**16, 2**20] and all(p.calls >= 5 for p in one.points)
        assert 1e-6 < one.latency_s < 1 and 1e6 < one.bus_bandwidth(2**20) < 1e12
        assert measure.still_holds(one) and not measure.still_holds(sweep("all_reduce", torch="1.0"))


def test_sweeps_are_kept_beside_the_other_ceilings(tmp_path, monkeypatch):
    asked = []

    def measured(device, ranks, threads, progress):
        asked.append(ranks)
        return [sweep("all_reduce", ranks, torch=measure.version_of("torch"))]

    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(store.collectives, "measure", measured)
    plain = Ceilings(fingerprint="f", device="cpu", measured_at="now", threads=2, bandwidth=[(1.0, 1.0)], compute={})
    monkeypatch.setattr(store, "measure", lambda *_: msgspec.structs.replace(plain))
    monkeypatch.setattr(store, "outdated", lambda _: "")
    assert store.load_or_measure().collectives == []
    for ranks in (4, 2, 2):
        found = store.load_or_measure_collectives(ranks)
    assert asked == [4, 2] and [s.ranks for s in found.collectives] == [2, 4]
    assert from_json(to_json(found)) == store.load_or_measure() == store.kept_ceilings()
    monkeypatch.setattr(store, "outdated", lambda _: "torch is another")
    assert [s.ranks for s in store.load_or_measure().collectives] == [2, 4]
    monkeypatch.setattr(store.collectives, "still_holds", lambda _: False)
    store.load_or_measure_collectives(2)
    assert asked == [4, 2, 2]


@pytest.mark.parametrize(("ranks", "device"), [(0, "cpu"), (1, "cpu"), (2, "cuda:1")])
def test_what_cannot_be_asked_for(ranks, device):
    with pytest.raises(UsageError):
        store.load_or_measure_collectives(ranks, device)


def test_the_command_shows_bandwidth_and_time_by_size(real, tmp_path, monkeypatch, run_cli):
    found = store.load_or_measure()
    found.collectives = real
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    kept = store.cache_path("cpu", found.threads)
    kept.parent.mkdir()
    kept.write_bytes(to_json(found))
    shown = run_cli(["ceilings", "--ranks", "2"])
    assert shown.rc == 0, shown.stderr
    assert "Bus bandwidth between 2 ranks, gloo" in shown.stdout and "Time of a call" in shown.stdout
    assert "64.00 KiB" in shown.stdout and "1.00 MiB" in shown.stdout and "reduce scatter" in shown.stdout
    printed = json.loads(run_cli(["ceilings", "--json"]).stdout)["collectives"]
    assert [one["operation"] for one in printed] == list(OPERATIONS)
