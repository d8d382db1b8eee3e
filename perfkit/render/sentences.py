"""The report's sentences and lines: heading, settings, coverage, ceilings, footnotes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfkit import units
from perfkit.analysis.line_results import LineTime, SourceLine
from perfkit.analysis.results import Advice, BackendReport, Finding, Missing, Report
from perfkit.analysis.roofline_results import RoofLine
from perfkit.analysis.words import apart, capital, percent
from perfkit.profile_names import doubt
from perfkit.render.cells import clean

SENTENCE = 600  # characters of a sentence that come from elsewhere
PARAGRAPH = 1500  # and of the headline's: several sentences of perfkit's own, each of which crops its names


def heading(report: Report) -> str:
    """The title of the report."""
    return clean(report.title)


def settings(report: Report) -> str:
    """Return what was run, on one line: "gpt2 · preset gpt2 · training · fp32 · batch 4 × 64 tokens · cpu"."""
    s, w = report.settings, report.workload
    if s is None or w is None:
        return clean(report.source)
    if w.program:
        size = units.many(w.parameters, "parameter") if w.parameters else ""  # 0: packed ones, of a quantized model
        return clean(" · ".join(filter(None, [w.program, w.steps_are, size])), SENTENCE)
    sizes = [s.grad_accumulation if s.grad_accumulation > 1 else None, s.batch_size, s.sequence_length]
    batch = f"batch {' × '.join(str(size) for size in sizes if size)} {w.sample_name}"
    mode = "training step" if s.training else f"{s.generate} tokens generated" if s.generate else "inference"
    dimensions = [f"{name} {value}" for name, value in s.dimensions.items()]
    optimizer = "" if s.optimizer == "default" else f"{s.optimizer} optimizer"
    recompute = "activations recomputed" if s.recompute else ""
    parts = [s.workload, f"preset {s.preset}", *dimensions, s.variant, mode, recompute, optimizer, s.dtype, batch]
    parts.append(s.device)
    if report.world:
        who = f"{report.world.ranks} ranks" if report.world.ranks > 1 else "a group of one rank"
        parts.append(f"{who}, {report.world.parallel} over {report.world.backend}")
    parts.append(f"{s.allocator} allocator" if s.device == "cpu" else "")
    parts.append("" if s.compile_mode == "default" else f"compile mode: {s.compile_mode}")
    parts.append("" if s.cuda_graphs == "default" else f"CUDA graphs: {s.cuda_graphs}")
    parts.append(units.many(w.parameters, "parameter"))
    return clean(" · ".join(p for p in parts if p), SENTENCE)


def data(report: Report) -> list[str]:
    """Say what the batches were made of, and what the workload says of itself (its `demonstrate`)."""
    if report.workload is None:
        return []
    source = report.workload.data_source
    lines = [f"Data: {source}."] if source else []
    return [clean(text, SENTENCE) for text in lines + report.workload.notes]


def verdict(report: Report) -> list[str]:
    """The verdict sentences."""
    return [clean(sentence, PARAGRAPH) for sentence in report.verdict]


def coverage(backend: BackendReport) -> str:
    """The coverage line, and the operators that the model does not know."""
    if backend.coverage is None:
        return ""
    text = clean(backend.coverage.text, SENTENCE)
    names = backend.coverage.uncosted
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        own = any("aten::" not in name for name in names)  # a kernel or an operator that is not PyTorch's
        hint = " (perfkit.register_cost gives them one)" if own else ""
        text += f" Without a cost: {', '.join(clean(name, 60) for name in apart(names[:5], 60))}{more}{hint}."
    return f"{text} {clean(backend.coverage.not_judged, SENTENCE)}".strip()


def trace_checks(backend: BackendReport) -> str:
    """Say how many checks of the profile hold, and which do not; "" of a profile without checks."""
    of = [check for check in backend.trace_checks if check.holds is not None]
    if not of:
        return ""
    failed = [f"{check.name} ({check.sentence})" for check in of if not check.holds]
    others = [check.name for check in backend.trace_checks if check.holds is None]
    said = f"Trace checks: {len(of) - len(failed)} of {len(of)} hold"
    said += f"; not: {', '.join(failed)}" if failed else ""
    said += f"; {', '.join(others)} {'does' if len(others) == 1 else 'do'} not apply" if others else ""
    return clean(f"{said}.", SENTENCE)


def finding(found: Finding, per: str) -> tuple[str, str, str]:
    """Return the sentences of a finding: a head with the saving, its evidence, its remedy."""
    whole = {"profile": "kernel time"}.get(per, per)
    amount = f"{units.text(found.saving_ns, 'ns')}, {percent(found.share)} of the {whole}"
    saving = f"Saves at most {amount}." if found.bounded else f"This takes {amount}; fixing it may save more."
    if not (found.bounded or found.saving_ns):
        saving = f"No profiled {per} holds it."
    return (
        clean(f"{capital(found.title)} {saving} [{found.name}]", SENTENCE),
        clean(found.evidence, SENTENCE),
        clean(found.remedy, SENTENCE),
    )


NO_LINE = "no line"


def line(found: SourceLine | LineTime) -> str:
    """A source line in words: `train.py:8 in augment`."""
    number = f":{found.line}" if found.line else ""
    return f"{found.file}{number} in {found.function}{doubt(found.exact, found.compiled)}" if found.file else NO_LINE


def lines(found: Finding) -> list[str]:
    """The source lines of a finding, each with its share and its text."""
    said = []
    for one in found.lines:
        share = f", {percent(one.share)}" if len(found.lines) > 1 or one.share < 1 else ""
        said.append(clean(f"at {line(one)}{share}{f': {one.code}' if one.code else ''}", SENTENCE))
    return said


FINDINGS = "What to do next"
FINDINGS_NOTE = (
    "The largest first. Savings are upper bounds; some are about the same time: they do not add up. "
    "`perfkit explain NAME` says what a finding means."
)


def unjudged(backend: BackendReport) -> str:
    """Which rules could not judge the profile, and why, on one line; empty where all could."""
    said = "; ".join(f"{one.rule} ({one.why})" for one in backend.unjudged)
    return clean(f"Not judged: {said}.", SENTENCE) if said else ""


ADVICE = "What NVIDIA's rules say"
ADVICE_NOTE = "NVIDIA's own estimates, stored in the report. They are about the same time: they do not add up."
MISSING = "Not in this report"
MISSING_NOTE = "With the option of ncu that supplies it:"


def advice(said: Advice, whole: bool = False) -> str:
    """One piece of NVIDIA's advice: its first sentence, or the `whole` text."""
    text = said.text if whole else f"{said.text.partition('. ')[0].rstrip('.')}."
    part = "" if said.scope == "global" else " of a part"
    return clean(f"{said.kernel}: {said.title} (estimate {percent(said.speedup)}{part}). {text}", SENTENCE)


