"""ncu's command line, its progress lines, and what its failures mean."""

import re
from pathlib import Path

import pytest

from perfkit.capture.nsight import messages, ncu
from perfkit.capture.nsight.process import ToolResult
from perfkit.errors import RunFailed, Unavailable, UsageError

REPORT = Path("profile.ncu-rep")


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_by_default_just_the_metrics_of_the_report():
    command = ncu.command(ncu.NcuOptions(), REPORT, ["./app", "--metrics", "x"])
    assert command[0] == "ncu" and command[-3:] == ["./app", "--metrics", "x"]
    assert option(command, "--export") == "profile.ncu-rep" and "--force-overwrite" in command
    assert option(command, "--clock-control") == "none"
    assert option(command, "--target-processes") == "all" and "--nvtx" in command
    assert "--set" not in command and "--profile-from-start" not in command
    asked = re.compile(option(command, "--metrics").removeprefix("regex:"))
    for name in (
        "gpu__time_duration.sum",
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "smsp__inst_executed.sum",
        "lts__t_sectors_srcunit_tex_op_write.sum",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
        "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained",
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    ):
        assert asked.match(name), name
    assert not asked.match("dram__bytes_read.sum.per_second")
    assert not asked.match("launch__grid_dim_x")  # in every report anyway


def test_the_metrics_expression_is_in_plain_syntax():
    assert not re.search(r"\\w|\(\?|\+\?", ncu.metrics_option())
    assert "," not in ncu.metrics_option()  # a comma would end it


def test_every_option():
    options = ncu.NcuOptions(
        set="full",
        clock_control="base",
        cache_control="none",
        kernel_name="regex:gemm",
        launch_skip=3,
        launch_count=5,
        nvtx=("step", "perfkit@perfkit:step:0/", "open["),
        profiler_api=True,
    )
    command = ncu.command(options, REPORT, ["app"])
    assert option(command, "--set") == "full" and "--metrics" not in command
    assert option(command, "--clock-control") == "base" and option(command, "--cache-control") == "none"
    assert option(command, "--kernel-name") == "regex:gemm"
    assert option(command, "--launch-skip") == "3" and option(command, "--launch-count") == "5"
    assert [command[i + 1] for i, word in enumerate(command) if word == "--nvtx-include"] == [
        "step/",
        "perfkit@perfkit:step:0/",
        "open[/",
    ]
    assert option(command, "--profile-from-start") == "off"


def test_progress_counts_kernels_and_speaks_now_and_then():
    shown, times = [], iter([0.0, 0.0, 0.1, 0.2, 1.0, 1.0])
    progress = ncu.NcuProgress(shown.append, 9, lambda: next(times))
    progress('==PROF== Profiling "scale" - 0: 0%....50%')
    progress('==PROF== Profiling "scale" - 0: 0%....50%....100% - 38 passes')
    progress("==PROF== Disconnected from process 7")
    progress('==PROF== Profiling "void f<a>(b) - 9" - 1 (2/9): 0%....50%....100% - 1 pass')
    progress('==PROF== Profiling "tiny" - 2: 0%....50%....100% - 38 passes')
    assert progress.kernels == 3
    assert shown == [
        "profiling under ncu · kernel 1 of about 9, scale: 50%",
        "profiling under ncu · kernel 3 of about 9, tiny: 38 passes",
    ]


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("==PROF== Connected to process 464 (/usr/bin/python3.12)", True),
        ("==ERROR== ERR_NVGPUCTRPERM - The user", True),
        ("Available Kernels:", True),
        ("1. scale", True),
        ("loss 1.2345", False),
        ("=== epoch 1 ===", False),
        ("", False),
    ],
)
def test_whose_line_it_is(line, own):
    assert ncu.is_own(line) is own


def failure(*said: str, code: int = 1, options: ncu.NcuOptions | None = None, **how):
    return ncu.failure(ToolResult(code=code, said=list(said), **how), REPORT, options or ncu.NcuOptions(), 60.0)


@pytest.mark.parametrize(
    ("said", "kind", "parts"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
            "on the target device 0.",
            Unavailable,
            ["NVreg_RestrictProfilingToAdminUsers=0", "sudo", "--cap-add=SYS_ADMIN"],
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver library is "
            "loaded.",
            Unavailable,
            ["virtualised", "WSL"],
        ),
        (
            "==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option.",
            Unavailable,
            ["--list-chips"],
        ),
        (
            "==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux (WSL).",
            Unavailable,
            ["WSL"],
        ),
        (
            "==ERROR== Failed to parse options: filesystem error: status: Permission denied [/home/ada/.config/NVIDIA "
            "Corporation/ncu-kernel-renames.yaml]",
            Unavailable,
            ["settings", "HOME="],
        ),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", Unavailable, ["driver"]),
        ("==ERROR== Cannot lock GPU clock frequencies on MIG!", RunFailed, ["--clock-control none"]),
        (
            "==ERROR== Driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently "
            "collecting profiling data.",
            RunFailed,
            ["dcgmi profile --pause"],
        ),
        ("==ERROR== Failed to access the following 8 metrics: nvlrx__bytes.sum", RunFailed, ["--set full"]),
        ("==ERROR== Failed to find metric regex:^nonsense$", RunFailed, ["--set full"]),
        ("==ERROR== Option '--section .*' did not match any section.", UsageError, ["--list-sets"]),
        ("==ERROR== Unknown Error on device 0.", RunFailed, ["Unknown Error on device 0"]),
        ("==ERROR== The application returned an error code (11).", RunFailed, ["exit code 11"]),
        ("==WARNING== No kernels were profiled.", RunFailed, ["no kernel on a GPU"]),
    ],
)
def test_what_the_tool_says_in_words(said, kind, parts):
    problem = failure(said)
    assert type(problem) is kind
    assert all(part in str(problem) for part in parts), str(problem)


def test_a_refused_counter_is_the_cause_and_not_the_death_that_follows():
    problem = failure(
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
        "==ERROR== The application returned an error code (1).",
        "==WARNING== No kernels were profiled.",
    )
    assert "NVreg" in str(problem)


def test_filters_that_fit_nothing_name_what_ran():
    problem = failure("==WARNING== No kernels were profiled.", "Available Kernels:", "1. one", "2. two", code=0)
    assert "one, two" in str(problem)


def test_no_kernel_in_the_range_or_part():
    lines = (
        "==WARNING== No kernels were profiled.",
        "==WARNING== Note that specified NVTX include expressions match only push/pop ranges.",
    )
    assert "NVTX" in str(failure(*lines, code=0, options=ncu.NcuOptions(nvtx=("x",))))
    nothing = failure(lines[0], code=0, options=ncu.NcuOptions(profiler_api=True))
    assert "--profiler-api" in str(nothing)


def test_a_limit_and_a_death():
    assert "60 s" in str(failure(timed_out=True))
    assert "died with SIGABRT" in str(failure("==PROF== Connected to process 7", code=-6))


def test_all_well(tmp_path):
    report = tmp_path / "p.ncu-rep"
    report.write_bytes(b"NVR")
    assert ncu.failure(ToolResult(said=[f"==PROF== Report: {report}"]), report, ncu.NcuOptions(), None) is None


@pytest.mark.parametrize(("free", "word"), [(1 << 20, "full"), (1 << 40, "could not write")])
def test_a_report_that_could_not_be_written(monkeypatch, tmp_path, free, word):
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr(messages.shutil, "disk_usage", lambda path: usage)
    problem = messages.known(["==ERROR== Failed to save the report to file x.ncu-rep"], tmp_path / "x.ncu-rep")
    assert word in str(problem)
