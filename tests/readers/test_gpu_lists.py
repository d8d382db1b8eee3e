"""Lists of what ran on a GPU, by rocprofv3 and `nsys stats`: rows, units, places of GPUs, and damage."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.readers import mutations

KERNELS = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",\
"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",\
"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 2",1,1,100,1,11,"void scale<float>(float*, float const*, int)",7,1000000,1014000,0,0,24,0,32,\
64,1,1,1024,1024,1
"KERNEL_DISPATCH","Agent 2",1,1,100,2,12,"Cijk_Ailk_Bljk_SB_MT64x64.kd",8,1020000,1120000,512,0,64,0,48,256,\
1,1,65500,1,1
"""
COPIES = """\
"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",1,"Agent 0","Agent 2",3,900000,990000
"""
OLDER = """\
"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",\
"Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X",\
"Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH",1,139690710949888,15,"add(float*, float const*)",0,671599758568,671599825328,0,128,64,1,1,1024,1,1
"""
TRACE = """\
Generating SQLite file step.sqlite from step.nsys-rep
Processing [step.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),\
Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000000,661398,123,,,,,,,,,,4.194,6337.593,Pinned,Device,NVIDIA H100 80GB HBM3 (1),1,,13,[CUDA memcpy Host-to-Device]
1661500,1000,124,,,,,,,,,,0.512,,,Device,NVIDIA H100 80GB HBM3 (1),1,,13,[CUDA memset]
1700000,7072,128,4096,2,1,256,1,1,16,0.000,0.000,,,,,NVIDIA H100 80GB HBM3 (1),1,,13,"void add<float>(float *, int)"
"""


def _document() -> dict[str, Any]:
    """A process of two kernels on the second of two GPUs, and a copy to it, as rocprofv3 writes JSON."""
    agents = [(10, 1, "Processor", 0), (11, 2, "AMD Instinct MI300X", 0), (12, 2, "AMD Instinct MI300X", 1)]
    kernel = {
        "dispatch_info": {
            "agent_id": {"handle": 12}, "kernel_id": 5, "group_segment_size": 256,
            "workgroup_size": {"x": 128, "y": 2, "z": 1}, "grid_size": {"x": 1024, "y": 2, "z": 1},
        },
        "correlation_id": {"internal": 1}, "stream_id": {"handle": 4},
    }  # fmt: skip
    copy = {
        "operation": 2, "src_agent_id": {"handle": 10}, "dst_agent_id": {"handle": 12}, "bytes": 4096,
        "correlation_id": {"internal": 3}, "start_timestamp": 100, "end_timestamp": 400,
    }  # fmt: skip
    process = {
        "agents": [
            {
                "id": {"handle": h},
                "type": t,
                "product_name": n,
                "name": "gfx942",
                "cu_count": 304,
                "logical_node_type_id": i,
            }
            for h, t, n, i in agents
        ],
        "kernel_symbols": [{"kernel_id": 5, "formatted_kernel_name": "copy_rows(float*)", "arch_vgpr_count": 40}],
        "strings": {
            "buffer_records": [
                {
                    "kind": "MEMORY_COPY",
                    "operations": ["NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE"],
                }
            ]
        },
        "buffer_records": {
            "kernel_dispatch": [
                {**kernel, "start_timestamp": 1000, "end_timestamp": 3000},
                {**kernel, "start_timestamp": 2500, "end_timestamp": 4000},
            ],
            "memory_copy": [copy],
        },
    }
    return {"rocprofiler-sdk-tool": [process]}


def _read(path: Path, content: str | bytes) -> KernelTable:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


def test_kernels_and_the_copies_next_to_them(tmp_path: Path) -> None:
    (tmp_path / "7_memory_copy_trace.csv").write_text(COPIES)
    table = _read(tmp_path / "7_kernel_trace.csv", KERNELS)
    frame = table.frame
    assert frame["name"].tolist() == [
        "Memcpy HtoD", "void scale<float>(float*, float const*, int)", "Cijk_Ailk_Bljk_SB_MT64x64",
    ]  # fmt: skip
    assert frame["duration_ns"].tolist() == [90_000, 14_000, 100_000]
    assert frame["start_ns"].tolist() == [0, 100_000, 120_000]
    assert frame["device"].tolist() == ["cuda:2"] * 3
    # Work-items over the workgroup, the last workgroup partly filled.
    assert frame["grid_x"].tolist()[1:] == [16, 256] and frame["grid_y"].tolist()[1:] == [1024, 1]
    assert frame["registers"].tolist()[1:] == [24, 64] and frame["shared_bytes"].tolist()[1:] == [0, 512]
    assert table.facts["step_ns"] == [220_000] and table.facts["busy_ns"] == [204_000]
    assert frame["bytes_read"].isna().all() and table.flop.isna().all()


def test_a_list_of_an_older_version(tmp_path: Path) -> None:
    row = _read(tmp_path / "x_kernel_trace.csv", OLDER).frame.iloc[0]
    assert (row["duration_ns"], row["grid_x"], row["device"], row["shared_bytes"]) == (66_760, 16, "cuda:1", 128)


