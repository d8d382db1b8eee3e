"""Which of pytest's workers runs what, and when."""

from pathlib import Path

from tests.support.cpu import long_files
from tests.support.schedule import APART, LONG, scope, turn

ROOT = Path(__file__).parents[2]


def test_files_that_are_named_are_there():
    assert [path for path in (*APART, *LONG) if not (ROOT / path).is_file()] == []
    assert len({*LONG}) == len(LONG)


def test_long_files_begin_first_and_a_file_stays_together():
    assert scope("tests/a.py::test[x::y]") == "tests/a.py"
    assert scope(f"{APART[0]}::test[x]") == f"{APART[0]}::test[x]"
    units = ["tests/a.py", f"{LONG[1]}::test", "tests/b.py", LONG[0]]
    assert sorted(units, key=turn) == [LONG[0], f"{LONG[1]}::test", "tests/a.py", "tests/b.py"]


def test_the_longest_files_are_written_in_order():
    assert long_files({"tests/a.py": 11.0, "tests/b.py": 9.0, "tests/c.py": 90.0}) == "tests/c.py\ntests/a.py\n"
