from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from perfkit.errors import PerfkitError, UsageError
from perfkit.hardware import store
from perfkit.hardware.ceilings import to_json
from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.identity import version_of
from perfkit.hardware.measure import check_device
from perfkit.hardware.observation import METHOD
from perfkit.hardware.store import cache_path, load_or_measure, outdated
from tests.support.hardware.fakes import made_ceilings


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch):
    """How often it was measured; each time gives ceilings of this machine's software with another time stamp."""
    calls = []
    compiler = find_compiler()
    software = {
        "torch": version_of("torch") or "",
        "compiler": compiler.version if compiler else "",
        "method": METHOD,
    }

    def fake(device, threads, progress=None, plan=None):
        calls.append((device, threads))
        return made_ceilings(device=device, threads=threads, measured_at=f"time {len(calls)}", software=software)

    monkeypatch.setattr(store, "measure", fake)
    return calls


def test_measured_once_and_kept(cache, measured):
    first = load_or_measure("cpu", threads=2)
    again = load_or_measure("cpu", threads=2)
    assert first == again
    assert measured == [("cpu", 2)]
    assert cache_path("cpu", 2).is_file()
    assert [p for p in cache.rglob("*") if ".tmp" in p.name] == []


def test_threads_devices_and_refresh_measure_anew(cache, measured):
    load_or_measure("cpu", threads=2)
    load_or_measure("cpu", threads=1)
    load_or_measure("cuda", threads=2)
    assert load_or_measure("cpu", threads=2, refresh=True).measured_at == "time 4"
    assert measured == [("cpu", 2), ("cpu", 1), ("cuda:0", 2), ("cpu", 2)]
    assert load_or_measure("cpu", threads=2).measured_at == "time 4"


@pytest.mark.parametrize("damage", [b"", b"{", b"\x00" * 100, b'{"bandwidth": "no"}', b"[1, 2]"])
def test_a_damaged_cache_is_measured_again_with_a_warning(cache, measured, damage):
    load_or_measure("cpu", threads=2)
    path = cache_path("cpu", 2)
    path.write_bytes(damage)
    found = load_or_measure("cpu", threads=2)
    assert len(measured) == 2
    assert any(str(path) in warning and "measured again" in warning for warning in found.warnings)
    assert load_or_measure("cpu", threads=2).warnings == []  # the damage is repaired


def test_truncations_of_a_kept_file_are_all_noticed(cache, measured):
    whole = to_json(made_ceilings())
    path = cache_path("cpu", 2)
    path.parent.mkdir(parents=True)
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        count = len(measured)
        load_or_measure("cpu", threads=2)
        assert len(measured) == count + 1, length


def test_a_cache_that_cannot_be_written_costs_a_warning_only(monkeypatch, tmp_path, measured):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("PERFKIT_CACHE", str(blocker))
    found = load_or_measure("cpu", threads=2)
    assert any("could not be kept" in warning for warning in found.warnings)
    assert blocker.read_text() == "in the way"


def test_a_failed_measurement_leaves_the_kept_file(cache, measured, monkeypatch):
    load_or_measure("cpu", threads=2)
    before = cache_path("cpu", 2).read_bytes()

    def fails(*_, **__):
        raise PerfkitError("no luck")

    monkeypatch.setattr(store, "measure", fails)
    with pytest.raises(PerfkitError, match="no luck"):
        load_or_measure("cpu", threads=2, refresh=True)
    assert cache_path("cpu", 2).read_bytes() == before


def test_what_makes_kept_ceilings_outdated(monkeypatch):
    monkeypatch.setattr(store, "version_of", lambda name: "2.13.0")
    monkeypatch.setattr(store, "used_by_others", lambda device: 0.2)
    kept = made_ceilings()
    assert outdated(kept) == ""
    older = msgspec.structs.replace(kept, software={"torch": "2.9.0", "compiler": "cc"})
    assert "torch is 2.13.0 now" in outdated(older)
    assert "busy" in outdated(msgspec.structs.replace(kept, load=3.0))
    monkeypatch.setattr(store, "used_by_others", lambda device: 2.9)
    assert outdated(msgspec.structs.replace(kept, load=3.0)) == ""  # no calmer than then
    monkeypatch.setattr(store, "find_compiler", lambda: object())
    assert "C compiler" in outdated(msgspec.structs.replace(kept, software=kept.software | {"compiler": ""}))
    assert "more is measured now" in outdated(msgspec.structs.replace(kept, software=kept.software | {"method": "1"}))
    monkeypatch.setattr(store, "version_of", lambda name: None)
    assert outdated(older) == ""  # nothing could measure it again


def test_kept_ceilings_from_before_fp8_are_read_and_measured_again(cache, measured):
    """Their file lacks a unit that is measured now: it still serves what only reads."""
    path = cache_path("cuda:0", 2)
    path.parent.mkdir(parents=True)
    before = made_ceilings(device="cuda:0", software=made_ceilings().software | {"method": "5"})
    path.write_bytes(to_json(before))
    with_torch = version_of("torch") is not None
    assert store._load(path) == (before, "")
    found = load_or_measure("cuda", threads=2)
    assert found.measured_at == ("time 1" if with_torch else before.measured_at)
    assert found.warnings == []


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "", "mps"])
def test_unknown_devices_are_refused(device):
    with pytest.raises(UsageError, match="not a device"):
        check_device(device)


def test_loading_needs_no_torch(cache, measured):
    load_or_measure("cpu", threads=2)
    code = (
        "import sys\n"
        "from perfkit.hardware.store import load_or_measure\n"
        "print(load_or_measure('cpu', threads=2).measured_at, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.split("\n")[0] == "time 1 False False"
