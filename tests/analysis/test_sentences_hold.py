"""Sentences that were false of somebody's program: a finding speaks of what it counts, and advises nothing done."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit.analysis.results import Finding
from perfkit.analysis.words import apart, number
from perfkit.units import cropped
from tests.support.analysis import faults
from tests.support.analysis.faults import MB, cpu, gap, gpu, named, on_gpu, product, report

GPUS = [{"name": "a GPU", "smCount": 68}]
COPY = {"name": "Memcpy HtoD (Pageable -> Device)", "short_name": "Memcpy HtoD", "kind": "memcpy"}


def grid(blocks: int) -> dict[str, float]:
    return {"grid_x": blocks, "grid_y": 1, "grid_z": 1, "waves": blocks / 544}


def below(rows: list[dict[str, Any]], **more: Any) -> Finding:
    """Return the sentences on kernels below their roof that are half of a step."""
    busy = sum(row["duration_ns"] for row in rows) / 1e3
    return named(report(rows, busy, **more))["below-roof"]


# ---- short kernels


def test_kernels_of_milliseconds_are_not_short_and_copies_are_no_kernels() -> None:
    """One kernel of 6 ms with a single block, and a copy of 2 µs, were "2 kernels shorter than 5 µs: 98 %"."""
    rows = [{**gpu("add", 6000), **grid(1)}, {**gpu("copy", 2, "copy"), **COPY}]
    found = named(report(rows, 6100, None, gpus=GPUS))
    assert "tiny-kernels" not in found
    few = found["empty-multiprocessors"]
    assert few.title.startswith("1 kernel a step has 1 block for 68 multiprocessors: 6.00 ms")
    assert few.saving_ns == pytest.approx(6e6 * 67 / 68)


def test_few_blocks_beside_other_work_leave_nothing_empty() -> None:
    small, large = {**gpu("a", 400), **grid(4), "start_ns": 0.0}, {**gpu("b", 1000), **grid(5440), "start_ns": 0.0}
    assert "empty-multiprocessors" not in named(report([small, {**large, "stream": 9}], 1000, None, gpus=GPUS))
    assert "empty-multiprocessors" not in named(report([{**gpu("a", 400), **grid(66)}], 400, None, gpus=GPUS))


def test_counts_have_no_exponents() -> None:
    assert [number(n) for n in (1500, 2851.0, 12.345, 0.3333, 3.0, 123456.7)] == [
        "1,500", "2,851", "12.3", "0.333", "3", "123,457",
    ]  # fmt: skip
    rows = [{**gpu("copy", 2.5, "copy"), **COPY, "bytes_read": 64.0, "bytes_written": 64.0} for _ in range(1500)]
    made = faults.made(rows, 3750, marked=False)
    found = {f.name: f for f in faults.analyse_table(made, None, "t.json").backends[0].findings}
    assert found["small-copies"].title.startswith("1,500 copies move") and "tiny-kernels" not in found


# ---- gradients of tables, gathers


def test_of_a_fused_optimizer_a_table_has_its_part() -> None:
    """GPT-2's positions, 0.6 % of the parameters, were booked the whole call of the fused AdamW: 387 ms."""
    table, others = "fp32[1000×16]", ", ".join(["fp32[1000×1000]"] * 4)
    update = cpu("_fused_adamw_", 1000, "optimizer", shapes=f"{table}, {others}", **{"pass": "optimizer"})
    lookup = cpu("index_select", 5, "index", shapes=f"{table}, int64[64]")
    assert "dense-embedding-gradient" not in named(report([product(), lookup, update], 2005))
    few = cpu("_fused_adamw_", 1000, "optimizer", shapes=f"{table}, fp32[16×1000]", **{"pass": "optimizer"})
    found = named(report([product(), lookup, few], 2005))["dense-embedding-gradient"]
    assert found.time_ns == pytest.approx(500e3) and found.saving_ns == pytest.approx(500e3 * (1 - 64 / 1000))
    cut = f"({table}, fp32[16×1000], … 148 tensors)"  # a list of more tensors than the table names
    whole = cpu(
        "_fused_adamw_", 1000, "optimizer", shapes=f"{cut}, {cut}", moved=2 * 1.28 * MB, **{"pass": "optimizer"}
    )
    part = named(report([product(), lookup, whole], 2005))["dense-embedding-gradient"]
    assert part.time_ns == pytest.approx(100e3)  # 2 × 64 kB of 1.28 MB that it reads