def test_the_json_numbers_gpus_by_themselves(tmp_path: Path) -> None:
    for name, content in (("r.json", json.dumps(_document()).encode()), ("r.json.gz", None)):
        table = _read(tmp_path / name, content or gzip.compress(json.dumps(_document()).encode()))
        frame = table.frame
        assert frame["name"].tolist() == ["Memcpy HtoD", "copy_rows(float*)", "copy_rows(float*)"]
        assert frame["device"].tolist() == ["cuda:1"] * 3
        assert frame["grid_x"].tolist()[1:] == [8, 8] and frame["registers"].tolist()[1:] == [40, 40]
        assert table.facts["gpus"] == [{"name": "AMD Instinct MI300X", "smCount": 304, "architecture": "gfx942"}]
        assert table.facts["copies"][0]["bytes"] == 4096
        assert table.facts["busy_ns"] == [3300]  # overlapping kernels count once


def test_a_gpu_trace_of_nsys_stats(tmp_path: Path) -> None:
    table = _read(tmp_path / "trace.csv", TRACE)
    frame = table.frame
    assert frame["name"].tolist() == [
        "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "void add<float>(float *, int)",
    ]  # fmt: skip
    assert frame["duration_ns"].tolist() == [661_398, 1_000, 7_072]
    assert frame["device"].tolist() == ["cuda:1"] * 3 and frame["stream"].tolist() == [13] * 3
    assert frame["grid_y"].tolist()[2] == 2 and frame["registers"].tolist()[2] == 16
    assert frame["shared_bytes"].isna().all()  # 0.000 MB may be 499 bytes
    assert table.facts["copies"][0]["bytes"] == 4_194_000  # MB are 10⁶ bytes, with three decimals
    assert frame["bytes_written"].isna().all()  # the fill's 0.512 MB are rounded by more than 0.1 %


@pytest.mark.parametrize(
    ("start", "duration", "said"),
    [
        ("Start (ns)", "Duration (ns)", ("1000000", "2000")),
        ("Start (us)", "Duration (us)", ("1000.0", "2.000")),
        ("Start (sec)", "Duration (sec)", ("0.001", "0.000002")),
        ("Start:ts_ns", "Duration:dur_ns", ("1000000", "2000")),
    ],
)
def test_units_of_times(tmp_path: Path, start: str, duration: str, said: tuple[str, str]) -> None:
    rows = "".join(f"{said[0]},{said[1]},{i},1,1,1,32,1,1,16,0,0,,,,,GPU (0),1,,7,k\n" for i in range(2))
    header = f"{start},{duration},CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem:mem_B,DymSMem:mem_B,"
    header += "Bytes:mem_B,Throughput:thru_B,SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    frame = _read(tmp_path / "trace.csv", header + rows).frame
    assert frame["duration_ns"].tolist() == [2000, 2000] and frame["shared_bytes"].tolist() == [0, 0]


def test_cut_rows_are_counted(tmp_path: Path) -> None:
    table = _read(tmp_path / "x_kernel_trace.csv", KERNELS[: KERNELS.index(",1120000")])
    assert len(table.frame) == 1
    assert any("1 rows have impossible times or are damaged" in text for text in table.warnings)


@pytest.mark.parametrize("text", [KERNELS.splitlines(keepends=True)[0], TRACE.split("1000000,661398")[0]])
def test_a_list_without_rows(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="lists no kernel, copy or fill"):
        _read(tmp_path / "empty_kernel_trace.csv", text)


def test_a_result_without_launches_says_what_it_is(tmp_path: Path) -> None:
    process = {"metadata": {}, "agents": [], "buffer_records": {"kernel_dispatch": []}, "kernel_symbols": []}
    with pytest.raises(InputError, match="rocprofv3, and lists no kernel"):
        _read(tmp_path / "results.json", json.dumps({"rocprofiler-sdk-tool": [process]}))


