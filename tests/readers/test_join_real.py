"""Joins of real captures, a torch.profiler trace and ncu's report of the same program on an H200.

`trace` and `counters` are of a program with CuPy and Triton kernels; `pytorch-trace` and `pytorch-counters` (a kernel
table, for the report itself holds PyTorch's machine code) of GPT-2's forward in eager mode, whose kernels the two tools
spell differently.
"""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit import readers
from perfkit.readers.join import join
from perfkit.table import KernelTable
from tests.support.sweeps import examples

FILES = Path(__file__).parents[1] / "fixtures" / "pair"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    report = tmp_path_factory.mktemp("pair") / "counters.ncu-rep"
    report.write_bytes(gzip.decompress((FILES / "counters.ncu-rep.gz").read_bytes()))
    return readers.read(FILES / "trace.json.gz"), readers.read(report)


@pytest.fixture(scope="module")
def pytorch():
    return readers.read(FILES / "pytorch-trace.json.gz"), readers.read(FILES / "pytorch-counters.parquet")


def test_times_places_and_counters_in_one_table(small):
    trace, counters = small
    joined = join(trace, counters)
    frame = joined.frame
    assert joined.facts["counters"]["matched"] == 24 and joined.facts["counters"]["unused"] == 0
    assert frame["duration_ns"].tolist() == trace.frame["duration_ns"].tolist()
    assert set(frame["pass"]) == {"forward", "backward", "optimizer"}
    double = frame[frame["name"].str.contains("scale<double>")]
    assert (double["flop_vector_fp64"] == 2**22).all() and (double["flop_origin"] == "derived").all()
    single = frame[frame["name"].str.contains("scale<float>")]
    assert (single["flop_vector_fp32"] == 2**22).all() and len(single) == 4
    assert (frame["instructions_origin"] == "counter").all() and frame["waves"].notna().all()
    strided = frame[frame["short_name"] == "copy_strided"]
    assert (strided["dram_bytes"] > 2**22 * 8 * 1.2).all()  # partial lines: more than each byte once
    assert joined.facts["row_ceilings"]["memory"][0] == pytest.approx(4.8e12, rel=0.01)


def test_kernels_of_pytorch_in_two_spellings(pytorch):
    joined = join(*pytorch)
    told = joined.facts["counters"]
    assert told["matched"] == told["kernels"] == 116 and told["captured"] == 58 and told["unused"] == 0
    assert joined.frame["short_name"].nunique() >= 15


@pytest.mark.parametrize("pair", ["small", "pytorch"])
@settings(max_examples=examples(6, 25))
@given(data=st.data())
def test_whatever_was_not_captured_no_kernel_gets_the_counters_of_another(request, pair, data):
    """Kernel i of a step is kernel i of the whole report; of any part of it, it is that or nothing."""
    trace, counters = request.getfixturevalue(pair)
    count = len(counters)
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any)))
    part = KernelTable(counters.frame.iloc[kept].reset_index(drop=True), [], counters.source, dict(counters.facts))
    part.facts["kernels"] = [{"truly": i} for i in range(count)]
    joined = join(trace, part, ceilings=False)
    kernels = joined.frame[joined.frame["kind"] == "gpu_kernel"].sort_values("order")
    truth = np.concatenate([np.arange(len(step)) for _, step in kernels.groupby("step")])
    found = [joined.facts["kernels"][order].get("truly", -1) for order in kernels["order"]]
    assert all(got in (-1, true) for got, true in zip(found, truth, strict=True))
    assert (np.array(found) >= 0).sum() == joined.facts["counters"]["matched"]
