"""The llm.c summary of a synthetic step with all six passes; every total is worked out here by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfkit import readers
from perfkit.analysis import llmc_style
from perfkit.analysis.llmc_style import LlmcStyle, kernel_name, named, summarize
from perfkit.errors import InputError, UsageError
from perfkit.table import KernelTable, build

GIB = 2.0**30
EXAMPLE = Path(__file__).parents[2] / "examples" / "profile_gpt2cu.csv"

# name, ms, DRAM GB read, written, L2 GiB read, written, tensor %, million instructions; c = number 6 − 2 = 4
STEP = [
    ("encoder_forward_kernel3(floatX*, const int*)", 1.0, 1.0, 1.0, 1.0, 1.0, 90.0, 1.0),  # the first: in no peak
    ("void layernorm_forward_kernel6<float>(float*)", 1.0, 0.5, 0.5, 1.0, 0.5, 0.0, 2.0),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", 2.0, 0.2, 0.2, 2.0, 1.0, 40.0, 4.0),
    ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_nn", 1.0, 0.1, 0.1, 1.0, 1.0, 45.0, 4.0),
    ("void layernorm_forward_kernel6<float>(float*)", 1.0, 0.5, 0.5, 1.0, 0.5, 0.0, 2.0),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", 4.0, 0.4, 0.4, 2.0, 1.0, 40.0, 8.0),
    ("void fused_classifier_kernel5<float, true>(float*)", 2.0, 1.0, 0.6, 1.0, 1.0, 0.0, 6.0),
    ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_nn", 4.0, 0.4, 0.4, 2.0, 2.0, 45.0, 8.0),
    ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_nt", 4.0, 0.4, 0.4, 2.0, 2.0, 45.0, 8.0),
    ("layernorm_backward_kernel10(float*)", 1.0, 0.5, 0.3, 1.0, 1.0, 0.0, 3.0),
    ("cudnn_generated_fort_native_sdpa_sm80_flash_bprop_wmma_knob_7", 2.0, 0.4, 0.4, 2.0, 2.0, 20.0, 5.0),
    ("void gelu_backward_inplace_kernel<float>(float*)", 1.0, 0.4, 0.2, 1.0, 1.0, 0.0, 1.0),
    ("encoder_backward_kernel(float*)", 1.0, 0.3, 0.3, 1.0, 1.0, 0.0, 1.0),
    ("void global_sum_single_block_kernel(float*)", 0.5, 0.4, 0.2, 1.0, 1.0, 0.0, 1.0),
    ("void global_norm_squared_kernel<float>(float*)", 1.0, 0.6, 0.0, 1.0, 0.0, 0.0, 2.0),
    ("void adamw_kernel3<float, __nv_bfloat16>(float*)", 3.0, 1.5, 1.5, 2.0, 2.0, 0.0, 9.0),
]
METRICS = {  # name → the unit that ncu prints
    "dram__bytes_read.sum": "Gbyte",
    "dram__bytes_write.sum": "Gbyte",
    "gpu__time_duration.sum": "ms",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_write.sum": "sector",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": "%",
    "smsp__inst_executed.sum": "inst",
}
PASSES = [
    "enc×1", "fwd×12", "fwd×12", "fwd×12", "cls×1", "cls×1", "cls×1", "cls×1", "cls×1", "cls×1", "bwd×12", "bwd×12",
    "enc×1", "init×0", "opt×1", "opt×1",
]  # fmt: skip


def step(rows: list[tuple] = STEP, **replaced: list[float]) -> KernelTable:
    name, time, read, written, l2_read, l2_written, tensor, instructions = zip(*rows, strict=True)
    columns = {
        "name": name,
        "order": range(len(name)),
        "kind": ["gpu_kernel"] * len(name),
        "duration_ns": [t * 1e6 for t in time],
        "dram_read_bytes": [r * 1e9 for r in read],
        "dram_write_bytes": [w * 1e9 for w in written],
        "l2_read_bytes": [r * GIB for r in l2_read],
        "l2_write_bytes": [w * GIB for w in l2_written],
        "tensor_active": [t / 100 for t in tensor],
        "instructions": [i * 1e6 for i in instructions],
    }
    return build({**columns, **replaced}, source={"path": "profile.ncu-rep"})


def raw_page() -> str:
    """The same step as `ncu --csv --page raw --metrics …` prints it; examples/profile_gpt2cu.csv is this text."""
    head = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"]
    head += ["Grid Size", "Device", "CC", *METRICS]
    lines = [head, [""] * 11 + list(METRICS.values())]
    for number, (name, time, read, written, l2_read, l2_written, tensor, instructions) in enumerate(STEP):
        first = [number, 4242, "profile_gpt2cu", "127.0.0.1", name, 1, 7, "(256, 1, 1)", "(512, 1, 1)", 0, "8.0"]
        sectors = [f"{round(amount * GIB / 32):,}" for amount in (l2_read, l2_written)]
        measured = [f"{read:.6f}", f"{written:.6f}", f"{time:.6f}", *sectors, f"{tensor:.2f}"]
        lines.append([str(cell) for cell in (*first, *measured, f"{round(instructions * 1e6):,}")])
    return "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)


def about(value: float) -> object:
    return pytest.approx(value, rel=1e-12)


def test_the_five_tests_in_their_order() -> None:
    assert [f"{c.pass_}×{c.multiplier}" for c in summarize(step()).calls] == PASSES


@pytest.mark.parametrize("place", [2, 11, 13, 16])  # forward, backward, after the encoder's backward, last
def test_copies_for_the_optimizer_count_once_wherever_they_stand(place: int) -> None:
    copy = ("void copy_and_cast_kernel<float, __nv_bfloat16>(T1 *)", 0.25, 0.1, 0.05, 1.0, 2.0, 0.0, 3.0)
    made, without = summarize(step([*STEP[:place], copy, *STEP[place:]])), summarize(step())
    assert [f"{c.pass_}×{c.multiplier}" for c in made.calls] == [*PASSES[:place], "opt×1", *PASSES[place:]]
    assert made.calls[place].time_ns == about(0.25e6)
    assert {p: ns - without.passes[p] for p, ns in made.passes.items() if ns != without.passes[p]} == {
        "opt": about(0.25e6)
    }
    assert made.time_ns == about(106.25e6)
    assert made.instructions == about(without.instructions + 3e6)
    assert next(k for k in made.kinds if k.name == "copy_and_cast_kernel").count == 1


def test_totals_worked_out_by_hand() -> None:
    made = summarize(step())
    # enc 1 + 1; fwd 12 · (1 + 2 + 1); cls 1 + 4 + 2 + 4 + 4 + 1; bwd 12 · (2 + 1); opt 1 + 3; init 0.5 stays out
    assert {p: ns / 1e6 for p, ns in made.passes.items()} == {
        "enc": about(2), "fwd": about(48), "cls": about(16), "bwd": about(36), "opt": about(4), "init": about(0.5),
    }  # fmt: skip
    assert made.time_ns == about(106e6)
    assert made.dram_read_bytes == about((1.3 + 12 * 0.8 + 3.2 + 12 * 0.8 + 2.1) * 1e9)
    assert made.dram_write_bytes == about((1.3 + 12 * 0.8 + 2.6 + 12 * 0.6 + 1.5) * 1e9)
    assert made.l2_read_bytes == about((2 + 12 * 4 + 9 + 12 * 3 + 3) * GIB)
    assert made.l2_write_bytes == about((2 + 12 * 2.5 + 7.5 + 12 * 3 + 2) * GIB)
    assert made.instructions == about((2 + 12 * 10 + 35 + 12 * 6 + 11) * 1e6)
    # enc 90 · 1; fwd 12 · (40 · 2 + 45 · 1); cls 40 · 4 + 45 · 4 + 45 · 4; bwd 12 · 20 · 2: all % · ms
    assert made.tensor == about((90 + 12 * 125 + 520 + 480) / 100 / 106)


def test_efficiency_worked_out_by_hand() -> None:
    made = summarize(step())
    assert made.peak_bandwidth == about(1.2e12)  # init's kernel counts; the first kernel's 2000 GB/s does not
    assert made.peak_tensor == 0.5  # nothing but the first above 50 %
    # max(GB/s / 1200, % / 50) · ms
    enc = 90 / 50 * 1 + 600 / 1200 * 1
    fwd = 12 * (1000 / 1200 * 1 + 40 / 50 * 2 + 45 / 50 * 1)
    cls = 1000 / 1200 * 1 + 40 / 50 * 4 + 800 / 1200 * 2 + 45 / 50 * 4 + 45 / 50 * 4 + 800 / 1200 * 1
    bwd = 12 * (20 / 50 * 2 + 600 / 1200 * 1)
    opt = 600 / 1200 * 1 + 1000 / 1200 * 3
    assert made.efficiency == about((enc + fwd + cls + bwd + opt) / 106)


def test_a_tensor_peak_above_half_counts_as_whole() -> None:
    rows = [*STEP[:5], (*STEP[5][:6], 50.5, STEP[5][7]), *STEP[6:]]
    assert summarize(step(rows)).peak_tensor == 1.0


def test_kinds_hold_the_time_of_init_and_count_it_0() -> None:
    kinds = {k.name: (k.time_ns / 1e6, k.count) for k in summarize(step()).kinds}
    assert kinds["ampere_bf16"] == (about(24 + 12 + 4 + 4 + 4), 12 + 12 + 3)
    assert kinds["cudnn_generated_fort_native_sdpa"] == (about(24), 12)
    assert kinds["global_sum_single_block_kernel"] == (about(0.5), 0)
    times = [k.time_ns for k in summarize(step()).kinds]
    assert times == sorted(times, reverse=True)
    assert sum(k.share for k in summarize(step()).kinds) == about(106.5 / 106)


def test_rates_and_amounts_of_a_block_kernel() -> None:
    call = summarize(step(), LlmcStyle(layers=24)).calls[2]
    assert (call.time_ns, call.instructions) == (about(48e6), about(96e6))
    assert (call.bandwidth, call.tensor) == (about(200e9), about(0.4))
    init = summarize(step()).calls[13]
    assert (init.time_ns, init.bandwidth) == (about(0.5e6), about(1.2e12))


def test_the_last_fused_classifier_counts() -> None:
    rows = [STEP[0], STEP[6], *STEP[1:]]
    made = summarize(step(rows))
    assert [c.number for c in made.calls if c.pass_ == "cls"] == [5, 6, 7, 8, 9, 10]
    assert made.calls[1].pass_ == "fwd"


def test_places_decide_where_each_kernel_knows_its_own() -> None:
    places = [
        ("forward", "wte"), ("forward", "h.0.ln_1"), ("forward", None), ("forward", "h.0.mlp"), ("forward", "ln_f"),
        ("forward", "lm_head"), ("loss", None), ("backward", "lm_head"), ("backward", "ln_f"), ("backward", "h.0.mlp"),
        ("backward", "h.0.ln_1"), ("backward", "wte"), ("optimizer", None),
    ]  # fmt: skip
    passes, modules = zip(*places, strict=True)
    rows = [("kernel", 1.0, 0.5, 0.5, 1.0, 1.0, 50.0, 1.0)] * len(places)
    made = summarize(step(rows, **{"pass": list(passes)}, module=list(modules)), LlmcStyle(layers=3))
    assert [c.pass_ for c in made.calls] == [
        "enc", "fwd", "fwd", "fwd", "cls", "cls", "cls", "cls", "cls", "bwd", "bwd", "enc", "opt",
    ]  # fmt: skip
    assert [c.multiplier for c in made.calls] == [1, 3, 3, 3, 1, 1, 1, 1, 1, 3, 3, 1, 1]
    assert made.time_ns == about((5 * 3 + 8) * 1e6)


def test_places_of_some_kernels_only_decide_nothing() -> None:
    passes = ["forward", *[None] * (len(STEP) - 1)]
    modules = ["h.0.mlp", *[None] * (len(STEP) - 1)]
    made = summarize(step(**{"pass": passes}, module=modules))
    assert [f"{c.pass_}×{c.multiplier}" for c in made.calls] == PASSES


def test_launch_order_counts_not_the_order_of_rows() -> None:
    made = summarize(step(STEP[::-1], order=list(range(len(STEP)))[::-1]))
    assert made == summarize(step())


@pytest.mark.parametrize(
    ("captured", "name"),
    [
        ("encoder_forward_kernel3(floatX *, int)", "encoder_forward_kernel3"),
        ("void adamw_kernel3<float, __nv_bfloat16>(T1 *)", "adamw_kernel3"),
        ("void cutlass::Kernel2<cutlass_80>(T1::Params)", "cutlass::Kernel2"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f(int)"),
        ("", ""),
    ],
)
def test_names(captured: str, name: str) -> None:
    assert kernel_name(captured) == name


def test_what_is_missing_is_named_with_the_option_that_supplies_it() -> None:
    absent = [math.nan] * len(STEP)
    with pytest.raises(InputError) as error:
        summarize(step(tensor_active=absent, l2_write_bytes=absent))
    assert "lacks bytes written to L2, tensor-core activity for 16 of its 16 kernels" in error.value.message
    assert "`ncu --set full`" in error.value.hint
    assert "--metrics lts__t_sectors_srcunit_tex_op_write.sum,sm__pipe_tensor_op_hmma" in error.value.hint


def test_one_absent_value_is_no_zero() -> None:
    instructions = [1e6] * len(STEP)
    instructions[3] = math.nan
    with pytest.raises(InputError, match="instructions for 1 of its 16"):
        summarize(step(instructions=instructions))


def test_tables_that_are_no_step_of_llmc() -> None:
    with pytest.raises(InputError, match="fused_classifier"):
        summarize(step(STEP[:4]))
    with pytest.raises(InputError, match="no GPU kernels"):
        summarize(step(kind=["cpu_op"] * len(STEP)))
    with pytest.raises(InputError, match="no GPU kernels"):
        summarize(build([]))
    with pytest.raises(InputError, match="has a time"):
        summarize(step(duration_ns=[0.0] * len(STEP)))


def test_settings() -> None:
    assert named("fwd=forward, cls=head") == (("fwd", "forward"), ("cls", "head"))
    assert named("") == ()
    for wrong in ("forward", "fwd=", "first=1"):
        with pytest.raises(UsageError, match="names no pass"):
            named(wrong)
    with pytest.raises(UsageError, match="--layers"):
        summarize(step(), LlmcStyle(layers=0))
    assert LlmcStyle().layers == llmc_style.LAYERS == 12


def test_the_example_is_the_same_step() -> None:
    """examples/profile_gpt2cu.csv, read by the reader of ncu's CSV, gives the totals worked out above."""
    assert EXAMPLE.read_text() == raw_page()
    made, by_hand = summarize(read_table(EXAMPLE)), summarize(step())
    for name in by_hand.__struct_fields__:
        if name not in ("calls", "kinds"):
            assert getattr(made, name) == pytest.approx(getattr(by_hand, name), rel=1e-9), name
    assert [(c.name, c.pass_, c.multiplier) for c in made.calls] == [
        (c.name, c.pass_, c.multiplier) for c in by_hand.calls
    ]


def read_table(path: Path) -> KernelTable:
    table = readers.read(path)
    assert isinstance(table, KernelTable)
    return table
