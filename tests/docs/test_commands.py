"""Every command in the README and docs/ is parsed, and run: as written when cheap, else by substitutions.toml.

`make test` leaves out what is like other commands; `make test-full` does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from perfkit.cache import locked
from perfkit.cli import application
from tests.support import forked
from tests.support.docs.commands import Command, Plan, commands, example_files, plan, read_rules
from tests.support.forks import SOCKET, server

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md"])
TIMEOUT_S = 600
LAST = "runs/last"  # where substitutions.toml lets commands write that name no folder; a page may have several

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
    assert all(rule["why"] for kind in ("substitute", "not_run", "quick", "full") for rule in rules[kind])


def test_every_rule_has_a_command():
    """A page that changed leaves no rule behind."""
    rules = read_rules()
    typed = [c.text for page in PAGES for c in commands(page.read_text(encoding="utf-8"))]
    planned = [how.text for how in (plan(text, rules) for text in typed) if how and how.text]
    for kind, texts in (("not_run", typed), ("full", planned), ("quick", planned)):
        unused = [r["pattern"] for r in rules[kind] if not any(re.search(r["pattern"], text) for text in texts)]
        assert not unused, kind


def test_a_run_is_shared_unless_something_of_the_page_goes_into_it():
    assert Plan("perfkit run mlp --out runs/a --steps 2").shared == ("perfkit run mlp --steps 2 --out run", "runs/a")
    assert Plan("perfkit run gpt2 --data docs --out a").shared == ("perfkit run gpt2 --data docs --out run", "a")
    capture = "cp x/plain.py train.py && perfkit capture --steps 2"
    run = f"{capture} --out run -- python3 train.py"
    assert Plan(f"{capture} --out runs/b -- python3 train.py").shared == (run, "runs/b")
    for alone in ("perfkit run gpt2", "perfkit run gpt2 --data data/x --out a", "perfkit run ./m.py --out a", "x && y"):
        assert Plan(alone).shared is None
    assert Plan("perfkit run gpt2 --out a", exit_code=1).shared is None


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


def parsed(text: str) -> None:
    """Parse the options of a `perfkit` command and run nothing. Raises what the command line would complain of."""
    arguments = shlex.split(re.split(r" [|>&;]|  #", text)[0])[1:]
    group = typer.main.get_command(application(arguments[0]))
    with contextlib.ExitStack() as stack:
        for command in leaves(group):
            stack.enter_context(mock.patch.object(command, "callback"))
        group(args=arguments, standalone_mode=False)


def leaves(command: Any) -> Iterator[Any]:
    """The commands below a group."""
    below = getattr(command, "commands", {}).values()
    for each in below:
        yield from leaves(each)
    if not below:
        yield command


@pages
def test_every_command_is_parsed(page, workplace, monkeypatch):
    """As the reader types it, also where it is replaced or not run here."""
    monkeypatch.chdir(workplace[0])
    for command in commands(page.read_text(encoding="utf-8")):
        if command.text.startswith("perfkit "):
            parsed(command.text)


def test_a_wrong_option_is_found():
    for wrong in ("perfkit run gpt2 --stepps 3", "perfkit baseline forget main", "perfkit report"):
        with pytest.raises(typer.TyperException):
            parsed(wrong)


@pytest.fixture
def workplace(tmp_path):
    return tmp_path, prepared(tmp_path)


def prepared(folder: Path) -> dict[str, str]:
    """Put the repository's docs and examples into a folder. Return an environment whose `perfkit` is a fork
    (tests/support/forks.py) and whose `python3` is the one that runs the tests."""
    for name in ("docs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    shims = folder / ".bin"
    shims.mkdir()
    forks = server()
    for name, arguments in (("perfkit", f'-S "{forked.__file__}" "{forks.path}" '), ("python3", "")):
        (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (shims / name).chmod(0o755)
    variables = {"PATH": f"{shims}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1", SOCKET: forks.path}
    return {**os.environ, **variables}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folder of the runs that several pages need: of this session, for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runs of the docs"
    folder.mkdir(exist_ok=True)
    return folder


def shell(text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def made_once(text: str, runs: Path) -> tuple[subprocess.CompletedProcess[str] | None, Path]:
    """The folder of the run that `text` makes, and how the command ended if it was run now."""
    place = runs / hashlib.sha256(text.encode()).hexdigest()[:16]
    with locked(place):
        if (place / "run").is_dir():
            return None, place / "run"
        shutil.rmtree(place, ignore_errors=True)  # of a run that failed
        place.mkdir()
        return shell(text, place, prepared(place)), place / "run"


def done(how: Plan, folder: Path, environment: dict[str, str], runs: Path) -> subprocess.CompletedProcess[str] | None:
    """Do what a plan says; how its command ended, None where an equal run was there."""
    if how.shared is None:
        return shell(str(how.text), folder, environment)
    text, out = how.shared
    ended, made = made_once(text, runs)
    if made.is_dir():
        shutil.copytree(made, folder / out, dirs_exist_ok=out == LAST)
    return ended


def run_page(page: Path, workplace: tuple[Path, dict[str, str]], runs: Path, full: bool) -> None:
    folder, environment = workplace
    markdown, rules = page.read_text(encoding="utf-8"), read_rules()
    for name, text in example_files(markdown).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for command in commands(markdown):
        how = plan(command.text, rules, full)
        if how is None or how.text is None:
            continue
        ended = done(how, folder, environment, runs)
        place = f"{page.relative_to(ROOT)}, line {command.line}: {how.text}"
        good = ended is None or ended.returncode == how.exit_code
        assert good, f"{place}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


@pytest.mark.slow
@pages
def test_commands_run(page, workplace, runs):
    run_page(page, workplace, runs, full=False)


@pytest.mark.slow
@pytest.mark.full
@pages
def test_all_commands_run(page, workplace, runs):
    run_page(page, workplace, runs, full=True)
