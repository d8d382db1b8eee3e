"""Exports of Nsight Systems of several ranks: they say what the traces of the same moments say, and no more."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfkit import readers
from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.ranks import rank_table
from perfkit.ranks.analyse import analyse
from perfkit.readers import collective_names, several
from tests.support.ranks.as_nsys import written


@pytest.fixture(scope="module")
def folder(samples):
    return samples / "kineto" / "ranks"


@pytest.fixture(scope="module")
def exports(folder, tmp_path_factory):
    made = tmp_path_factory.mktemp("nsys")
    return {
        kind: [
            written(folder / f"{kind}.rank{r}.json.gz", made / f"{kind}-{r}.sqlite", f"RANK={r};WORLD_SIZE=2")
            for r in (0, 1)
        ]
        for kind in ("ddp", "fsdp")
    }


def member(path):
    return rank_table.of_table(readers.read(path))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_they_say_what_the_traces_say(exports, folder, kind):
    found = analyse([member(path) for path in exports[kind]])
    traced = analyse([member(folder / f"{kind}.rank{r}.json.gz") for r in (0, 1)])
    assert found.world_size == 2 and found.steps == traced.steps == 3 and found.backend == "nccl"
    assert [(s.rank, s.causes[0].kind) for s in found.stragglers] == [(0, "host")]
    for ours, theirs in zip(found.parts, traced.parts, strict=True):
        for name in ("compute_ns", "waiting_ns", "exposed_ns", "overlapped_ns", "step_ns", "idle_ns"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=0.01, abs=2e3), name
    counts = [
        {op: sum(c.count for c in one.collectives if c.operation == op) for op in ("all_reduce", "all_gather")}
        for one in (found, traced)
    ]
    assert counts[0] == counts[1] and sum(counts[0].values()) > 0
    waited = [sum(c.waiting_ns for c in one.collectives) for one in (found, traced)]
    assert waited[0] == pytest.approx(waited[1], rel=0.01)


def test_what_an_export_does_not_hold_is_not_told(exports):
    report = analyse([member(path) for path in exports["ddp"]])
    assert {c.operation for c in report.collectives} == {"all_reduce"}
    assert {(c.message_bytes, c.bus_bandwidth, c.roof, c.group) for c in report.collectives} == {(None, None, None, "")}
    assert {c.algorithm for c in report.collectives} == {"RING"} and {c.dtype for c in report.collectives} == {"fp32"}


def test_nccls_kernel_for_any_collective_is_told_by_the_range(folder, tmp_path):
    made = written(folder / "ddp.rank0.json.gz", tmp_path / "rank0.sqlite", generic=True)
    one = member(made)
    talks = one.frame[one.is_collective]
    assert len(talks) and set(talks["name"].str.contains("Generic")) == {True}
    assert set(talks["collective"].dropna()) <= {"all_reduce"}
    assert talks["message_bytes"].isna().all() and np.isfinite(talks["duration_ns"]).all()


def test_ranks_by_the_name_of_the_file_alone(folder, tmp_path):
    made = [written(folder / f"ddp.rank{r}.json.gz", tmp_path / f"my.rank{r}.sqlite") for r in (0, 1)]
    assert several.traces_of(tmp_path) == made
    one = member(made[1])
    assert (one.rank, one.world_size) == (1, 0)
    report = analyse([member(path) for path in made])
    assert report.world_size == 2
    assert any("The number of ranks of the job is unknown: 2, if 1 was the last one." in p for p in report.problems)


def test_one_without_a_rank_is_no_rank(folder, tmp_path):
    made = written(folder / "ddp.rank0.json.gz", tmp_path / "profile.sqlite", "RANK=7;WORLD_SIZE=2")
    assert not several.is_of_a_rank(made)
    with pytest.raises(InputError, match=r"does not say which rank it is of.*rank0\.sqlite"):
        member(made)


def test_a_damaged_export_beside_a_whole_one(exports, tmp_path, capsys):
    whole = exports["ddp"][0]
    cut = tmp_path / "rank1.sqlite"
    cut.write_bytes(whole.read_bytes()[:50_000])
    assert several.is_of_a_rank(cut), "reading it says what is wrong"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(whole), str(cut)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "is cut off" in said and "Traceback" not in said


def test_the_command_takes_a_folder_of_exports(exports, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", str(exports["ddp"][0].parent / "ddp-0.sqlite"), str(exports["ddp"][1]), "--json"])
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["world_size"] == 2 and found["stragglers"][0]["rank"] == 0


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", ("all_reduce", "fp32", "RING", "LL")),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE", ("reduce_scatter", "bf16", "RING", "SIMPLE")),
        ("ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclDevComm*)", ("all_reduce", "fp16", "TREE", "LL128")),
        ("ncclDevKernel_AllGather_RING_LL", ("all_gather", "", "RING", "LL")),
        ("ncclDevKernel_SendRecv", ("send_recv", "", "", "")),
        ("ncclDevKernel_Generic_1(ncclDevComm*)", ("", "", "", "")),
    ],
)  # fmt: skip
def test_what_names_of_kernels_tell(kernel, told):
    operation = collective_names.spelled(collective_names.collective_of(kernel))
    assert (operation, collective_names.dtype_of(kernel), *collective_names.way_of(kernel)) == told
    assert collective_names.is_collective(kernel)