def _database(path: Path) -> None:
    """A database of rocprofv3 with a process: a kernel on the second GPU, and a copy to it."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        for sql in (
            "CREATE TABLE `rocpd_string_1` (id INTEGER, guid TEXT, string TEXT)",
            "CREATE TABLE `rocpd_info_agent_1` (id INTEGER, type_index INTEGER, name TEXT, product_name TEXT)",
            "CREATE TABLE `rocpd_info_kernel_symbol_1` (id INTEGER, kernel_name TEXT, display_name TEXT,"
            " arch_vgpr_count INTEGER)",
            "CREATE TABLE `rocpd_kernel_dispatch_1` (agent_id INTEGER, kernel_id INTEGER, stream_id INTEGER,"
            ' "start" BIGINT, "end" BIGINT, group_segment_size INTEGER, workgroup_size_x INTEGER,'
            " workgroup_size_y INTEGER,"
            " workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER)",
            'CREATE TABLE `rocpd_memory_copy_1` (id INTEGER, "start" BIGINT, "end" BIGINT, name_id INTEGER,'
            " dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER)",
            "CREATE VIEW kernels AS SELECT * FROM `rocpd_kernel_dispatch_1`",
            "INSERT INTO rocpd_string_1 VALUES (4, '', 'MEMORY_COPY_HOST_TO_DEVICE')",
            "INSERT INTO rocpd_info_agent_1 VALUES (1, 0, 'EPYC', ''), (3, 1, 'gfx942', 'AMD Instinct MI300X')",
            "INSERT INTO rocpd_info_kernel_symbol_1 VALUES (9, 'copy_rows.kd', 'copy_rows(float*)', 40)",
            "INSERT INTO rocpd_kernel_dispatch_1 VALUES (3, 9, 2, 1000, 3500, 256, 128, 2, 1, 1024, 2, 1)",
            "INSERT INTO rocpd_memory_copy_1 VALUES (1, 100, 400, 4, 3, 1, 4096, 2)",
        ):
            made.execute(sql)
        made.commit()


def test_the_database_of_rocprofv3(tmp_path: Path) -> None:
    path = tmp_path / "7_results.db"
    _database(path)
    table = read(path)
    assert isinstance(table, KernelTable)
    frame = table.frame
    assert frame["name"].tolist() == ["Memcpy HtoD", "copy_rows(float*)"]
    assert frame["duration_ns"].tolist() == [300, 2500] and frame["device"].tolist() == ["cuda:1"] * 2
    assert frame["grid_x"].tolist()[1] == 8 and frame["registers"].tolist()[1] == 40
    assert (
        table.facts["gpus"] == [{"name": "AMD Instinct MI300X", "id": 1}] and table.facts["copies"][0]["bytes"] == 4096
    )


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.full)])
def test_a_damaged_database_is_a_sentence(count: int, tmp_path: Path) -> None:
    path = tmp_path / "7_results.db"
    _database(path)
    mutations.sentences(path, path.read_bytes(), count, seed=3)


def _counters(*left_out: str) -> str:
    """Counters of a dispatch by rocprof-compute on an MI200, two channels of L2."""
    said = {
        "Dispatch_ID": 0, "GPU_ID": 2, "Kernel_Name": '"gemm(float*, int)"', "Arch_VGPR": 64, "Start_Timestamp": 1000,
        "End_Timestamp": 6000, "SQ_WAVES": 128, "TCC_EA_RDREQ[0]": 100, "TCC_EA_RDREQ[1]": 50,
        "TCC_EA_RDREQ_32B[0]": 10,
        "TCC_EA_RDREQ_32B[1]": 0, "TCC_EA_WRREQ_sum": 40, "TCC_EA_WRREQ_64B_sum": 30,
        **{f"SQ_INSTS_VALU_{op}_F{width}": 0 for op in ("ADD", "MUL", "FMA", "TRANS") for width in (16, 32, 64)},
        **{f"SQ_INSTS_VALU_MFMA_MOPS_{kind}": 0 for kind in ("I8", "F16", "BF16", "F32", "F64")},
        "SQ_INSTS_VALU_FMA_F32": 3, "SQ_INSTS_VALU_ADD_F32": 1, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 7,
    }  # fmt: skip
    kept = {name: str(value) for name, value in said.items() if name not in left_out}
    return f"{','.join(kept)}\n{','.join(kept.values())}\n"


def test_counters_of_rocprof_compute(tmp_path: Path) -> None:
    row = _read(tmp_path / "pmc_perf.csv", _counters()).frame.iloc[0]
    assert (row["name"], row["device"], row["duration_ns"], row["registers"]) == (
        "gemm(float*, int)",
        "cuda:2",
        5000,
        64,
    )
    assert row["flop_vector_fp32"] == 64 * (1 + 2 * 3) and row["flop_matrix_bf16"] == 512 * 7
    assert row["dram_read_bytes"] == 64 * 140 + 32 * 10 and row["dram_write_bytes"] == 64 * 30 + 32 * 10
    assert (row["flop_origin"], row["dram_origin"], str(row["start_ns"])) == ("derived", "derived", "nan")


def test_counters_that_are_missing_leave_amounts_unknown(tmp_path: Path) -> None:
    table = _read(tmp_path / "pmc_perf.csv", _counters("SQ_INSTS_VALU_MFMA_MOPS_F64", "TCC_EA_WRREQ_64B_sum"))
    assert table.flop.isna().all() and table.frame["dram_read_bytes"].isna().all()
    with pytest.raises(InputError, match="no dispatch with a time"):
        _read(tmp_path / "pmc_perf.csv", _counters("Start_Timestamp"))


@pytest.mark.parametrize(
    "source", [KERNELS, TRACE, json.dumps(_document()), _counters()], ids=["rocprof", "nsys", "json", "counters"]
)
def test_damage_is_a_sentence(tmp_path: Path, source: str) -> None:
    """Bytes changed, taken out and doubled: a table or an `InputError`, nothing else."""
    mutations.sentences(tmp_path / "damaged.csv", source.encode(), 100, seed=0)