@pytest.mark.parametrize("form", ["table", "module", "neither"])
def test_a_tied_table_beside_positions_is_not_theirs(form: str) -> None:
    """122 ms of zeroing GPT-2's tied table were a dense gradient of its positions, of "64 of 1,024 rows"."""
    tied, own, asked = "fp32[50000×16]", "fp32[1000×16]", "int64[64]"
    back = {"pass": "backward"}

    def zeroed(table: str, module: str, time: float) -> dict[str, Any]:
        shapes = table if form == "table" else f"fp32[64×16], {asked}"
        return cpu("fill_", time, "embedding", operator="embedding", shapes=shapes,
                   module=module if form == "module" else "", **back)  # fmt: skip

    rows = [
        cpu("index_select", 5, "embedding", operator="embedding", shapes=f"{tied}, {asked}", module="wte"),
        cpu("index_select", 5, "embedding", operator="embedding", shapes=f"{own}, {asked}", module="wpe"),
        {**product(100), "shapes": "fp32[64×16], fp32[16×50000]"},
        zeroed(tied, "wte", 1000), zeroed(own, "wpe", 100),
        cpu("_fused_adamw_", 200, "optimizer", shapes=own, **{"pass": "optimizer"}),
    ]  # fmt: skip
    found = named(report(rows, 1500))["dense-embedding-gradient"]
    assert found.time_ns == pytest.approx((200 if form == "neither" else 300) * 1e3)


def test_a_graph_network_gathers_and_looks_nothing_up() -> None:
    shapes = "fp32[4000×250], int64[1000]"
    rows = [product(), cpu("index_select", 100, "index", moved=2 * MB, shapes=shapes)]
    found = named(report(rows, 1100))["gather-bound"]
    assert found.title.startswith("Gathers by index_select take 9.1 %")
    assert "EmbeddingBag" not in found.remedy and "edges" in found.remedy
    assert named(faults.FAULTS["gather-bound"][0]())["gather-bound"].title.startswith("Embedding lookups take")


# ---- remedies


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (gpu("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", 100, "attention", moved=1 * MB),
         "sdpa_kernel", "Use a fused attention"),
        (gpu("softmax_scores", 100, "attention", moved=1 * MB), "Use a fused attention", "sdpa_kernel"),
        (cpu("_scaled_dot_product_flash_attention_for_cpu", 100, "attention", moved=1 * MB), "fused already", "Use a"),
        (cpu("bernoulli_", 100, "random", moved=1 * MB), "draw fewer numbers", "Batch them"),
        (cpu("_fused_adamw_", 100, "optimizer", moved=1 * MB), "one pass already", "fused=True"),
        (cpu("_foreach_add_", 100, "optimizer", moved=1 * MB), "fused=True", "already"),
        (gpu("triton_poi_fused_add_mul", 100, "elementwise", moved=1 * MB), "max-autotune", "with their neighbours"),
        (cpu("cpp_fused_add_mul_0", 100, "elementwise", moved=1 * MB), "fused already", "torch.compile"),
        (cpu("fill_", 100, "fill", moved=1 * MB), "torch.empty", "attention"),
        (cpu("masked_fill_", 100, "fill", moved=1 * MB), "fused attention", "zero_grad"),
        (cpu("sort", 100, "sort", moved=1 * MB), "topk", "Batch them"),
    ],
)  # fmt: skip
def test_a_remedy_is_none_that_is_taken(row: dict[str, Any], right: str, wrong: str) -> None:
    remedy = below([row]).remedy
    assert right in remedy and wrong not in remedy


def test_a_compiled_program_is_not_told_to_compile() -> None:
    row = cpu("add", 100, moved=1 * MB)
    assert "torch.compile" in below([row]).remedy
    remedy = below([row], compiled={"regions": 1, "resumed": 0, "compilations": 0, "compile_ns": 0}).remedy
    assert "take them into its graphs" in remedy and "(torch.compile)" not in remedy


