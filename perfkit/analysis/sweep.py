"""A sweep as one result: speed, efficiency and memory of each, and how a step's time grows with each size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perfkit.analysis.results import BackendReport, Interval, Report
from perfkit.statistics import exponent


class SweepBackend(msgspec.Struct, kw_only=True):
    """One backend in one run of the sweep."""

    name: str
    status: str
    reason: str = ""
    unusable: str = ""  # why no number was made from its profile
    step: Interval | None = None  # ns
    steps_ns: float | None = None  # all timed steps together
    speedup: Interval | None = None
    samples_per_second: float | None = None
    efficiency: float | None = None
    mfu: float | None = None
    peak_memory_bytes: float | None = None
    # For steps that generate tokens: the time to the first one, and of each further one, with its share of its roof.
    first_token_ns: float | None = None
    token_ns: float | None = None
    token_efficiency: float | None = None


class SweepPoint(msgspec.Struct, kw_only=True):
    """One run: what was varied, as given, its backends, and on how many devices (ranks) and how shared they ran."""

    values: dict[str, str]
    folder: str
    members: list[SweepBackend]
    devices: int = 1
    parallel: str = ""


STEPS = "steps"  # the axis along which not a step grows, but all steps together


class Growth(msgspec.Struct, kw_only=True):
    """Time ∝ size^exponent along one axis, `others` held fixed; the interval is that of the regression. The time is a
    step's; of all timed steps together along the axis `STEPS`."""

    backend: str
    axis: str
    others: dict[str, str]
    exponent: float
    low: float | None
    high: float | None
    points: int


class Sweep(msgspec.Struct, kw_only=True):
    """The whole sweep. `axes` are names with values, `numeric` those whose values are sizes."""

    title: str
    axes: dict[str, list[str]]
    numeric: list[str]
    sample_name: str
    device: str
    points: list[SweepPoint]
    growth: list[Growth] = []

    @property
    def bad(self) -> list[tuple[SweepPoint, SweepBackend]]:
        """The wrong, the failed, and those with a profile that is unusable."""
        return [(p, m) for p in self.points for m in p.members if m.status in ("wrong", "failed") or m.unusable]


def summarise(axes: Mapping[str, Sequence[str]], runs: Sequence[tuple[Mapping[str, str], Report]]) -> Sweep:
    """The sweep over `axes` from its runs, in the order of the cells."""
    points = [
        SweepPoint(
            values=dict(values),
            folder=report.source,
            members=[_backend(b) for b in report.backends],
            devices=report.settings.ranks if report.settings else 1,
            parallel=report.settings.parallel if report.settings else "",
        )
        for values, report in runs
    ]
    first = runs[0][1]
    sweep = Sweep(
        title=first.workload.title if first.workload else first.title,
        axes={name: list(values) for name, values in axes.items()},
        numeric=[name for name, values in axes.items() if all(map(_is_size, values))],
        sample_name=first.workload.sample_name if first.workload else "samples",
        device=first.settings.device if first.settings else "",
        points=points,
    )
    sweep.growth = list(_growth(sweep))
    return sweep


def _backend(backend: BackendReport) -> SweepBackend:
    phases = {phase.name: phase for phase in backend.phases}
    first, later = phases.get("prefill"), phases.get("decode")
    return SweepBackend(
        name=backend.name,
        status=backend.status,
        reason=backend.reason,
        unusable=backend.unusable,
        step=backend.step,
        steps_ns=sum(backend.samples_ns) or None,
        speedup=backend.speedup,
        samples_per_second=backend.samples_per_second,
        efficiency=backend.efficiency,
        mfu=backend.mfu,
        peak_memory_bytes=backend.peak_memory_bytes,
        first_token_ns=first.time.value if first else None,
        token_ns=later.time.value if later else None,
        token_efficiency=later.efficiency if later else None,
    )


def scaling(sweep: Sweep, point: SweepPoint, member: SweepBackend) -> float | None:
    """Samples a second and device, of what the same backend does on the fewest devices with all else the same: 1 where
    devices add up. None where that was not measured or is wrong, and for a point that is alone."""

    work = _work(point)
    alike = [(p, m) for p in sweep.points for m in p.members if _work(p) == work and m.name == member.name]
    right = [(p, m) for p, m in alike if m.status == "ok"]
    fewest = min(right, key=lambda pm: pm[0].devices, default=None)
    if fewest is None or member.status != "ok" or fewest[0].devices == max(p.devices for p, _ in alike):
        return None
    base, rate = fewest[1].samples_per_second, member.samples_per_second
    return rate / point.devices / (base / fewest[0].devices) if base and rate else None


def _work(point: SweepPoint) -> dict[str, str]:
    """Return the settings that were varied, besides the devices and how they share the work."""
    return {name: value for name, value in point.values.items() if name not in ("ranks", "parallel")}


def _is_size(value: str) -> bool:
    try:
        return float(value) > 0
    except ValueError:
        return False


def lines(sweep: Sweep, axis: str) -> Iterator[tuple[str, dict[str, str], list[tuple[float, SweepBackend]]]]:
    """For each backend and each combination of the other axes: the members that were timed, by size along `axis`.

    Wrong results are on no line: a wrong result is not a fast one.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, SweepBackend]]] = {}
    for point in sweep.points:
        others = tuple((k, v) for k, v in point.values.items() if k != axis)
        for member in point.members:
            if member.step is not None and member.status == "ok":
                found.setdefault((member.name, others), []).append((float(point.values[axis]), member))
    for (name, others), members in found.items():
        yield name, dict(others), sorted(members, key=lambda pair: pair[0])


def cost_ns(member: SweepBackend, axis: str) -> float | None:
    """Return the value that grows along `axis`: the time of a step, or of all timed steps together."""
    if axis == STEPS:
        return member.steps_ns
    return member.step.value if member.step else None


def _growth(sweep: Sweep) -> Iterator[Growth]:
    for axis in sweep.numeric:
        for name, others, members in lines(sweep, axis):
            sizes = [size for size, _ in members]
            if len(set(sizes)) > 1:
                times = [time for _, m in members if (time := cost_ns(m, axis))]
                slope, low, high = exponent(sizes, times)
                yield Growth(
                    backend=name, axis=axis, others=others, exponent=slope, low=low, high=high, points=len(sizes)
                )
