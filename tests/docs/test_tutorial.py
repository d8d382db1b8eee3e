"""The tutorial's blocks of output are filled by tools/tutorial.py: each names a command, and none is left empty."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.support.docs.commands import commands

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location("tutorial", ROOT / "tools" / "tutorial.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_block_belongs_to_a_command_and_holds_its_first_line(tool):
    markdown = tool.PAGE.read_text(encoding="utf-8")
    known = {tool.name_of(command.text) for command in commands(markdown)}
    found = tool.SHOWN.findall(markdown)
    assert len(found) == markdown.count("<!-- shown of ") > 5
    for _, name, start, _, text, _ in found:
        assert name in known
        assert re.search(start, text.splitlines()[0]), f"run tools/tutorial.py: {name}, {start}"


def test_pictures_are_there_small_and_shown(tool):
    markdown = tool.PAGE.read_text(encoding="utf-8")
    for name in tool.PICTURES:
        assert f"(images/{name})" in markdown
        assert (ROOT / "docs" / "images" / name).stat().st_size < 200_000


def test_a_block_is_filled_with_its_part_of_the_output(tool, tmp_path):
    (tmp_path / "one.txt").write_text("before\n▸ A step takes 2 s  \n  more\n\nEnd of it\nafter\n")
    page = "<!-- shown of one: A step .. End -->\n```text\nold\n```\nprose\n"
    expected = "<!-- shown of one: A step .. End -->\n```text\n▸ A step takes 2 s\n  more\n```\nprose\n"
    assert tool.filled(page, tmp_path) == expected == tool.filled(expected, tmp_path)
    with pytest.raises(SystemExit, match="in no line of"):
        tool.filled(page.replace("A step", "A leap"), tmp_path)
    with pytest.raises(SystemExit, match="run with --run"):
        tool.filled(page.replace("one", "two"), tmp_path)
    assert (
        tool.name_of("perfkit run dlrm --out runs/a") == "a"
        and tool.name_of("perfkit compare runs/a runs/b") == "compare"
    )
