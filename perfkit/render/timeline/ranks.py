"""The timeline of several ranks: a group of lanes a rank, on one clock, and who waits for whom in a collective."""

from __future__ import annotations

import numpy as np

from perfkit.analysis.timeline.layout import Timeline, timeline
from perfkit.ranks.drawing import Drawing
from perfkit.render.timeline import EMBEDDED_LIMIT, EMBEDDED_ROWS, as_text, written
from perfkit.render.timeline.events import DrawnEvents, EventColumns, arrange, kind_of_lane, rows_of, spans_of
from perfkit.render.timeline.fact_columns import FactColumns

NAME = "ranks"
FIRST_STEP = "only the first step is drawn, or the report would grow too large: `perfkit trace` writes all of it"
_TIES = 20_000  # waits that are drawn, the longest


def embedded(drawing: Drawing) -> str:
    """The timeline as text for an HTML file, at most `EMBEDDED_LIMIT`: of all steps, else of the first; else ""."""
    for part, notes in ((drawing, []), (drawing.first_step(), [FIRST_STEP])):
        if 0 < sum(len(table) for table in part.tables) <= EMBEDDED_ROWS:
            text = as_text(pack(part, notes))
            if len(text) <= EMBEDDED_LIMIT:
                return text
    return ""


def timelines(drawing: Drawing) -> list[Timeline]:
    """A timeline a rank; each says how much later it begins than the first."""
    made = [timeline(f"rank {r}", t, None) for r, t in zip(drawing.ranks, drawing.tables, strict=True)]
    first = min((one.origin_ns for one in made if len(one)), default=0.0)
    for one in made:
        one.later_ns = one.origin_ns - first if len(one) else 0.0
        one.lanes = [_lane(name) for name in one.lanes]
    return made


def drawn_rows(drawing: Drawing, made: list[Timeline]) -> list[np.ndarray]:
    """Return for each rank the drawn row of every row of its table, −1 for those not drawn."""
    found = []
    for table, one in zip(drawing.tables, made, strict=True):
        rows = np.full(len(table), -1, np.int64)
        rows[one.places] = np.arange(len(one.places))
        found.append(rows)
    return found


def pack(drawing: Drawing, notes: list[str] | None = None) -> bytes:
    """The timeline of all ranks as bytes."""
    made, facts, events = timelines(drawing), FactColumns(), DrawnEvents()
    parts: list[EventColumns] = []
    offsets = []
    for one in made:
        rows, spans = rows_of(one.columns(), events, facts), spans_of(one.spans, events, facts)
        for part in (spans, rows):
            part.start += one.later_ns
            part.lane += len(events.lanes)
        offsets.append(sum(len(p.row) for p in parts) + len(spans.row))
        parts += [spans, rows]
        kinds = ["spans", *map(kind_of_lane, one.lanes[1:])]
        events.lanes += [(f"{one.name} · {lane}", kind) for lane, kind in zip(one.lanes, kinds, strict=True)]
    place = arrange(parts, events)
    whole = Timeline(NAME, [], [], [*(notes or []), *_notes(made)], True)
    return written(whole, events, facts, _ties(drawing, drawn_rows(drawing, made), offsets, place))


def _notes(made: list[Timeline]) -> list[str]:
    return [f"{one.name}: {note}" for one in made for note in one.notes][:20]


def _ties(drawing: Drawing, drawn: list[np.ndarray], offsets: list[int], place: np.ndarray) -> dict[str, np.ndarray]:
    """The events between which a rank waits: of the late one, of the waiting one; the longest waits first."""
    pairs = []
    for late, i, waiting, j in drawing.ties[:_TIES].tolist():
        if drawn[late][i] >= 0 and drawn[waiting][j] >= 0:
            pairs.append((place[offsets[late] + drawn[late][i]], place[offsets[waiting] + drawn[waiting][j]]))
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return {"tie from": table[:, 0].copy(), "tie to": table[:, 1].copy()}


def _lane(name: str) -> str:
    """Collectives of a rank on the CPU run on threads of a library, which have no number."""
    return "collectives" if name == "cpu" else name
