"""Counters of a report joined onto a trace: what matches, what stays out, and what the joined table says."""

import numpy as np
import pytest

from perfkit import table
from perfkit.errors import InputError
from perfkit.readers.join import join
from perfkit.readers.join_keys import template_words

SCALE = "void scale<float>(float const*, float*, float, int)"
SCALE_NCU = "void scale<float>(const T1 *, T1 *, T1, int)"
SCALE64_NCU = "void scale<double>(const T1 *, T1 *, T1, int)"


def row(name: str, grid: int = 8, **more):
    short = name.split("<")[0].split("(")[0].split()[-1]
    sizes = {"grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    return {"name": name, "short_name": short, "kind": "gpu_kernel", "device": "cuda:0", **sizes, **more}


def trace(*rows, **facts):
    made = [{"duration_ns": 1000.0, "start_ns": 2000.0 * i, "order": i, "step": 0, **r} for i, r in enumerate(rows)]
    return table.build(made, ["seen"], {"path": "t.json", "reader": "kineto"}, {"steps": 1, **facts})


def report(*rows, **facts):
    """A report whose kernel i moved 1000 + i bytes and did 10 + i FLOP."""
    made = [
        {"duration_ns": 9000.0, "order": i, "dram_bytes": 1000.0 + i, "dram_origin": "counter"}
        | {"flop_vector_fp32": 10.0 + i, "flop_origin": "derived", "occupancy": 0.5, "waves": 2.0, **r}
        for i, r in enumerate(rows)
    ]
    known = {"tool": "ncu", "kernels": [{"n": i} for i in range(len(rows))], "row_ceilings": {}, **facts}
    return table.build(made, [], {"path": "c.ncu-rep", "reader": "ncu-report"}, known)


def bytes_of(joined) -> list[float | None]:
    return [None if np.isnan(v) else v for v in joined.frame["dram_bytes"].tolist()]


def test_times_of_the_trace_and_counters_of_the_report():
    ours = trace(row(SCALE, module="h.0", bytes_read=5.0, bytes_written=5.0), row("gelu"))
    joined = join(ours, report(row(SCALE_NCU), row("gelu")))
    first = joined.frame.iloc[0]
    assert first["duration_ns"] == 1000.0 and first["module"] == "h.0" and first["bytes_read"] == 5.0
    assert first["dram_bytes"] == 1000.0 and first["dram_origin"] == "counter"
    assert first["flop_vector_fp32"] == 10.0 and first["flop_origin"] == "derived"
    assert first["occupancy"] == 0.5 and first["waves"] == 2.0
    assert joined.facts["kernels"] == [{"n": 0}, {"n": 1}]
    assert joined.facts["counters"]["matched"] == 2 and joined.facts["counters"]["matched_time"] == 1.0
    assert joined.facts["steps"] == 1 and "seen" in joined.warnings
    assert any("joined onto 2 of 2 kernels" in w and "flushed" in w for w in joined.warnings)
    assert ours.frame["dram_bytes"].isna().all()  # what was given stays as it was


def test_copies_and_host_rows_are_no_kernels():
    copy = {"name": "Memcpy HtoD", "kind": "memcpy", "device": "cuda:0"}
    joined = join(trace(copy, row("a"), copy, row("b")), report(row("a"), row("b")))
    assert bytes_of(joined) == [None, 1000.0, None, 1001.0]
    assert joined.facts["counters"]["kernels"] == 2


@pytest.mark.parametrize(
    ("rows", "counted", "expected"),
    [
        ([row("a"), row("b"), row("c")], [row("b")], [None, 1000.0, None]),  # launch-skip and -count
        ([row("a"), row("a")], [row("a")], [None, None]),  # which of the two, nobody knows
        ([row("a", 8), row("a", 9)], [row("a", 9)], [None, 1000.0]),  # the grid decides
        ([row("a")], [row("x"), row("a"), row("y")], [1001.0]),
        ([row(SCALE)], [row(SCALE64_NCU)], [None]),  # another instance of the template
        ([row(SCALE)], [row("scale")], [1000.0]),  # a tool that does not report the arguments
        ([row("a"), row("b")], [row("b"), row("a")], [None, None]),  # another order: one of two, not both
    ],
)
def test_only_what_is_certain_matches(rows, counted, expected):
    assert bytes_of(join(trace(*rows), report(*counted))) == expected


def test_what_did_not_match_is_named():
    joined = join(trace(row("a"), row("a"), row("b")), report(row("b"), row("z")))
    told = joined.facts["counters"]
    assert told["without_counters"] == [["a", 2]] and told["without_row"] == [["z", 1]] and told["unused"] == 1
    assert "without counters: a ×2" in joined.warnings and "captured, but not placed: z" in joined.warnings


def test_one_counted_step_serves_all_steps():
    rows = [row(name, step=step) for step in range(3) for name in "ab"]
    joined = join(trace(*rows), report(row("a"), row("b")))
    assert bytes_of(joined) == [1000.0, 1001.0] * 3
    assert any("one step and serve all 3 steps" in w for w in joined.warnings)


def test_as_many_counted_steps_serve_each_its_own():
    rows = [row(name, step=step) for step in range(2) for name in "ab"]
    joined = join(trace(*rows), report(*rows))
    assert bytes_of(joined) == [1000.0, 1001.0, 1002.0, 1003.0]
    assert not any("serve all" in w for w in joined.warnings)


def test_of_several_counted_steps_the_one_that_fits_serves():
    """A first step that autotunes, then two alike: the last of these is taken."""
    counted = [row("tune", step=0), row("a", step=0), *(row(n, step=s) for s in (1, 2) for n in "ab")]
    joined = join(trace(row("a"), row("b")), report(*counted))
    assert bytes_of(joined) == [1004.0, 1005.0]


def test_a_backward_thread_without_ranges_is_in_the_step_that_was_open():
    counted = [row("w"), row("a", step=0), row("b"), row("a", step=1), row("b")]
    joined = join(trace(*(row(n, step=s) for s in range(2) for n in "ab")), report(*counted))
    assert bytes_of(joined) == [1001.0, 1002.0, 1003.0, 1004.0]


def test_one_layer_serves_every_layer():
    rows = [row("enc"), *(row(n, layer=i) for i in range(3) for n in "ab"), row("head"), row("adam", 99)]
    joined = join(trace(*rows), report(row("enc"), row("a"), row("b"), row("head"), row("adam", 33)), one_layer=3)
    assert bytes_of(joined) == [1000.0, *[1001.0, 1002.0] * 3, 1003.0, None]
    assert any("scaled" in w and "each of the 3 layers" in w for w in joined.warnings)


def test_bytes_that_memory_could_not_have_moved_are_unknown():
    """1000 bytes at 1e9 bytes/s take 1000 ns: a kernel of 999 ns found some of them in L2."""
    rows = [row("a", duration_ns=999.0), row("b", duration_ns=1002.0)]
    joined = join(trace(*rows), report(row("a"), row("b"), row_ceilings={"memory": [1e9, 1e9]}), ceilings=False)
    assert bytes_of(joined) == [None, 1001.0] and joined.frame["dram_origin"].tolist() == ["absent", "counter"]
    assert joined.frame["flop_vector_fp32"].tolist() == [10.0, 11.0]
    assert any("1 of them ran faster than device memory" in w for w in joined.warnings)


def test_ceilings_follow_their_rows():
    copy = {"name": "Memcpy", "kind": "memcpy", "device": "cuda:0"}
    counted = report(
        row("b"),
        row("c"),
        row("d"),
        row_ceilings={"memory": [3e12, 4e12, 5e12], "l2": [None, 7e12, None]},
        ceilings_hold="at the captured clock",
    )
    joined = join(trace(row("a"), copy, row("b"), row("c")), counted)
    assert joined.facts["row_ceilings"] == {"memory": [4e12, None, 3e12, 4e12], "l2": [7e12, None, None, 7e12]}
    assert joined.facts["ceilings_hold"] == "at the captured clock of the counters"
    assert joined.facts["kernels"] == [{}, {}, {"n": 0}, {"n": 1}]
    assert "row_ceilings" not in join(trace(row("b")), counted, ceilings=False).facts


def test_ceilings_and_facts_go_by_launch_order_and_not_by_place():
    ours = trace(row("b", order=5, start_ns=9.0), row("a", order=2, start_ns=1.0))
    joined = join(ours, report(row("a"), row("b"), row_ceilings={"memory": [1e12, 2e12]}))
    assert bytes_of(joined) == [1001.0, 1000.0]
    stored = joined.facts["row_ceilings"]["memory"]
    assert (stored[5], stored[2]) == (2e12, 1e12)
    assert (joined.facts["kernels"][5], joined.facts["kernels"][2]) == ({"n": 1}, {"n": 0})


def test_work_of_matrix_units_that_was_not_counted_stays_the_model_s():
    matmul = row("gemm", flop_matrix_bf16=1e9, flop_origin="model")
    joined = join(trace(matmul), report(row("gemm")))
    assert joined.frame["flop_matrix_bf16"].tolist() == [1e9] and joined.frame["flop_origin"].tolist() == ["model"]
    counted = join(trace(matmul), report(row("gemm", flop_matrix_bf16=1.1e9)))
    assert counted.frame["flop_matrix_bf16"].tolist() == [1.1e9] and counted.frame["flop_origin"].tolist() == [
        "derived"
    ]


def test_a_joined_table_is_written_and_read_again(tmp_path):
    joined = join(trace(row("a")), report(row("a"), row_ceilings={"memory": [1e12]}))
    joined.write(tmp_path / "kernels.parquet")
    again = table.KernelTable.load(tmp_path / "kernels.parquet")
    assert again.facts == joined.facts and again.source["counters"] == "c.ncu-rep"


def test_tables_that_cannot_be_joined():
    with pytest.raises(InputError, match="not a report of Nsight Compute"):
        join(trace(row("a")), trace(row("a")))
    with pytest.raises(InputError, match="no GPU kernels"):
        join(trace({"name": "aten::mm", "kind": "cpu_op", "device": "cpu"}), report(row("a")))
    empty = report(row("a"))
    empty.frame = empty.frame.iloc[:0]
    with pytest.raises(InputError, match="holds no kernels"):
        join(trace(row("a")), empty)
    with pytest.raises(InputError, match="no times without the profiler"):
        join(report(row("a")), report(row("a")))


@pytest.mark.parametrize(
    ("kineto", "ncu"),
    [
        (SCALE, SCALE_NCU),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, "
            "std::array<char *, (unsigned long)3>>(int, T2, T3)",
        ),
        (
            "void (anonymous namespace)::k<f()::{lambda(long)#1}>(int)",
            "void <unnamed>::k<f()::[lambda(long) (instance 1)]>(int)",
        ),
        (  # as ncu prints it, read from a CSV: with fewer namespaces
            "void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, "
            "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int, "
            "at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
            "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul>)",
            "void at::vectorized_elementwise_kernel<8, at::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
            "binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int, T2, T3)",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
            "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::"
            "operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::"
            "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::"
            "operator()() const::{lambda(c10::BFloat16)#1} const&)::{lambda(int)#1}>(int, at::native::"
            "gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>)",
            "void at::elementwise_kernel<128, 4, void at::gpu_kernel_impl_nocast<at::direct_copy_kernel_cuda("
            "at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 12)]::"
            "operator ()() const::[lambda(c10::BFloat16) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::"
            "[lambda(int) (instance 1)]>(int, T3)",
        ),
    ],
)
def test_template_arguments_in_two_spellings(kineto, ncu):
    assert template_words(kineto) == template_words(ncu) is not None


def test_template_arguments_that_differ():
    assert template_words(SCALE_NCU) != template_words(SCALE64_NCU)
    assert template_words("triton_poi_fused_add_0") is None and template_words("a<b") is not None
