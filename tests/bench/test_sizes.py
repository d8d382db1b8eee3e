"""Sizes and sweeps as people write them, and GPT-2's for every operation."""

from __future__ import annotations

import inspect

import pytest

from perfkit.bench import sizes
from perfkit.errors import UsageError
from perfkit.kernels import catalog


def test_sizes():
    assert sizes.parse("B=4, T=1_024,C=768", ("B", "T", "C")) == {"B": 4, "T": 1024, "C": 768}
    assert sizes.parse("", ("B",)) == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("X=3", r"There is no size called 'X' here\. The sizes are B, T\."),
        ("B", "--sizes B: '' is not a size"),
        ("B=0", "'0' is not a size"),
        ("B=-3", "'-3' is not a size"),
        ("B=1.5", "'1.5' is not a size"),
    ],
)
def test_sizes_that_are_none(text, error):
    with pytest.raises(UsageError, match=error):
        sizes.parse(text, ("B", "T"))


def test_sweeps():
    assert sizes.parse_sweep("C=64..16384", ("C",)) == (("C",), [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384])
    assert sizes.parse_sweep("C=300,7,300", ("C",)) == (("C",), [7, 300])
    assert sizes.parse_sweep("M,N=2..4", ("M", "N", "K")) == (("M", "N"), [2, 3, 4])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("C=64", "a sweep needs several sizes"),
        ("C=64..64", "the second size must be larger"),
        ("C=a..64", "'a' is not a size"),
        ("D=1..2", "no size called 'D'"),
        ("", "no size called ''"),
    ],
)
def test_sweeps_that_are_none(text, error):
    with pytest.raises(UsageError, match=error):
        sizes.parse_sweep(text, ("C",))


def test_every_operation_has_gpt2_s_sizes():
    for family in catalog():
        for operation in family.operations:
            names = tuple(inspect.signature(operation.inputs).parameters)[1:]
            for device, tokens in (("cpu", 256), ("cuda:0", 8192)):
                found = sizes.gpt2(family.name, names, device, operation.cases[-1])
                assert tuple(found) == names
                assert all(value >= 1 for value in found.values())
                if "T" in found:
                    assert found["B"] * found["T"] == tokens


def test_a_product_of_few_rows_has_a_token_of_each_sequence():
    assert sizes.gpt2("few_rows", ("N", "K", "M"), "cuda:0", {}) == {"N": 8, "K": 768, "M": 2304}
