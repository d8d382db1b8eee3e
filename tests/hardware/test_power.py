"""Power and clock from NVML's counters, with a driver made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.hardware import power as module
from perfkit.hardware.power import Meter


class Driver:
    """Stands for pynvml: 100 W a sample, one in 20 ms; the clock falls by 100 MHz whenever it is asked for."""

    class NVMLError(Exception):
        """What the driver does not tell."""

    NVML_CLOCK_SM, NVML_TOTAL_POWER_SAMPLES, NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 1, 0, 10, 11

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.now, self.clock, self.missing = 100.0, 2000, missing
        self.held = {10: 5.0, 11: 0.0}  # s
        self.asked: list[int] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu {index}"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvmlDevice") and name in object.__getattribute__(self, "missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        assert (handle, kind) == ("gpu 1", 1)
        self.clock -= 100
        return self.clock

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetViolationStatus(self, handle: str, policy: int) -> SimpleNamespace:
        return SimpleNamespace(violationTime=int(self.held[policy] * 1e9))

    def nvmlDeviceGetSamples(self, handle: str, kind: int, since: int) -> tuple[int, list[SimpleNamespace]]:
        """Those of the last two seconds; before the steps the GPU drew 50 W."""
        self.asked.append(since)
        found = []
        for at in range(int((self.now - 2) * 1e6), int(self.now * 1e6) + 1, 20_000):
            if at > since:
                drawn = 100_000 if at > 100e6 else 50_000
                found.append(SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=drawn)))
        return 1, found


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return _at_its_clock(Driver(), monkeypatch)


def _at_its_clock(made: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: made.now, monotonic=lambda: made.now))
    return made


def _measured(driver: Driver, turns: int = 2, steps: int = 3, held: float = 0.2) -> Meter:
    """Turns of steps of 0.2 s each, 10 s apart."""
    meter = Meter("cuda:1", driver)
    for _ in range(turns):
        meter.begin()
        for _ in range(steps):
            driver.now += 0.2
            meter.step()
        driver.held[10] += held
        meter.end()
        driver.now, driver.held[10] = driver.now + 10, driver.held[10] + 3  # not of the steps
    return meter


def test_figures_are_of_the_steps_alone(driver: Driver) -> None:
    found = _measured(driver).power
    assert found is not None
    assert (found.watts, found.limit_w) == (100.0, 700.0)
    assert found.clock_hz == pytest.approx(1.65e9)  # the median of 1900, 1800 … 1400
    assert found.max_clock_hz == 1.98e9
    assert found.capped == pytest.approx(0.4 / 1.2) and found.hot == 0


def test_samples_of_long_turns_are_read_before_the_driver_drops_them(driver: Driver) -> None:
    meter = _measured(driver, turns=1, steps=40)  # 8 s, of which the driver keeps two
    assert len(driver.asked) >= 6
    assert len(meter._watts) == pytest.approx(8 / 0.02, abs=4)


def test_time_held_never_exceeds_the_time_of_the_steps(driver: Driver) -> None:
    found = _measured(driver, held=5.0).power
    assert found is not None and found.capped == 1.0


@pytest.mark.parametrize(
    ("missing", "lost"),
    [
        ("nvmlDeviceGetSamples", ["watts"]),
        ("nvmlDeviceGetViolationStatus", ["capped", "hot"]),
        ("nvmlDeviceGetEnforcedPowerLimit", ["limit_w"]),
        ("nvmlDeviceGetMaxClockInfo", ["max_clock_hz"]),
    ],
)
def test_what_a_driver_does_not_tell_is_absent_and_the_rest_is_there(
    missing: str, lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _measured(_at_its_clock(Driver((missing,)), monkeypatch)).power
    assert found is not None
    assert [name for name in found.__struct_fields__ if getattr(found, name) is None] == lost


def test_a_cpu_and_a_machine_without_the_driver_have_no_power(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "nvmlInit", _no_driver)
    for meter in (Meter("cpu"), Meter("cuda", driver)):
        meter.begin()
        meter.step()
        meter.end()
        assert meter.power is None


def _no_driver(_: Driver) -> None:
    raise Driver.NVMLError("Driver Not Loaded")


def test_what_was_measured_before_a_reset_does_not_count(driver: Driver) -> None:
    meter = _measured(driver)
    meter.reset()
    assert meter.power is None
