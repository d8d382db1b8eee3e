"""Power and clocks of GPUs while another process works on them, as their driver reports them (NVML).

Nothing is measured in the process that is timed: one that waits for it reads the clocks, and the power samples that
the driver keeps of the last two seconds.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perfkit.hardware.gpu import THROTTLE_REASONS, started_nvml
from perfkit.run_folder import Power

Spans = Sequence[tuple[float, float]]  # from, to: seconds since the epoch

PERIOD_S = 0.02
KEPT = 100_000  # readings of a GPU: those of the last half hour
OFTEN_S = 1.0  # the driver keeps two seconds of power samples or more
DELAY_S = 0.025  # a power sample is the mean over about this time before it
POWER_CAP = next(bit for bit, reason in THROTTLE_REASONS.items() if reason == "power cap")
THERMAL = sum(bit for bit, reason in THROTTLE_REASONS.items() if "thermal" in reason)


class Gauge:
    """Samples of one GPU: `clocks` holds when, the clock in Hz and why it is held down; `watts` when and W."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self.clocks: deque[tuple[float, float, int]] = deque(maxlen=KEPT)
        self.watts: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self.uuid = str(self.ask("nvmlDeviceGetUUID") or "").removeprefix("GPU-")
        self._seen_us = int(time.time() * 1e6)
        self._collecting = threading.Lock()

    def ask(self, function: str, *arguments: Any) -> Any:
        """NVML's answer; None if this driver or board has none. Constants are given by their names."""
        try:
            values = (getattr(self._nvml, a) if isinstance(a, str) else a for a in arguments)
            return getattr(self._nvml, function)(self._handle, *values)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def look(self) -> None:
        """Read the clock."""
        if clock := self.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"):
            reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
            self.clocks.append((time.time(), clock * 1e6, -1 if reasons is None else reasons))

    def collect(self) -> None:
        """Take the power samples that the driver has kept since the last time."""
        with self._collecting:
            found = self.ask("nvmlDeviceGetSamples", "NVML_TOTAL_POWER_SAMPLES", self._seen_us)
            for sample in found[1] if found else ():
                if sample.timeStamp > self._seen_us:
                    self._seen_us = sample.timeStamp
                    self.watts.append((sample.timeStamp / 1e6, sample.sampleValue.uiVal / 1e3))

    def during(self, spans: Spans) -> Power | None:
        """Return the summary within `spans`; None without samples."""
        clocks = [(clock, why) for at, clock, why in tuple(self.clocks) if _within(at, spans)]
        watts = [drawn for at, drawn in tuple(self.watts) if _within(at, spans, DELAY_S)]
        if not clocks and not watts:
            return None
        limit = self.ask("nvmlDeviceGetEnforcedPowerLimit")
        most = self.ask("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM")
        why = [bits for _, bits in clocks if bits >= 0]
        return Power(
            watts=statistics.fmean(watts) if watts else None,
            limit_w=limit / 1e3 if limit else None,
            clock_hz=statistics.median(clock for clock, _ in clocks) if clocks else None,
            max_clock_hz=most * 1e6 if most else None,
            capped=_share(why, POWER_CAP),
            hot=_share(why, THERMAL),
        )


class Watch:
    """Looks at all GPUs of this machine, from a thread, until it is left."""

    def __init__(self, gauges: Iterable[Gauge] | None = None) -> None:
        self._gauges = {gauge.uuid: gauge for gauge in (_gauges() if gauges is None else gauges)}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="perfkit-power")

    def __enter__(self) -> Watch:
        if self._gauges:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._gauges:
            self._thread.join()

    def during(self, uuid: str, spans: Spans) -> Power | None:
        """Return power and clocks of the GPU with this UUID within `spans` so far; None if unknown."""
        gauge = self._gauges.get(uuid.removeprefix("GPU-"))
        if gauge is None:
            return None
        gauge.collect()
        return gauge.during(spans)

    def _look(self) -> None:
        collected = time.monotonic()
        while not self._ended.wait(PERIOD_S):
            for gauge in self._gauges.values():
                gauge.look()
            if time.monotonic() - collected > OFTEN_S:
                collected = time.monotonic()
                for gauge in self._gauges.values():
                    gauge.collect()


def _gauges() -> Iterator[Gauge]:
    """One for each GPU of this machine; none without NVML."""
    nvml = started_nvml()  # for as long as the process lives
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                yield Gauge(nvml, nvml.nvmlDeviceGetHandleByIndex(index))


def _within(at: float, spans: Spans, delay: float = 0.0) -> bool:
    return any(start + delay <= at <= end for start, end in spans)


def _share(why: Sequence[int], bits: int) -> float | None:
    return sum(bool(one & bits) for one in why) / len(why) if why else None
