"""The report in at most 4 KB of JSON, for code agents and CI: what was measured, the verdict, the largest findings.

    {"schema": 1, "of": "run", "measured": {...}, "verdict": [...], "backends": [...], "findings": [...],
     "unknown": [...], "more": [...]}

Every number is one of the full report, in its base unit (ns, bytes, shares from 0 to 1). Where the answer would be
longer, texts are cropped, then findings and backends of the end are left out, and `left_out` says how many.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from perfkit.analysis.results import BackendReport, Finding, Interval, Report
from perfkit.render.cells import clean

SCHEMA = 1
LARGEST = 4096  # bytes of an answer
FINDINGS = 5
_TEXTS = (400, 240, 160, 100, 60)  # characters of a sentence, tried one after the other until the answer fits
_FEWEST = 1
LONGEST_PATH = 400


def render(report: Report) -> str:
    """Return the answer as one line of JSON. `LARGEST` bytes hold any report: what does not fit is left out."""
    for length in _TEXTS:
        if fits(text := _text(report, length, FINDINGS, len(report.backends))):
            return text
    for count in range(max(FINDINGS, len(report.backends)), _FEWEST - 1, -1):
        if fits(text := _text(report, _TEXTS[-1], min(count, FINDINGS), count)):
            return text
    return text


def fits(text: str) -> bool:
    """Return whether an answer is short enough."""
    return len(text.encode()) <= LARGEST


def _text(report: Report, length: int, findings: int, backends: int) -> str:
    return json.dumps(answer(report, length, findings, backends), ensure_ascii=False, allow_nan=False) + "\n"


def answer(report: Report, length: int, findings: int, backends: int) -> dict[str, Any]:
    """Return the answer with sentences of `length` characters, the first `backends`, and so many findings in all."""
    found = sorted(
        ((backend, one) for backend in report.backends for one in backend.findings), key=lambda pair: -pair[1].saving_ns
    )
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "of": report.kind,
        "measured": _measured(report, length),
        "verdict": [_cropped(sentence, length) for sentence in report.verdict[:3]],
        "backends": [_backend(backend) for backend in report.backends[:backends]],
        "findings": [_finding(backend, one, length) for backend, one in found[:findings]],
        "unknown": _unknown(report, length),
        "more": _more(report, length),
    }
    left = {"findings": len(found) - len(found[:findings]), "backends": len(report.backends[backends:])}
    return made | ({"left_out": {k: n for k, n in left.items() if n}} if any(left.values()) else {})


def _cropped(text: str, length: int) -> str:
    """The text on one line; one that is too long ends with a whole sentence, else with a whole word."""
    whole = clean(text, len(text) + 1)
    if len(whole) <= length:
        return whole
    kept = whole[: length - 1]
    sentence = kept.rfind(". ") + 1
    return kept[:sentence] if sentence > length // 2 else f"{kept.rpartition(' ')[0] or kept}…"


def _measured(report: Report, length: int) -> dict[str, Any]:
    settings = report.settings
    told = {
        "source": clean(report.source, LONGEST_PATH),
        "title": _cropped(report.title, length),
        "device": clean(str(report.environment.get("gpu") or report.environment.get("cpu") or ""), length),
        "workload": clean(settings.workload, length) if settings else "",
        "dtype": settings.dtype if settings else "",
    }
    return {name: value for name, value in told.items() if value}


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
    told = {"name": clean(backend.name, 60), "status": backend.status, "reason": _cropped(backend.reason, 160)}
    if correct is not None:
        told["correct"] = correct.ok
    return {k: v for k, v in (told | figures).items() if v not in (None, "")}


def _interval(interval: Interval) -> list[float]:
    return [interval.value, interval.low, interval.high]


def _finding(backend: BackendReport, finding: Finding, length: int) -> dict[str, Any]:
    told = {
        "backend": clean(backend.name, 60),
        "rule": finding.name,
        "title": _cropped(finding.title, length),
        "evidence": _cropped(finding.evidence, length),
        "do": _cropped(finding.remedy, length),
        "time_ns": finding.time_ns,
        "saves_at_most_ns": finding.saving_ns if finding.bounded else None,
        "share": finding.share if finding.bounded else None,
        "more": f"perfkit explain {finding.name}",
    }
    return {name: value for name, value in told.items() if value is not None}


def _unknown(report: Report, length: int) -> list[str]:
    """What the profiles do not say: rules that could not judge, work without a cost, and warnings."""
    told = [f"{one.rule}: {one.why}" for backend in report.backends for one in backend.unjudged]
    told += [backend.coverage.text for backend in report.backends if backend.coverage]
    told += [text for backend in report.backends for text in backend.warnings] + report.warnings
    return [_cropped(text, length) for text in dict.fromkeys(told)][:6]


def _more(report: Report, length: int) -> list[str]:
    source = shlex.quote(clean(report.source, LONGEST_PATH))
    return [f"perfkit report {source} --json --select 'kernels[:10]'", f"perfkit report {source} --limit 0"]
