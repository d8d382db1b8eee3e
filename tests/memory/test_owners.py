"""The table of the owners of memory: rows that would read alike say what allocated."""

from __future__ import annotations

from perfkit.memory.results import Moment, Owner
from perfkit.render.pages.memory import owners_table


def test_owners_of_one_name_say_what_allocated() -> None:
    """The scores and the probabilities of one attention were two equal rows."""
    attention = "model.encoder.layers.1.attention"
    rows = [
        Owner(kind="temporaries", name=attention, file="net.py", line=4, function="aten::bmm", bytes=800, count=1),
        Owner(kind="temporaries", name=attention, file="net.py", line=4, function="aten::softmax", bytes=700, count=1),
        Owner(kind="parameters", name=attention, file="net.py", line=2, function="__init__", bytes=60, count=1),
        Owner(kind="temporaries", name="model.norm", file="net.py", line=7, function="aten::add", bytes=40, count=1),
        Owner(kind="temporaries", file="net.py", line=9, function="main", bytes=30, count=1),
    ]
    names = owners_table(Moment(allocated=1630, owners=rows), "Owners").columns[0]
    assert [cell.text for cell in names.cells] == [
        f"{attention}: aten::bmm", f"{attention}: aten::softmax", attention, "model.norm", "main",
    ]  # fmt: skip