def missing(one: Missing) -> str:
    """Name a missing measure, and the option that supplies it."""
    some = "" if one.kernels >= one.of else f" of {one.kernels} of {one.of} kernels"
    roofs = " (roofs depend on it)" if one.for_roof else ""
    return f"{clean(one.what)}{some}{roofs}: {clean(one.option, SENTENCE)}"


def ceilings(report: Report) -> str:
    """The ceilings that some kernel is judged by, named, on one line, and whose they are."""
    known = [
        f"{clean(r.label, 80)} {_rate(r, r.value)}{f' (datasheet {_rate(r, r.datasheet)})' if r.datasheet else ''}"
        for r in used_roofs(report)
    ]
    return f"Ceilings {clean(report.ceilings_are)}: {'; '.join(known)}." if known else "Ceilings: unknown."


def used_roofs(report: Report) -> list[RoofLine]:
    """The levels of memory, and the arithmetic units that some kernel is judged by."""
    used = {group.bound for backend in report.backends for group in backend.kernels}
    return [r for r in report.roofs if r.kind == "bandwidth" or r.resource in used]


def _rate(roof: RoofLine, value: float | None) -> str:
    return units.text(value, "B/s" if roof.kind == "bandwidth" else "FLOP/s")


def mfu(report: Report) -> str:
    """Explain MFU; empty when no backend has one."""
    named = next((b.mfu_ceiling for b in report.backends if b.mfu is not None and b.mfu_ceiling), "")
    if not named:
        return ""
    return f"MFU is hand-worked model FLOP (attention in full, masked or not) over step time and {clean(named)}."


def footnotes(report: Report) -> list[str]:
    """All warnings, the run's first, then each backend's under its name; none twice."""
    notes = list(report.warnings)
    for backend in report.backends:
        notes += [f"{backend.name}: {text}" for text in backend.warnings if text not in report.warnings]
    return [clean(note, SENTENCE) for note in dict.fromkeys(notes)]


def command(report: Report) -> str:
    """The command that made the run, as a shell reads it."""
    import shlex

    return clean(shlex.join(report.command), 2000)


def environment(report: Report) -> list[tuple[str, str]]:
    """The environment as (name, value) lines, nested names joined by dots."""
    return [(clean(name), clean(value, SENTENCE)) for name, value in _flat("", report.environment)]


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, (list, tuple)):
        yield prefix, ", ".join(str(v) for v in value)
    elif value is not None:
        yield prefix, str(value)
