"""The llm.c summary as text: kernel calls, kernel types, and where the step goes.

DRAM amounts are in GB (10⁹ bytes), L2 amounts in GiB (2³⁰ bytes), as the figures of llm.c's script are, whatever it
calls them; there are as many digits as there.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.analysis.llmc_style import INIT, PASSES, LlmcCall, LlmcStyle, LlmcSummary
from perfkit.render.cells import NAME_LIMIT, clean

_NAME_WIDTH = 40  # the type table crops longer names to 37 characters and "..."
_WORDS = {"enc": "encoder", "fwd": "forward blocks", "cls": "classifier", "bwd": "backward blocks", "opt": "optimizer"}
_GB, _GIB, _MS = 1e9, 2.0**30, 1e6
_HEADERS = ("time", "DRAM BW", "tensor", "DRAM rd", "DRAM wr", "L2 rd", "L2 wr", "instr")
_UNITS = ("ms", "GB/s", "%", "GB", "GB", "GiB", "GiB", "M")


def render(summary: LlmcSummary, settings: LlmcStyle | None = None) -> str:
    """The summary as plain text, ending in a newline; names are made safe to print."""
    settings = settings or LlmcStyle(summary.layers)
    parts = [_calls(summary, settings), _kinds(summary), _step(summary, settings), _efficiency(summary)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _calls(summary: LlmcSummary, settings: LlmcStyle) -> Iterator[str]:
    width = max([_NAME_WIDTH, *(len(clean(c.name)) for c in summary.calls)])
    passes = {c.number: clean(f"{settings.name(c.pass_)}×{c.multiplier}", NAME_LIMIT) for c in summary.calls}
    first = max([6, *map(len, passes.values())])
    heads, units = ("".join(f" {text:>8}" for text in line) for line in (_HEADERS, _UNITS))
    yield f"Kernel calls (blocks × {summary.layers})"
    yield f"{'id':>4} {'pass':<{first}} {'kernel':<{width}}{heads}"
    yield f"{'':>4} {'':<{first}} {'':<{width}}{units}"
    for call in summary.calls:
        yield f"{call.number:>4} {passes[call.number]:<{first}} {clean(call.name):<{width}}{_figures(call)}"
    yield "-" * (6 + first + width + 9 * len(_HEADERS))
    yield f"{'':>4} {'':<{first}} {'total':<{width}}{_figures(summary)}"


def _figures(amounts: LlmcCall | LlmcSummary) -> str:
    rates = f" {amounts.bandwidth / _GB:8.1f} {amounts.tensor * 100:8.1f}"
    dram = f" {amounts.dram_read_bytes / _GB:8.2f} {amounts.dram_write_bytes / _GB:8.2f}"
    l2 = f" {amounts.l2_read_bytes / _GIB:8.2f} {amounts.l2_write_bytes / _GIB:8.2f}"
    return f" {amounts.time_ns / _MS:8.2f}{rates}{dram}{l2} {amounts.instructions / 1e6:8.2f}"


def _kinds(summary: LlmcSummary) -> Iterator[str]:
    yield "Kernel types, largest time first"
    yield f"  {'kernel':<{_NAME_WIDTH}} {'ms':>8} {'share':>8} {'count':>6}"
    for kind in summary.kinds:
        name = clean(kind.name if len(kind.name) <= _NAME_WIDTH else f"{kind.name[: _NAME_WIDTH - 3]}...")
        yield f"  {name:<{_NAME_WIDTH}} {kind.time_ns / _MS:8.2f} {kind.share * 100:7.2f}% {kind.count:6d}"


def _step(summary: LlmcSummary, settings: LlmcStyle) -> Iterator[str]:
    yield f"A training step of {summary.layers} layers takes {summary.time_ns / _MS:.1f} ms:"
    names = {p: clean(dict(settings.names).get(p, _WORDS.get(p, p))) for p in PASSES if p != INIT}
    width = max(map(len, names.values()))
    for pass_, name in names.items():
        time = summary.passes[pass_]
        share = time / summary.time_ns * 100 if summary.time_ns else 0.0
        yield f"  {name:<{width}} {time / _MS:8.1f} ms {share:5.1f}%"
    yield (
        f"DRAM: {_amount(summary, summary.dram_read_bytes, _GB, 'GB')} read, "
        f"{_amount(summary, summary.dram_write_bytes, _GB, 'GB')} written"
    )
    yield (
        f"L2:   {_amount(summary, summary.l2_read_bytes, _GIB, 'GiB')} read, "
        f"{_amount(summary, summary.l2_write_bytes, _GIB, 'GiB')} written"
    )
    instructions = summary.instructions
    yield f"Instructions: {instructions / 1e9:.1f} billion ({summary.rate(instructions) / 1e9:.1f} billion/s)"


def _amount(summary: LlmcSummary, amount: float, factor: float, unit: str) -> str:
    return f"{amount / factor:.1f} {unit} ({summary.rate(amount) / factor:.1f} {unit}/s)"


def _efficiency(summary: LlmcSummary) -> Iterator[str]:
    yield f"Overall efficiency: {summary.efficiency * 100:.1f}%"
    bandwidth, tensor = f"{summary.peak_bandwidth / _GB:.1f} GB/s", f"{summary.peak_tensor * 100:.1f}%"
    yield f"  each kernel by the better of its shares of {bandwidth} of DRAM bandwidth (the best of all kernels but the"
    yield f"  first) and of {tensor} of the tensor cores; weighted by time"
