"""Programs with one costly line each: the first finding names it, and none does of their healthy twins."""

import sys
from functools import cache
from pathlib import Path

import pytest

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.rules.base import WORTH
from perfkit.capture.agent.order import Order
from tests.support.programs.captured import capture

PROGRAM = Path(__file__).parents[1] / "support" / "lines" / "planted.py"
FUNCTIONS = {
    "augment": "augment",
    "metric": "metric",
    "tokens": "tokens",
    "hook": "convert",
    "collate": "tokenized",
    "print": "log",
    "loss": "loss_of",
    "optimizer": "step",
}


@cache
def planted():
    """The number of each planted line by its function."""
    found, function = {}, ""
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1):
        if text.lstrip().startswith("def "):
            function = text.split("def ")[1].split("(")[0]
        if text.endswith("# planted"):
            found[function] = number
    return found


def captured(folder, *arguments):
    found = capture([sys.executable, str(PROGRAM), *arguments], folder, Order(warmup=4, steps=2))
    assert found.code == 0, found.stderr.decode()
    table = found.table()
    return table, analyse_table(table, None, folder).backends[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_first_finding_names_the_planted_line(name, tmp_path):
    place = ("planted.py", planted()[FUNCTIONS[name]], FUNCTIONS[name])
    for number in range(3):  # on a busy machine one recording may show how long a line waited for the processor
        _, report = captured(tmp_path / str(number), name)
        # A finding about the machine, which has no lines, may come first.
        first = next(finding for finding in report.findings if finding.lines).lines[0]
        if (Path(first.file).name, first.line, first.function) == place:
            break
    assert (Path(first.file).name, first.line, first.function) == place
    assert first.code == PROGRAM.read_text().splitlines()[first.line - 1].strip()
    assert first.share > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_finding_of_a_healthy_twin_names_the_function(name, tmp_path):
    """Findings name lines with a twentieth of what they are about: none of the twin's that is worth a finding, but for
    the loss itself, which the function computes too. A busy machine makes calls unequal wherever they are."""
    table, report = captured(tmp_path, name, "healthy")
    assert table.facts["lines"]
    findings = [finding for finding in report.findings if finding.name != "unequal-calls"]
    named = [(line, finding.share * line.share) for finding in findings for line in finding.lines]
    function = FUNCTIONS[name] if name != "loss" else ""
    assert [line for line, share in named if line.function == function and share >= WORTH] == []
    assert not {line.line for line, _ in named} & set(planted().values())


@pytest.mark.slow
def test_kernels_of_the_backward_pass_have_the_line_of_their_forward(tmp_path):
    table, _ = captured(tmp_path, "augment", "healthy")
    rows = table.frame[table.frame["step"].notna()]
    backward = rows[(rows["pass"] == "backward") & (rows["module"] == "0")]
    assert len(backward)
    forward = rows[(rows["pass"] == "forward") & (rows["module"] == "0")]
    assert set(backward["line"]) == set(forward["line"])
    assert "in main" in next(iter(set(forward["line"])))
