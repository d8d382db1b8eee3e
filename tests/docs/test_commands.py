"""Every command in the README and in docs/ is run: as written when cheap, else as substitutions.toml says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import Command, Plan, commands, example_files, plan, read_rules

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md"])
TIMEOUT_S = 600

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())

MARKDOWN = """
```console
$ perfkit run gpt2 \\
    --steps 5
Verdict: fine
$ make demo
```
```python
# my_model.py
x = 1
```
```bash
# a comment
perfkit list   # workloads
```
"""


def test_commands_and_example_files_are_found():
    assert commands(MARKDOWN) == [
        Command(3, "perfkit run gpt2 --steps 5"),
        Command(6, "make demo"),
        Command(14, "perfkit list   # workloads"),
    ]
    assert example_files(MARKDOWN) == {"my_model.py": "# my_model.py\nx = 1\n"}


def test_each_kind_of_rule():
    rules = read_rules()
    assert plan("perfkit report runs/a", rules) == Plan("perfkit report runs/a")
    assert plan("perfkit run gpt2 --preset xl --steps 2", rules) == Plan("perfkit run gpt2 --preset tiny --steps 2")
    assert plan("make demo", rules) == Plan(None)
    assert plan("perfkit unheard-of", rules) is None
    assert plan("rm -rf /", rules) is None


def test_rules_that_change_or_leave_out_say_why():
    rules = read_rules()
    assert all(rule["why"] for rule in [*rules["substitute"], *rules["not_run"]])


@pages
def test_every_command_is_known_to_a_rule(page):
    rules = read_rules()
    unknown = [c for c in commands(page.read_text(encoding="utf-8")) if plan(c.text, rules) is None]
    assert not unknown, f"{page}: add a rule to tests/docs/substitutions.toml"


@pages
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word for c in commands(page.read_text(encoding="utf-8")) for word in re.findall(r"^make ([a-z-]+)", c.text)
    }
    assert named <= targets


@pytest.fixture
def workplace(tmp_path):
    """A folder with the repository's docs and examples, and an environment whose `perfkit` is this checkout's and whose
    `python3` is the one that runs the tests."""
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shims = tmp_path / ".bin"
    shims.mkdir()
    for name, arguments in (("perfkit", "-m perfkit "), ("python3", "")):
        (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (shims / name).chmod(0o755)
    variables = {"PATH": f"{shims}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return tmp_path, {**os.environ, **variables}


@pytest.mark.slow
@pages
def test_commands_run(page, workplace):
    folder, environment = workplace
    markdown, rules = page.read_text(encoding="utf-8"), read_rules()
    for name, text in example_files(markdown).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for command in commands(markdown):
        how = plan(command.text, rules)
        if how is None or how.text is None:
            continue
        done = subprocess.run(
            ["bash", "-c", how.text], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        place = f"{page.relative_to(ROOT)}, line {command.line}: {how.text}"
        assert done.returncode == how.exit_code, f"{place}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
