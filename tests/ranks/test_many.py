"""A report on many ranks: stragglers for one reason are reported together, and text shows the ranks that matter."""

from __future__ import annotations

import json

import pytest

from perfkit.ranks import naming
from perfkit.ranks.analyse import analyse, of_job
from perfkit.ranks.rank_group import together
from perfkit.render import page
from perfkit.render.cells import table, words
from perfkit.render.pages import ranks as ranks_page
from tests.support.ranks.simulated import LAYERS, job

LATE = 1e6  # ns a layer
RANKS, SLOW = 32, (3, 8, 9, 20, 31)


def plan(rank, step, layer):
    if rank == 5:
        return {"longer": 3.0}  # a kernel, for another reason than the others
    return {"host": LATE * (1.0 + rank / 100), "cause": "Python"} if rank in SLOW else {}


@pytest.fixture(scope="module")
def report():
    return of_job(together(job(RANKS, plan, seed=3)), [], None, None)


def test_ranks_late_for_one_reason_are_one_sentence_and_one_finding(report):
    assert {one.rank for one in report.stragglers} == {5, *SLOW}
    first, second, *rest = report.headline
    told = {line.split(" ", 1)[0]: line for line in (first, second)}
    assert "5 of 32 ranks are late (3, 8, 9, 20 and 31). Rank 31, which costs most," in told["5"]
    assert "Python code" in told["5"] and "Their causes are of the same kind" in told["5"]
    assert told["Rank"].startswith("Rank 5 is late by ")
    assert not any("late" in line.split(":")[0] for line in rest)
    late = [found for found in report.findings if found.name == "straggler"]
    assert sorted(found.ranks for found in late) == [[3, 8, 9, 20, 31], [5]]
    several = next(found for found in late if len(found.ranks) > 1)
    assert several.title.startswith("5 of 32 ranks are late, rank 31,")
    equal = next(one.saves_ns for one in report.what_ifs if one.name == "equal ranks")
    assert several.saving_ns == equal >= LAYERS * LATE * 1.31  # no more than that, where each step has all of them late
    assert several.evidence.startswith("Rank 31: ") and "Python code" in several.evidence


def test_mending_ranks_that_are_late_in_turn_saves_all_their_delays():
    """Each of four is late by 12 ms a layer in steps of its own: the largest delay alone would be no bound."""

    def in_turn(rank, step, layer):
        return {"host": 12e6, "cause": "Python"} if rank < 4 and step % 4 == rank else {}

    found = of_job(together(job(8, in_turn, seed=4)), [], None, None)
    (late,) = [one for one in found.findings if one.name == "straggler"]
    assert late.ranks == [0, 1, 2, 3]
    assert late.saving_ns == pytest.approx(LAYERS * 12e6, rel=0.15)  # every step waits for one of them


def test_few_ranks_late_are_told_of_one_by_one():
    found = analyse(job(4, lambda r, s, layer: {"host": LATE} if r in (1, 3) else {}, seed=1)).stragglers
    assert [len(group) for group in naming.together(found)] == [1, 1]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([7], "7"),
        ([0, 2], "0 and 2"),
        ([1, 2, 3, 4, 5], "1, 2, 3, 4 and 5"),
        (range(0, 64, 2), "0, 2, 4, 6 and 28 more"),
    ],
)
def test_ranks_in_a_sentence(ranks, said):
    assert naming.numbers(list(ranks)) == said


def test_text_shows_the_latest_ranks_and_the_page_all(report):
    made = ranks_page.page(report)
    text = page.render_text(made)
    shown = [line.split()[0] for line in text.split("Ranks: where a step goes")[1].splitlines()[3:27]]
    assert set(shown[:6]) == {"5", *map(str, SLOW)} and len(shown) == 24
    assert text.count("8 rows more are in the HTML and the JSON.") == 3  # ranks, their idle time, their clocks
    (whole, *_) = [section.table for section in made.sections if section.table]
    assert len(whole.rows) == RANKS
    assert "rows more" not in json.dumps([page.table_data(s.table) for s in made.sections if s.table])


def test_a_table_that_fits_is_shown_whole():
    one = table("few", words("rank", ["0", "1"], name=True), in_text=2)
    assert one.of_text is one