@pytest.mark.parametrize("workers", [False, True])
def test_a_loader_with_workers_is_not_told_to_take_workers(workers: bool) -> None:
    gaps = [gap("data", 300)]
    found = named(report([product(700)], 1000, gaps=gaps, loader_workers=workers))["data"]
    assert found.title.startswith("Waiting for the loader's workers" if workers else "Loading the batch")
    assert ("has workers already" in found.remedy) is workers and ("DataLoader workers" in found.remedy) is not workers


# ---- one outlier, idle threads


def _calls(*steps_us: float) -> list[dict[str, Any]]:
    """One call a step of a sum at half of its roof (20 µs of 10), and a product."""
    sums = [
        {**cpu("sum", us, "reduction", moved=1 * MB, shapes="fp32[250000]"), "step": step}
        for step, us in enumerate(steps_us)
    ]
    return [*sums, *({**product(500), "step": step} for step in range(len(steps_us)))]


def test_one_outlier_of_three_calls_is_not_the_kernels_efficiency() -> None:
    """Two calls took 20 µs and one, whose thread was put aside, 30 ms: "reaches 0.1 % of its roof"."""
    rows = _calls(20, 20, 30_000)
    found = named(report(rows, 10_530, steps=3, step_ns=[10.53e6] * 3, busy_ns=[10.53e6] * 3))
    assert found["unequal-calls"].saving_ns == pytest.approx((30_000 - 20) / 3 * 1e3)
    assert "below-roof" not in found  # 10 of 20 µs a step are worth no word in 10 ms
    steady = named(report(_calls(20, 20, 20), 530, steps=3, step_ns=[530e3] * 3, busy_ns=[520e3] * 3))
    assert "unequal-calls" not in steady


def test_idle_threads_do_not_hide_slow_kernels() -> None:
    """Dropout's numbers at 0.4 % of their roof: half of the cores were idle, and that was all that was said."""
    slow = cpu("bernoulli_", 1000, "random", moved=0.4 * MB)
    found = named(faults.of_run([slow], 1000, {"threads": {"count": 1}, "cpu": {"physical": 2, "logical": 2}}))
    assert found["idle-threads"].saving_ns == pytest.approx(500e3)
    assert found["below-roof"].title.startswith("Random number kernels reach 0.4 % of their roof")
    half = cpu("sum", 1000, "reduction", moved=50 * MB)  # what the other core would make of it
    found = named(faults.of_run([half], 1000, {"threads": {"count": 1}, "cpu": {"physical": 2, "logical": 2}}))
    assert set(found) == {"idle-threads"}


def test_a_loader_with_workers_leaves_no_core_idle() -> None:
    cores = {"threads": {"count": 1}, "cpu": {"physical": 4, "logical": 4}}
    assert "idle-threads" not in named(faults.of_run([product(1000)], 1000, cores, facts={"loader_workers": True}))
    assert "torch.set_num_threads" in named(faults.of_run([product(1000)], 1000, cores))["idle-threads"].remedy


def test_adagrad_has_one_moment() -> None:
    step = {"pass": "optimizer", "moved": 2 * MB, "shapes": "fp32[250000], fp32[250000]"}
    rows = [cpu(name, 25, **step) for _ in range(10) for name in ("addcmul_", "sqrt", "add_", "addcdiv_")]
    found = named(report([product(4000), *rows], 5000))["unfused-optimizer"]
    assert "moves 50.00 MB" in found.evidence  # 5 × 10 × 1 MB


def test_time_between_kernels_of_a_busy_machine_is_not_the_programs_own_code() -> None:
    """A thread that was put aside in Python made "456 µs for each kernel, the program's own: NumPy"."""
    rows = _calls(20, 20, 30_000)
    gaps = [gap("Python", 3 * 1500)]
    found = named(report(rows, 12_030, steps=3, step_ns=[12.03e6] * 3, busy_ns=[10.53e6] * 3, gaps=gaps))
    assert found["overhead"].title.startswith("The framework") and "unequal-calls" in found["overhead"].evidence


