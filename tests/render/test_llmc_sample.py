"""llm.c's profile of one step on an H100, digit by digit: `--style llmc` against the output of llm.c's script."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit import readers
from perfkit.analysis.llmc_style import summarize
from perfkit.render.pages import llmc
from perfkit.table import KernelTable

Cli = Callable[..., Any]

CALL = re.compile(r"^ *(\d+) +(\w+)×(\d+) +(.+?)((?: +[\d.]+){8})$", re.M)
TOTAL = re.compile(r"^ +total((?: +[\d.]+){8})$", re.M | re.I)
KIND = re.compile(r"^  (\S+) +([\d.]+) +([\d.]+)% +(\d+)$", re.M)

# Figures of the summary, in their order: (the script's words, perfkit's).
SUMMARY = {
    "step, ms": (r"step takes ([\d.]+)ms", r"layers takes ([\d.]+) ms"),
    "encoder": (r"([\d.]+)ms \(([\d.]+)%\) in the encoder", r"encoder +([\d.]+) ms +([\d.]+)%"),
    "forward": (r"([\d.]+)ms \(([\d.]+)%\) in forward", r"forward blocks +([\d.]+) ms +([\d.]+)%"),
    "classifier": (r"([\d.]+)ms \(([\d.]+)%\) in the classifier", r"classifier +([\d.]+) ms +([\d.]+)%"),
    "backward": (r"([\d.]+)ms \(([\d.]+)%\) in backward", r"backward blocks +([\d.]+) ms +([\d.]+)%"),
    "optimizer": (r"([\d.]+)ms \(([\d.]+)%\) in the optimizer", r"optimizer +([\d.]+) ms +([\d.]+)%"),
    "DRAM read": (r"We read ([\d.]+)GiB \(([\d.]+)GB/s\)", r"DRAM: ([\d.]+) GB \(([\d.]+) GB/s\) read"),
    "DRAM written": (r"write ([\d.]+)GiB \(([\d.]+)GB/s\) to DRAM", r"([\d.]+) GB \(([\d.]+) GB/s\) written"),
    "L2 read": (r"^read ([\d.]+)GiB \(([\d.]+)GB/s\)", r"L2: +([\d.]+) GiB \(([\d.]+) GiB/s\) read"),
    "L2 written": (r"write ([\d.]+)GiB \(([\d.]+)GB/s\) to L2", r"([\d.]+) GiB \(([\d.]+) GiB/s\) written"),
    "instructions": (r"([\d.]+) billion instructions \(([\d.]+) GInst", r"([\d.]+) billion \(([\d.]+) billion/s"),
    "peak DRAM": (r"peak DRAM bandwidth of ([\d.]+)GB/s", r"shares of ([\d.]+) GB/s"),
    "peak tensor": (r"peak tensor throughput of ([\d.]+)%", r"of ([\d.]+)% of the tensor cores"),
    "efficiency": (r"efficiency is ([\d.]+)%", r"efficiency: ([\d.]+)%"),
}


@pytest.fixture(scope="module")
def expected(samples: Path) -> str:
    return (samples / "llmc" / "llmc-h100.expected.txt").read_text()


@pytest.fixture(scope="module")
def shown(samples: Path) -> str:
    table = readers.read(samples / "llmc" / "llmc-h100.csv")
    assert isinstance(table, KernelTable)
    return llmc.render(summarize(table))


def test_the_command_says_so(run_cli: Cli, samples: Path, shown: str) -> None:
    done = run_cli(["report", samples / "llmc" / "llmc-h100.csv", "--style", "llmc"])
    assert done.rc == 0, done.stderr
    assert done.stdout.endswith(shown)


def test_every_cell_of_every_kernel_call(shown: str, expected: str) -> None:
    calls, theirs = cells(CALL, shown), cells(CALL, expected)
    assert [call[0] for call in calls] == [str(number) for number in range(86)]
    assert calls == theirs


def test_the_totals(shown: str, expected: str) -> None:
    (total,) = cells(TOTAL, expected)
    assert len(total) == 8
    assert cells(TOTAL, shown) == [total]


def test_every_cell_of_every_kernel_type(shown: str, expected: str) -> None:
    kinds = cells(KIND, expected)
    assert len(kinds) == 32
    assert cells(KIND, shown) == kinds


@pytest.mark.parametrize("figure", SUMMARY)
def test_the_summary(figure: str, shown: str, expected: str) -> None:
    theirs, ours = SUMMARY[figure]
    (digits,) = re.findall(theirs, expected, re.M)
    assert re.findall(ours, shown) == [digits]


def cells(line: re.Pattern[str], text: str) -> list[list[str]]:
    """The cells of each line that matches: words as they are, numbers without leading zeros of a kernel's number."""
    rows = [[part for group in found.groups() for part in group.split()] for found in line.finditer(text)]
    return [[part.lstrip("0") or "0" if n == 0 and part.isdigit() else part for n, part in enumerate(r)] for r in rows]
