"""Jobs with rows that lack something: a report or a sentence, never a traceback."""

from __future__ import annotations

import contextlib
import dataclasses
import random

import numpy as np
import pytest

from perfkit.errors import InputError
from perfkit.ranks.analyse import analyse
from perfkit.ranks.rank_table import RankTable
from tests.ranks.test_stragglers import DELAYED, EARLY, with_buckets
from tests.support.ranks.simulated import job


def mutated(member: RankTable, dice: random.Random) -> RankTable:
    """The member without some rows, durations, streams, groups or steps, or without one kind of rows."""
    frame = member.frame.astype({"stream": object})
    for _ in range(dice.randrange(5)):
        rows = sorted({dice.randrange(len(frame)) for _ in range(dice.choice([1, 3, len(frame) // 2]))})
        kind = dice.choice(["rows", "duration_ns", "stream", "group", "step", "zero", "talks", "computation"])
        if kind == "rows":
            frame = frame.drop(rows).reset_index(drop=True)
        elif kind in ("talks", "computation"):
            frame = frame[(frame["family"] == "collective") == (kind == "talks")].reset_index(drop=True)
        elif kind == "zero":
            frame.loc[rows, "duration_ns"] = 0.0
        else:
            frame.loc[rows, kind] = np.nan if kind == "duration_ns" else None
        if len(frame) < 2:
            break
    return dataclasses.replace(member, frame=frame)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", range(60))
def test_what_rows_lack_is_no_traceback(seed):
    dice = random.Random(seed)
    whole = with_buckets(EARLY, DELAYED, EARLY)[: dice.choice([2, 3])] if seed % 2 else job(dice.choice([2, 4]))
    with contextlib.suppress(InputError):  # nothing is the same on two ranks
        assert analyse([mutated(member, dice) for member in whole]).parts
