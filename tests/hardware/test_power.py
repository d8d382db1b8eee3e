"""Power and clock from NVML, with a driver made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.hardware import power as module
from perfkit.hardware.power import Gauge, Watch


class Driver:
    """Stands for pynvml. Two GPUs: their clock falls by 100 MHz whenever it is read, and they draw 100 W, from second
    100 on 600 W; samples are of every 20 ms, and kept for two seconds. `now` is the time."""

    class NVMLError(Exception):
        """An error of the driver for a value that it does not report."""

    NVML_CLOCK_SM, NVML_TOTAL_POWER_SAMPLES = 1, 0

    def __init__(self, missing: str = "") -> None:
        self.now, self.clock, self.reasons, self.missing = 100.0, 2000, 0x4, missing
        self.asked: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "__dict__").get("missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}-of-two"

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        self.clock -= 100
        return self.clock

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self.reasons

    def nvmlDeviceGetSamples(self, handle: int, kind: int, since: int) -> tuple[int, list[SimpleNamespace]]:
        self.asked.append(since)
        times = range(round(self.now * 1e6) - 2_000_000, round(self.now * 1e6) + 1, 20_000)
        drawn = [(at, 600_000 if at > 100e6 else 100_000) for at in times if at > since]
        return 1, [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=milliwatts)) for at, milliwatts in drawn
        ]


def gauge(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Gauge:
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: driver.now))
    return Gauge(driver, 0)


def run(one: Gauge, driver: Driver, readings: int, apart: float = 0.1) -> None:
    for _ in range(readings):
        driver.now += apart
        one.look()
    one.collect()


def test_figures_are_of_the_spans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    one = gauge(driver, monkeypatch)
    run(one, driver, 4)  # 1900, 1800, 1700, 1600 MHz at 100.1 … 100.4
    driver.reasons = 0x20 | 0x1
    run(one, driver, 4)  # 1500 … 1200 MHz at 100.5 … 100.8
    found = one.during([(100.15, 100.35), (100.45, 100.55)])
    assert found is not None
    assert (found.watts, found.limit_w, found.max_clock_hz) == (600.0, 700.0, 1.98e9)
    assert found.clock_hz == 1.7e9  # the median of 1800, 1700 and 1500
    assert (found.capped, found.hot) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert one.during([(90.0, 91.0)]) is None


def test_a_power_sample_is_of_the_time_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.now = 99.0
    one = gauge(driver, monkeypatch)
    run(one, driver, 15)
    found = one.during([(100.0, 100.5)])  # at 100.0 the driver still reports earlier samples
    assert found is not None and found.watts == 600.0


def test_no_sample_counts_twice_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    one = gauge(driver, monkeypatch)
    for _ in range(8):
        run(one, driver, 10)
    assert [at for at, _ in one.watts] == pytest.approx([100 + 0.02 * i for i in range(1, 401)])


@pytest.mark.parametrize(
    ("missing", "lost"),
    [
        ("nvmlDeviceGetSamples", ["watts"]),
        ("nvmlDeviceGetCurrentClocksEventReasons", ["capped", "hot"]),
        ("nvmlDeviceGetEnforcedPowerLimit", ["limit_w"]),
        ("nvmlDeviceGetMaxClockInfo", ["max_clock_hz"]),
        ("nvmlDeviceGetClockInfo", ["clock_hz", "capped", "hot"]),
    ],
)
def test_what_a_driver_does_not_tell_is_absent_and_the_rest_is_there(
    missing: str, lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(missing)
    one = gauge(driver, monkeypatch)
    run(one, driver, 3)
    found = one.during([(100.0, 101.0)])
    assert found is not None
    assert [name for name in found.__struct_fields__ if getattr(found, name) is None] == lost


def test_a_watch_looks_at_every_gpu_until_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.now = module.time.time()  # a thread looks: the clock is the real one
    gauges = [Gauge(driver, 0), Gauge(driver, 1)]
    with Watch(gauges) as watch:
        while len(gauges[1].clocks) < 3:
            module.time.sleep(module.PERIOD_S)
        seen = watch.during("1-of-two", [(driver.now - 1, driver.now + 60)])
        assert watch.during("GPU-1-of-two", [(driver.now - 1, driver.now + 60)]) is not None
    assert seen is not None and seen.clock_hz is not None
    assert watch.during("another", [(0.0, 1e12)]) is None
    assert "perfkit-power" not in {thread.name for thread in module.threading.enumerate()}


def test_all_gpus_of_the_driver_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.__dict__, "time", SimpleNamespace(time=lambda: 100.0, monotonic=lambda: 0.0))
    monkeypatch.setitem(__import__("sys").modules, "pynvml", Driver())
    assert [one.uuid for one in module._gauges()] == ["0-of-two", "1-of-two"]


def test_without_a_driver_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: Driver) -> None:
        raise Driver.NVMLError("Driver Not Loaded")

    monkeypatch.setattr(Driver, "nvmlInit", absent)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", Driver())
    with Watch() as watch:
        assert watch.during("0-of-two", [(0.0, 1e12)]) is None
