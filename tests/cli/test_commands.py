"""A process builds the command that it runs, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from perfkit.cli import COMMANDS, application


def names(first: str) -> list[str]:
    return list(typer.main.get_group(application(first)).commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_built_alone(command):
    assert names(command) == [command]


@pytest.mark.parametrize("first", ["", "--help", "nonsense", "--version", "list_", "listing"])
def test_without_a_command_all_are_there(first):
    assert sorted(names(first)) == sorted(COMMANDS)


def test_modules_of_other_commands_are_not_imported():
    code = (
        "import sys; from perfkit.cli import application; application('report');"
        "print(sorted(m for m in sys.modules if m.startswith('perfkit.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'perfkit.cli.report'" in done.stdout
    assert "perfkit.cli.run'" not in done.stdout and "perfkit.cli.bench" not in done.stdout