def test_one_long_gap_has_the_name_of_what_ran_in_it() -> None:
    long = [{"ns": 600e3, "name": "pipeline.py(129): preprocess", "cause": "Python"}]
    found = report([on_gpu(380)], 1000, None, gaps=[gap("Python", 620)], long_gaps=long).findings
    [one] = [f for f in found if f.name == "gpu-idle" and f.share > 0.1]
    assert one.title == "One gap of 600.0 µs: the host is in pipeline.py(129): preprocess"
    assert one.saving_ns == pytest.approx(600e3) and "CUDA graph" not in one.remedy
    [other] = [f for f in found if f is not one]
    assert other.saving_ns == pytest.approx(20e3) and "CUDA graph" in other.remedy
    long = [{"ns": ns, "name": "train.py(3): step", "cause": "Python"} for ns in (500e3, 600e3, 500e3)]
    found = report([on_gpu(380)], 1000, None, gaps=[gap("Python", 1600)], steps=3, long_gaps=long).findings
    [one] = [f for f in found if f.title.startswith("3 gaps of up to 600.0 µs: the host is in train.py(3): step")]
    assert one.time_ns == pytest.approx(1600e3 / 3) and not [f for f in found if f.title.startswith("One gap")]
    first = [{"ns": 600e3, "name": "hipLaunchKernel", "cause": "launch"}]
    found = named(report([on_gpu(400)], 1000, None, gaps=[gap("launch", 600)], long_gaps=first))["gpu-idle"]
    assert "first use of a kernel" in found.remedy


@pytest.mark.parametrize(("call", "graphs"), [("hipLaunchKernel", True), ("urEnqueueKernelLaunch", False)])
def test_a_device_without_graphs_is_not_told_to_take_them(call: str, graphs: bool) -> None:
    calls = [{"name": call, "count": 1, "ns": 1000}]
    found = named(report([on_gpu(400)], 1000, None, gaps=[gap("Python", 600)], api=calls))["gpu-idle"]
    assert ("CUDA graph" in found.remedy) == graphs and "larger batch" in found.remedy


def test_rows_of_activations_have_no_dense_gradients() -> None:
    shape = "fp32[10000×16]"
    rows = [cpu("index_select", 5, "index", shapes=f"{shape}, int64[64]"),
            cpu("zero_", 200, "fill", shapes=shape, **{"pass": "backward"})]  # fmt: skip
    assert "dense-embedding-gradient" not in named(report([product(), *rows], 1205))


def test_a_loss_over_the_second_dimension_is_a_transposed_softmax() -> None:
    rows = [
        cpu("_log_softmax", 1000, "softmax", moved=1 * MB, shapes="fp32[8×500×32]"),
        cpu("nll_loss2d_forward", 10, "loss", moved=1e3, shapes="fp32[8×500×1×32], int64[8×1×32]"),
    ]
    assert "reshape(-1, C)" in named(report([product(), *rows], 2010))["transposed-softmax"].remedy
    assert "transposed-softmax" not in named(report([product(), rows[0]], 2000))


# ---- names


def test_names_that_differ_in_the_middle_stay_apart() -> None:
    long = "cutlass_75_tensorop_bf16_s1688gemm_bf16_" + "x" * 40 + "_{}_" + "y" * 40 + "_align8"
    names = [long.format(which) for which in ("nn", "nt")]
    assert len({cropped(n) for n in names}) == 1
    shown = apart(names)
    assert len(set(shown)) == 2 and all(
        which in s and len(s) <= 75 for s, which in zip(shown, ("_nn_", "_nt_"), strict=True)
    )
    assert apart(["a", "b"]) == ["a", "b"] and cropped("a" * 100 + "_tn").endswith("a_tn")


def test_code_without_operators_is_work_that_nobody_knows() -> None:
    """Compiled C++ (AOTInductor) took most of a step, of which "FLOP 100 %" were known."""
    text = report([product(100)], 1000, gaps=[gap("Python", 880)]).coverage.text
    assert "In 88 % of the profiled step no operator is open" in text and "FLOP" in text
    assert "no operator is open" not in report([product(850)], 1000, gaps=[gap("Python", 120)]).coverage.text


def test_long_names_are_short_and_do_not_read_alike() -> None:
    kinds = ["Cijk_Alik_Bljk_" + "BBS_BH_Bias_HA_S_SAV_" * 20 + f"MT{n}x16_" + "WSGRA0_" * 20 for n in (64, 128, 256)]
    short = apart(kinds)
    assert len(set(short)) == 3 and max(map(len, short)) <= 48
    assert "MT128" in short[1] and all(name.startswith("Cijk_Alik_Bljk_") for name in short)
    both = apart([*kinds, "gemm", "gemm"])
    assert both[:3] == short and both[3:] == ["gemm", "gemm"]
