"""Places from several sources: one order, each column made once."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.tree.placement import (
    ALIGNMENT,
    CALL_SITE,
    EVENTS,
    LINE,
    MODEL,
    SOURCES,
    SUFFIX,
    Placement,
    WordColumn,
    Words,
    distinct_pairs,
    settled,
)


def says(source: str, **columns: list[str | None]) -> Placement:
    return Placement(source, {name: Words.of(values, np.arange(len(values))) for name, values in columns.items()})


def plain(column: WordColumn) -> list[str | None]:
    return [column.words[code] if code >= 0 else None for code in column.code.tolist()]


def test_later_sources_hold_over_earlier_ones_whichever_comes_first() -> None:
    events = says(EVENTS, module=["a", "a", None, "a"], operator=["mm", "mm", "mm", None])
    model = says(MODEL, module=[None, None, "(root)", None])
    site = says(CALL_SITE, module=[None, "h.0", None, None], operator=[None, "gelu", None, None])
    for order in ([events, model, site], [site, events, model]):
        found = settled(order)
        assert plain(found["module"]) == ["a", "h.0", "(root)", "a"]
        assert plain(found["operator"]) == ["mm", "gelu", "mm", None]


def test_who_places_a_row_says_what_it_serves_or_that_it_serves_nothing_else() -> None:
    line = says(LINE, placed_by=["symbol"] * 3, serves=["x", "y", "z"])
    aligned = says(ALIGNMENT, placed_by=["alignment", "alignment", None], serves=["new", None, None])
    assert plain(settled([line, aligned])["serves"]) == ["new", None, "z"]


def test_ends_stand_behind_the_ranges() -> None:
    events = says(EVENTS, range=["outer/inner", None, "outer", None])
    line = says(LINE, **{SUFFIX: ["generated:3", "generated:3", None, None]})
    found = settled([events, line])
    assert plain(found["range"]) == ["outer/inner/generated:3", "generated:3", "outer", None]
    assert SUFFIX not in found


def test_an_unknown_source_is_refused_and_the_order_is_the_listed_one() -> None:
    with pytest.raises(ValueError, match="not a source of places"):
        Placement("hearsay", {})
    assert SOURCES == ("table", "events", "capture", "model", "line", "call site", "alignment")
    assert settled([]) == {}


def test_pairs_of_codes() -> None:
    one, other = np.array([-1, 2, 2, -1]), np.array([0, -1, -1, 0])
    pairs, which = distinct_pairs(one, other)
    assert [pairs[i] for i in which] == [(-1, 0), (2, -1), (2, -1), (-1, 0)]
    assert distinct_pairs(one[:0], other[:0])[0] == []
