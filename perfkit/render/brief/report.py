"""The brief answer about a report: what was measured, the verdict, the backends, and the largest findings."""

from __future__ import annotations

import shlex
from typing import Any

from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.results import BackendReport, Finding, Interval, Report
from perfkit.render.brief.texts import FINDINGS, LONGEST_PATH, cropped, known
from perfkit.render.cells import clean

_VERDICT, _UNKNOWN = 3, 6  # sentences
_WHOLE, _FEW = 200, 2  # with shorter sentences, at most that many about what is unknown
_FURTHER = 20  # names of findings
_CODE = 100  # characters of a line of source
_LINES = 2  # of a finding; one where sentences have to be short


def answer(report: Report, length: int, most: int) -> dict[str, Any]:
    """Return the answer with sentences of `length` characters, and at most `most` backends and findings."""
    findings, backends = min(most, FINDINGS), most
    found = sorted(
        ((backend, finding) for backend in report.backends for finding in backend.findings),
        key=lambda pair: -pair[1].saving_ns,
    )
    made: dict[str, Any] = {
        "of": report.kind,
        "measured": _measured(report, length),
        "verdict": [cropped(sentence, length) for sentence in report.verdict[:_VERDICT]],
        "backends": [_backend(backend) for backend in report.backends[:backends]],
        "findings": [_finding(backend, one, length) for backend, one in found[:findings]],
        "further": list(dict.fromkeys(one.name for _, one in found[findings:]))[:_FURTHER],
        "unknown": _unknown(report, length),
        "more": _more(report, bool(found[findings:])),
    }
    made = {name: value for name, value in made.items() if name != "further" or value}
    left = {"findings": len(found) - len(found[:findings]), "backends": len(report.backends[backends:])}
    return made | ({"left_out": {k: n for k, n in left.items() if n}} if any(left.values()) else {})


def _measured(report: Report, length: int) -> dict[str, Any]:
    settings = report.settings
    record = {
        "source": clean(report.source, LONGEST_PATH),
        "title": cropped(report.title, length),
        "device": clean(_device(report), length),
        "workload": clean(settings.workload, length) if settings else "",
        "dtype": settings.dtype if settings else "",
    }
    return known(record)


def _device(report: Report) -> str:
    """The names of the GPUs, else of the processor; "" where the profile does not say."""
    names = report.environment.get("gpu_names") or []
    cpu = report.environment.get("cpu")
    return ", ".join(map(str, names)) or str((cpu.get("model") if isinstance(cpu, dict) else cpu) or "")


def _backend(backend: BackendReport) -> dict[str, Any]:
    """Name, verdict on its results, and its figures; what is unknown is left out."""
    account, time = backend.accounting, backend.step
    figures: dict[str, Any] = {
        "step_ns": _interval(time) if time else None,
        "speedup": _interval(backend.speedup) if backend.speedup else None,
        "profiled_step_ns": account.profiled_step_ns if account else None,
        "kernel_ns": backend.kernel_ns or None,
        "efficiency": backend.efficiency,
        "mfu": backend.mfu,
        "peak_memory_bytes": backend.peak_memory_bytes,
        "headroom_ns": backend.headroom_ns,
    }
    correct = backend.correctness
    record: dict[str, Any] = {
        "name": clean(backend.name, 60),
        "status": backend.status,
        "reason": cropped(backend.reason, 160),
        "correct": correct.ok if correct else None,
    }
    return known(record | figures)


def _interval(interval: Interval) -> list[float]:
    return [interval.value, interval.low, interval.high]


def _finding(backend: BackendReport, finding: Finding, length: int) -> dict[str, Any]:
    record = {
        "backend": clean(backend.name, 60),
        "rule": finding.name,
        "title": cropped(finding.title, length),
        "evidence": cropped(finding.evidence, length),
        "do": cropped(finding.remedy, length),
        "time_ns": finding.time_ns,
        "saves_at_most_ns": finding.saving_ns if finding.bounded else None,
        "share": finding.share if finding.bounded else None,
        "lines": [_line(line) for line in finding.lines[: _LINES if length >= _WHOLE else 1]],
        "more": f"perfkit explain {finding.name}",
    }
    return known(record)


def _line(line: SourceLine) -> dict[str, Any]:
    """The place of a finding in the source: `line` is left out where only the function is known."""
    at = line.line or None
    return known(
        {"file": clean(line.file, 200), "line": at, "function": clean(line.function, 80), "share": line.share,
         "code": cropped(line.code, _CODE)}
    )  # fmt: skip


def _unknown(report: Report, length: int) -> list[str]:
    """Gaps in the profiles: rules that could not judge, work without a cost, and warnings."""
    record = [f"{one.rule}: {one.why}" for backend in report.backends for one in backend.unjudged]
    record += [backend.coverage.text for backend in report.backends if backend.coverage]
    record += [text for backend in report.backends for text in backend.warnings] + report.warnings
    most = _UNKNOWN if length >= _WHOLE else _FEW
    return [cropped(text, max(length, _CODE)) for text in dict.fromkeys(record)][:most]


def _more(report: Report, further: bool) -> list[str]:
    """Commands that show more; the first one all findings where some are left out."""
    source = shlex.quote(clean(report.source, LONGEST_PATH))
    parts = ["findings"] * further + ["'kernels[:10]'"]
    return [*(f"perfkit report {source} --select {part}" for part in parts), f"perfkit report {source} --limit 0"]
