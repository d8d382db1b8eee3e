"""The import contract's own logic: what the table of rooms allows and forbids."""

from __future__ import annotations

import pytest

pytest.importorskip("importlinter")

from tools.rooms_contract import forbidden_imports, parse_room

TABLE = dict(parse_room(line) for line in ["table:", "render: analysis", "analysis: table", "cli: *"])


def test_lines_of_the_table():
    assert parse_room("render: analysis, content") == ("render", frozenset({"analysis", "content"}))
    assert parse_room("errors:") == ("errors", frozenset())


def test_only_listed_and_shared_rooms_may_be_imported():
    imports = {
        ("render", "analysis"),
        ("render", "render"),
        ("render", "table"),
        ("table", "errors"),
        ("analysis", "render"),
        ("cli", "anything"),
    }
    assert forbidden_imports(imports, TABLE, frozenset({"errors"})) == [("analysis", "render"), ("render", "table")]
