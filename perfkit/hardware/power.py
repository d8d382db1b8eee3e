"""What a GPU draws and how it is clocked while steps are timed, from what its driver counts anyway (NVML).

Nothing runs beside the steps: the driver keeps power samples of the last two seconds and counts the time in which it
holds the clock down. Both are read between steps, outside of their time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from perfkit.hardware.gpu import nvml_handle
from perfkit.run_folder import Power

_DELAY_US = 25_000  # a sample is the mean of about so long before it
_OFTEN_S = 1.0  # the driver keeps two seconds of samples or more


class Meter:
    """Power and clock of `device` ("cuda", "cuda:1") between `begin` and `end`, as often as these are called in turn.

    `step` is called after each step. What the driver does not tell, or a missing package, leaves `power` without it;
    of a CPU it is None.
    """

    def __init__(self, device: str, nvml: Any = None) -> None:
        kind, _, index = device.partition(":")
        self._ask: Callable[..., Any] = _silent if kind == "cpu" else _asker(int(index or 0), nvml)
        self.reset()

    def reset(self) -> None:
        """Forget what was measured."""
        self._watts: list[float] = []
        self._clocks: list[float] = []
        self._held: list[tuple[float, float]] = []  # by the power limit and by the temperature, s, of each span
        self._seconds = 0.0

    def begin(self) -> None:
        """Steps begin that are to be measured."""
        self._counted = self._violations()
        self._begun = self._read = time.monotonic()
        self._seen_us = int(time.time() * 1e6) + _DELAY_US

    def step(self) -> None:
        """A step has ended: the clock is still that of its kernels."""
        if clock := self._ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"):
            self._clocks.append(clock * 1e6)
        if time.monotonic() - self._read > _OFTEN_S:
            self._samples()

    def end(self) -> None:
        """The steps have ended."""
        self._seconds += time.monotonic() - self._begun
        self._samples()
        after = self._violations()
        if self._counted is not None and after is not None:
            power, heat = (max(0.0, b - a) for a, b in zip(self._counted, after, strict=True))
            self._held.append((power, heat))

    @property
    def power(self) -> Power | None:
        """What was measured; None where the driver told nothing or no step ended."""
        if not self._seconds or not self._clocks:
            return None
        limit, most = (
            self._ask("nvmlDeviceGetEnforcedPowerLimit"),
            self._ask("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
        )
        capped, hot = (
            (min(1.0, sum(held) / self._seconds) for held in zip(*self._held, strict=True))
            if self._held
            else (None, None)
        )
        return Power(
            watts=statistics.fmean(self._watts) if self._watts else None,
            limit_w=limit / 1e3 if limit else None,
            clock_hz=statistics.median(self._clocks),
            max_clock_hz=most * 1e6 if most else None,
            capped=capped,
            hot=hot,
        )

    def _samples(self) -> None:
        """Keep the driver's power samples since the last ones that were read."""
        self._read = time.monotonic()
        found = self._ask("nvmlDeviceGetSamples", "NVML_TOTAL_POWER_SAMPLES", self._seen_us)
        for sample in found[1] if found else ():
            if sample.timeStamp > self._seen_us:
                self._watts.append(sample.sampleValue.uiVal / 1e3)
                self._seen_us = sample.timeStamp

    def _violations(self) -> tuple[float, float] | None:
        """Seconds for which the power limit and the temperature have held the clock down so far."""
        found = [self._ask("nvmlDeviceGetViolationStatus", f"NVML_PERF_POLICY_{why}") for why in ("POWER", "THERMAL")]
        return None if None in found else (found[0].violationTime / 1e9, found[1].violationTime / 1e9)


def _silent(*_: Any) -> None:
    """The answer of what tells nothing."""


def _asker(index: int, nvml: Any) -> Callable[..., Any]:
    """What asks NVML about one device: the name of a function and its arguments, constants by their names. The answer
    is None where there is no NVML, and for what this driver or board does not tell."""
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            return _silent
        nvml = pynvml
    try:
        nvml.nvmlInit()  # for as long as the process lives
        handle = nvml_handle(nvml, index)
    except (nvml.NVMLError, IndexError, ValueError):
        return _silent

    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *(getattr(nvml, a) if isinstance(a, str) else a for a in arguments))
        except (nvml.NVMLError, AttributeError):
            return None

    return ask
