"""A generated program with what each line costs: as text, and as one HTML file with the heat in its margin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from perfkit import units
from perfkit.analysis.listing import ListedLine, Listing
from perfkit.analysis.results import Group
from perfkit.content import content_dir
from perfkit.render import html
from perfkit.render.cells import clean, column_scale

TEMPLATE = "annotated"
HOTTEST = 12  # lines that the head of a text names
_WIDE = 200  # characters of a line of a text


def render_text(listing: Listing) -> str:
    """The listing as text: the hottest lines, what no line owns, and the program with its costs in the margin."""
    costs = [line.cost for line in listing.lines]
    cells = _Cells([*costs, *listing.others])
    parts = [_title(listing), "", f"The {min(HOTTEST, len(costs))} lines that cost most", cells.head("line")]
    hottest = sorted(listing.lines, key=lambda line: -line.cost.time_ns)[:HOTTEST]
    parts += [f"{cells.row(line.cost)}  {_number(line.number)}  {_what(line)}" for line in hottest]
    if listing.others:
        parts += ["", "Kernels that no line owns", cells.head("")]
        parts += [f"{cells.row(group)}  {clean(group.key, 100)}" for group in listing.others]
    parts += ["", "The program", cells.head("line")]
    parts += _program(listing, cells)
    return "\n".join(part.rstrip() for part in parts) + "\n"


def _title(listing: Listing) -> str:
    what = f"{clean(listing.backend, 60)}: what each line costs in a step of {clean(listing.title, 120)}"
    return f"{what}\n{summary(listing)}"


def summary(listing: Listing) -> str:
    """One sentence: the kernel time of a step, and how it divides into lines and others."""
    whole, on_lines = listing.whole.time_ns, listing.on_lines_ns
    share = f"{on_lines / whole:.1%}" if whole else units.ABSENT
    rest = units.text(whole - on_lines, "ns") if listing.others else "nothing"
    count = "1 line" if len(listing.lines) == 1 else f"{len(listing.lines)} lines"
    return (
        f"Kernels take {units.text(whole, 'ns')} a step: {count} {units.text(on_lines, 'ns')} "
        f"({share}), and {rest} that no line owns."
    )


def _program(listing: Listing, cells: _Cells) -> Iterator[str]:
    costs = {line.number: line.cost for line in listing.lines}
    for number, text in enumerate(listing.text, 1):
        cost = costs.get(number)
        yield f"{cells.row(cost) if cost else cells.blank}  {_number(number)}  {clean(text.expandtabs(4), _WIDE)}"


def _number(number: int) -> str:
    return f"{number:>6}"


def _what(line: ListedLine) -> str:
    return clean("; ".join([*line.places[:1], ", ".join(line.kernels)]), 120)


class _Cells:
    """The columns of costs; one scale each, chosen from all `groups`."""

    def __init__(self, groups: list[Group]) -> None:
        self._time = column_scale([g.time_ns for g in groups], "ns")
        self._bytes = units.scale_for([g.bytes for g in groups], "B")
        self.blank = " " * len(self._join("", "", "", "", ""))

    def row(self, group: Group) -> str:
        roof = units.ABSENT if group.efficiency is None else f"{group.efficiency:.0%}"
        share, count = f"{group.share:.1%}", f"{group.count:g}"
        return self._join(self._time.number(group.time_ns), share, self._bytes.number(group.bytes), roof, count)

    def head(self, last: str) -> str:
        """The names of the columns, with the units of the time and of the bytes."""
        time, size = f"time/{self._time.suffix}", f"bytes/{self._bytes.suffix}"
        return f"{self._join(time, 'share', size, '% roof', 'calls')}  {last:>6}".rstrip()

    def _join(self, time: str, share: str, size: str, roof: str, count: str) -> str:
        return f"{time:>9} {share:>6} {size:>9} {roof:>6} {count:>6}"


def render_html(listing: Listing, template: Path | None = None) -> str:
    """One HTML file that needs nothing else. Raises what `perfkit.render.html.page` raises."""
    content = {"listing": listing, "summary": summary(listing)}
    return html.page(template or content_dir("reports") / TEMPLATE, f"{listing.backend}: cost by line", _json(content))


def _json(content: dict[str, object]) -> str:
    return html.embedded(msgspec.to_builtins(content))
