"""Columns without pandas: they answer as a data frame of the same rows does."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from perfkit import table
from perfkit.columns import Coded, Frame, Whole, factorize, matching, plain
from perfkit.errors import InputError
from perfkit.tree.places import places_of

NAMES = ["gemm", "add", "gemm", "copy_", "add", "gemm"]
MODULES = [None, "h.0", "h.1", "h.0", None, "h.0"]


def made(**more: object) -> table.KernelTable:
    columns = {
        "name": Coded.of(NAMES), "short_name": Coded.of(["gemm", None, "gemm", "copy_", None, "gemm"]),
        "module": Coded.of(MODULES), "family": Coded.of(["matmul", "pointwise", "matmul", None, "pointwise", "matmul"]),
        "kind": Coded(["memcpy", "gpu_kernel"], np.array([1, 1, 1, 0, 1, 1])),
        "order": Whole(np.arange(6), np.ones(6, bool)),
        "step": Whole(np.array([0, 0, 0, 1, 1, 1]), np.array([False, True, True, True, True, True])),
        "layer": Whole(np.array([0, 0, 1, 0, 0, 0]), np.array([m is not None for m in MODULES])),
        "duration_ns": np.array([5.0, 1.0, 4.0, np.nan, 2.0, 3.0]), "bytes_read": np.array([8.0, 2, 8, 1, 2, 8]),
        "bytes_written": np.array([8.0, 2, 8, 1, np.nan, 8]),
    }  # fmt: skip
    return table.build(columns | more)


@pytest.mark.parametrize("name", table.COLUMN_NAMES)
def test_a_column_answers_as_that_of_pandas(name: str) -> None:
    rows, frame = made().rows, made().frame
    assert isinstance(rows, Frame)
    for some in (slice(None), np.array([4, 1, 2]), np.array([True, False, True, True, False, True])):
        light, series = rows[name][some], frame[name].iloc[some]
        assert light.notna().tolist() == series.notna().tolist()
        assert light.isna().tolist() == series.isna().tolist()
        if isinstance(light, Coded | Whole):
            assert plain(light) == plain(series)
            codes, words = light.factorize()
            theirs, others = series.factorize()
            assert codes.tolist() == theirs.tolist() and list(words) == list(others)
            assert light.nunique() == series.nunique()
        else:
            assert np.array_equal(light.to_numpy(float), series.to_numpy(float), equal_nan=True)


def test_words_are_filled_and_asked_for_as_in_pandas() -> None:
    rows, frame = made().rows, made().frame
    assert rows["short_name"].fillna(rows["name"]).tolist() == frame["short_name"].fillna(frame["name"]).tolist()
    assert rows["module"].fillna("").tolist() == frame["module"].fillna("").tolist()
    assert (rows["name"] == "add").tolist() == (frame["name"] == "add").tolist()
    assert (rows["name"] != "add").tolist() == (frame["name"] != "add").tolist()
    assert rows["family"].isin(("matmul", "copy")).tolist() == frame["family"].isin(("matmul", "copy")).tolist()
    assert rows["name"][3] == "copy_" and rows["module"][0] is None
    assert matching(rows["name"], lambda n: n.endswith("_")).tolist() == [False] * 3 + [True] + [False] * 2
    assert rows["step"].fillna(-1).to_numpy(np.int64).tolist() == [-1, 0, 0, 1, 1, 1]
    assert np.array_equal(rows["step"].to_numpy(float), [np.nan, 0, 0, 1, 1, 1], equal_nan=True)


def test_the_frame_of_pandas_has_the_dtypes_of_the_table() -> None:
    frame = made().frame
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {c.name: c.dtype for c in table.COLUMNS}
    assert frame["bytes_origin"].tolist() == ["model"] * 6
    again = table.build({name: frame[name].array for name in frame.columns})
    pd.testing.assert_frame_equal(again.frame, frame)


def test_words_that_are_there_twice_are_one() -> None:
    twice = Coded(["a", "b", "a"], np.array([2, 0, 1, -1]))
    assert [x.tolist() if hasattr(x, "tolist") else x for x in twice.distinct().factorize()] == [
        [0, 0, 1, -1],
        ["a", "b"],
    ]
    assert factorize(["x", None, "y", "x"])[0].tolist() == [0, -1, 1, 0]


def test_a_broken_table_is_refused_without_pandas_too() -> None:
    with pytest.raises(InputError, match="bytes_read is negative"):
        made(bytes_read=np.full(6, -1.0))
    with pytest.raises(InputError, match="launch order is not unique"):
        made(order=Whole(np.zeros(6, int), np.ones(6, bool)))
    with pytest.raises(ValueError, match="not columns of the kernel table: colour"):
        made(colour=np.zeros(6))


def test_places_are_the_same_of_both() -> None:
    light, frame = places_of(made().rows, ("family",)), places_of(made().frame, ("family",))
    assert light.kind.tolist() == frame.kind.tolist() and light.first.tolist() == frame.first.tolist()
    for name in frame.lines.columns:
        assert list(light.lines[name]) == plain(frame.lines[name])


def test_a_report_of_a_trace_does_without_pandas() -> None:
    """Its import alone takes longer than reading a small trace."""
    program = (
        "import sys, runpy; sys.argv = ['perfkit', 'report', sys.argv[1], '--format', 'none']\n"
        "try: runpy.run_module('perfkit', run_name='__main__')\n"
        "except SystemExit as error: assert not error.code\n"
        "print('loaded:', sorted({'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    trace = "tests/fixtures/ranks/ddp.rank0.json.gz"
    done = subprocess.run([sys.executable, "-c", program, trace], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded: []\n")
