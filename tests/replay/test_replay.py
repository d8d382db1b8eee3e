"""Operators of a trace run again: found, rebuilt by their schemas, right in fp64, and as a script without perfkit."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from perfkit.bench import run
from perfkit.bench.results import WARM
from perfkit.errors import InputError, RunFailed, UsageError
from perfkit.replay import attention, contents, fills, generated, origins, rebuilt, recorded, replay, script
from perfkit.replay.arguments import NotRebuilt
from perfkit.replay.arguments import rebuilt as rebuilt_from

FIXTURES = Path(__file__).parents[1] / "fixtures/kineto"
QUICK = run.BenchOptions("cpu", seconds=1e-6, caches=(WARM,), seed=7)


@pytest.fixture(scope="module")
def eager():
    return recorded.TraceTable(FIXTURES / "eager.json.gz")


def calls_of(operator, types, dims, strides=None, values=None, kernels=()):
    """Recorded calls as a trace has them; without `values`, of a profiler that recorded none."""
    arguments = {"Input type": types, "Input Dims": dims}
    arguments |= {"Input Strides": strides} if strides else {}
    arguments |= {"Concrete Inputs": values} if values else {}
    texts = [json.dumps(arguments.get(name, "")).encode() if name in arguments else b"" for name in recorded.FIELDS]
    return recorded.OperatorCalls(operator, arguments, (operator, *texts), [1000.0, 1100.0], list(kernels))


def found_of(calls, device="NVIDIA H200"):
    return recorded.FoundOperator(Path("trace.json"), device, True, [calls], "fp32")


def replayed(calls, ways=("pytorch",)):
    found = found_of(calls)
    chosen = replay.choose(found, "cpu", 7)
    return replay.replay(found, chosen, QUICK, None, (list(ways), []), lambda who, what: None)


def values_of(made):
    return {name: value for name, _, value in made.recipe["arguments"]}


def test_a_row_of_the_kernel_table_leads_to_the_operator_that_launched_it(eager):
    found = eager.by_kernel(1)
    (calls,) = found.levels
    assert calls.operator == "aten::_fused_adamw_" and found.device == "NVIDIA H200" and found.on_gpu
    groups = eager.kernel_groups()
    assert len(calls.ns) == 2 and sum(calls.ns) / 2 == pytest.approx(groups[0].time_ns, rel=1e-9)
    assert "FusedAdam" in calls.kernels[0]


def test_an_operator_takes_the_time_of_all_its_kernels(eager):
    (calls,) = eager.by_operator("native_layer_norm_backward", "").levels
    assert len(calls.kernels) == 2 and calls.pass_ == "backward"
    alone = [group.time_ns / group.count for group in eager.kernel_groups() if "layer_norm_grad" in group.example]
    assert min(calls.ns) > max(alone, default=0.0) > 0


def test_modules_choose_among_calls():
    trace = recorded.TraceTable(FIXTURES / "eager-stack.json.gz")
    with pytest.raises(UsageError, match="is not in it"):
        trace.by_operator("aten::addmm", "no.such.module")
    linear = next(n for n in trace.placed.places.module_names if "Linear" in n)
    (calls,) = trace.by_operator("addmm", linear).levels
    assert calls.module == linear


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda t: t.by_kernel(0), UsageError, "has 29 rows"),
        (lambda t: t.by_kernel(30), UsageError, "has 29 rows"),
        (lambda t: t.by_operator("aten::nothing", ""), UsageError, "no such operator"),
        (lambda t: t.by_operator("c10d::allreduce_", ""), InputError, "collective"),
    ],
)
def test_what_the_trace_does_not_have(eager, ask, error, words):
    with pytest.raises(error, match=words):
        ask(eager)


def test_kernels_of_a_graph_belong_to_no_recorded_operator():
    trace = recorded.TraceTable(FIXTURES / "graph.json.gz")
    with pytest.raises(InputError, match="launched by no operator"):
        trace.by_kernel(1)


def test_the_overload_follows_from_what_is_recorded():
    tensor = ["float", "float", "Scalar"]
    made = rebuilt_from(calls_of("aten::add", tensor, [[4], [4], []], values=["", "", "2"]), "fp32")
    assert made.recipe["overload"] == "Tensor" and values_of(made)["alpha"] == {"value": 2}
    made = rebuilt_from(calls_of("aten::mul", ["float", "Scalar"], [[4], []], values=["", "2.5"]), "fp32")
    assert made.recipe["overload"] in ("Scalar", "Tensor") and values_of(made)["other"] == {"value": 2.5}
    sums = calls_of("aten::sum", ["float", "ScalarList", "Scalar", ""], [[4, 8], [], [], []], None,
                    ["", "[0]", "True", ""])  # fmt: skip
    made = rebuilt_from(sums, "fp32")
    assert made.recipe["overload"] == "dim_IntList"
    assert values_of(made)["dim"] == {"value": [0]} and values_of(made)["keepdim"] == {"value": True}


def test_dtypes_and_memory_formats_are_no_numbers():
    types, dims = ["float", "Scalar", "Scalar", "", "", "Scalar", "Scalar"], [[2, 3, 4, 5], [], [], [], [], [], []]
    made = rebuilt_from(calls_of("aten::_to_copy", types, dims, values=["", "15", "0", "", "", "False", "2"]), "fp32")
    values = values_of(made)
    assert values["dtype"] == {"dtype": "bfloat16"} and values["memory_format"] == {"format": "channels_last"}
    arguments = rebuilt.Maker("cpu", 1).arguments(made.recipe)
    got = rebuilt.outputs(made.recipe, arguments)["result 0"]
    assert got.dtype == torch.bfloat16 and got.is_contiguous(memory_format=torch.channels_last)


def test_strides_are_those_of_the_trace():
    calls = calls_of("aten::mm", ["float", "float"], [[3, 5], [5, 4]], [[5, 1], [1, 5]], ["", ""])
    arguments = rebuilt.Maker("cpu", 1).arguments(rebuilt_from(calls, "fp32").recipe)
    assert arguments["mat2"].stride() == (1, 5) and arguments["self"].stride() == (5, 1)
    expanded = calls_of("aten::div", ["float", "Scalar"], [[6, 4], []], [[0, 0], []], ["", "24"])
    found = rebuilt.Maker("cpu", 1).arguments(rebuilt_from(expanded, "fp32").recipe)["self"]
    assert found.stride() == (0, 0) and len(found.unique()) == 1


def test_what_an_old_trace_does_not_record_is_stated_or_refused():
    made = rebuilt_from(calls_of("aten::addmm", ["float"] * 3 + ["Scalar"] * 2, [[4], [2, 3], [3, 4], [], []]), "fp32")
    assert values_of(made)["beta"] == {"value": 1} and any("beta is not recorded" in text for text in made.stated)
    assert any("Strides are not recorded" in text for text in made.stated)
    with pytest.raises(NotRebuilt, match="does not record its dim"):
        rebuilt_from(calls_of("aten::sum", ["float", "", "Scalar", ""], [[4, 8], [], [], []]), "fp32")
    with pytest.raises(NotRebuilt, match="no shapes of the list"):
        rebuilt_from(calls_of("aten::cat", ["TensorList", "Scalar"], [[], []]), "fp32")
    with pytest.raises(NotRebuilt, match="has no operator"):
        rebuilt_from(calls_of("fbgemm::lookup", ["float"], [[4]]), "fp32")
    with pytest.raises(NotRebuilt, match="no arguments"):
        rebuilt_from(calls_of("aten::relu", [], []), "fp32")
    with pytest.raises(NotRebuilt, match="No overload"):
        rebuilt_from(calls_of("aten::relu", ["float"] * 9, [[4]] * 9, values=[""] * 9), "fp32")


def test_a_list_has_the_dtype_that_its_kernel_names():
    calls = calls_of("aten::_foreach_add_", ["TensorList", "Scalar"], [[[4], [2, 2]], []], [[[1], [2, 1]], []],
                     ["", "1"], kernels=["multi_tensor_apply_kernel<BinaryOp<c10::BFloat16>>"])  # fmt: skip
    made = rebuilt_from(calls, "fp32")
    assert [one["tensor"]["dtype"] for one in values_of(made)["self"]["list"]] == ["bfloat16"] * 2
    assert any("bfloat16 is taken" in text for text in made.stated)


def test_indices_stay_inside_and_their_distribution_is_stated():
    calls = calls_of("aten::embedding", ["float", "long int", "Scalar", "Scalar", "Scalar"],
                     [[7, 3], [400], [], [], []], values=["", "", "-1", "False", "False"])  # fmt: skip
    made = rebuilt_from(calls, "fp32")
    tensor = values_of(made)["indices"]["tensor"]
    assert fills.words_of(tensor) == "whole numbers from 0 to 6, equally likely"
    drawn = rebuilt.Maker("cpu", 1).arguments(made.recipe)["indices"]
    assert set(drawn.tolist()) == set(range(7))
    gather = calls_of("aten::gather", ["float", "Scalar", "long int", "Scalar"], [[5, 9], [], [5, 2], []],
                      values=["", "1", "", "False"])  # fmt: skip
    assert values_of(rebuilt_from(gather, "fp32"))["index"]["tensor"]["bound"] == 9


def test_backward_operators_get_what_their_forward_operators_make():
    origin = origins.origin_of("aten::native_layer_norm_backward")
    assert origin.operator == "aten::native_layer_norm" and origin.results == {3: 1, 4: 2}
    assert origins.origin_of("aten::max_pool2d_with_indices_backward").results == {7: 1}
    assert origins.origin_of("aten::rsqrt") is None and origins.origin_of("aten::gelu_backward") is None
    dims = [[6, 8], [6, 8], [], [6, 1], [6, 1], [8], [8], []]
    types = ["float", "float", "ScalarList", "float", "float", "float", "float", "ScalarList"]
    calls = calls_of("aten::native_layer_norm_backward", types, dims, None,
                     ["", "", "[8]", "", "", "", "", "[True, True, True]"])  # fmt: skip
    made = rebuilt_from(calls, "fp32")
    arguments = rebuilt.Maker("cpu", 3).arguments(made.recipe)
    x = arguments["input"]
    assert torch.allclose(arguments["mean"], x.mean(-1, keepdim=True), atol=1e-6)
    assert "mean, rstd: results of aten::native_layer_norm" in made.stated[-1]
    (row,) = replayed(calls).points[0].rows
    assert row.status == "ok" and {e.output for e in row.errors} == {"result 0", "result 1", "result 2"}


def test_an_argument_of_the_forward_operator_may_have_the_name_of_a_result():
    """cuDNN's attention takes `cum_seq_q` and returns another; its backward operator gets the returned one."""
    q = [2, 4, 64, 32]
    dims = [q, q, q, q, q, [2, 4, 64, 1], [], [], [], [], [], [], [], [], [], []]
    types = ["c10::BFloat16"] * 5 + ["float", "long int", "long int", *[""] * 3, *["Scalar"] * 4, ""]
    values = [*[""] * 11, "64", "64", "0.", "True", ""]
    made = rebuilt_from(calls_of("aten::_cudnn_attention_backward", types, dims, None, values), "fp32").recipe
    assert "cum_seq_q" in [name for name, _, value in made["arguments"] if "result" in value]
    forward = {name: value for name, _, value in made["forward"]["arguments"]}
    assert forward["cum_seq_q"] == {"value": None} and forward["query"] == {"argument": "query"}
    assert forward["compute_log_sumexp"] == {"value": True}


def test_the_approximation_of_gelu_is_read_from_its_kernel():
    kernel = (
        "void kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#%d}>"
    )
    calls = calls_of("aten::gelu", ["c10::BFloat16", ""], [[8, 8], []], None, ["", ""])
    assert values_of(rebuilt_from(calls, "fp32"))["approximate"] == {"value": "none"}
    for number, approximation in ((1, "tanh"), (2, "none")):
        calls.kernels[:] = [kernel % number]
        made = rebuilt_from(calls, "fp32")
        assert values_of(made)["approximate"] == {"value": approximation}
        assert not any("approximate" in text for text in made.stated)


def test_our_kernel_that_fits_is_checked_and_timed_next_to_it(eager):
    found = eager.by_operator("native_layer_norm_backward", "")
    chosen = replay.choose(found, "cpu", 7)
    wanted = (["pytorch", "perfkit:c:2", "perfkit:c:1"], [])
    bench = replay.replay(found, chosen, QUICK, None, wanted, lambda who, what: None)
    assert {row.way: row.status for row in bench.points[0].rows} == {
        "pytorch": "ok", "perfkit:c:1": "ok", "perfkit:c:2": "ok",
    }  # fmt: skip
    assert all(len(row.errors) == 3 and row.warm for row in bench.points[0].rows)
    said = bench.recorded
    assert (
        not said.comparable and said.device == "NVIDIA H200" and all(r.of_trace is None for r in bench.points[0].rows)
    )
    assert said.ns.n == len(found.levels[0].ns) and bench.points[0].bytes


def test_what_changes_its_arguments_gets_them_back(eager):
    found = eager.by_kernel(1)
    chosen = replay.choose(found, "cpu", 7)
    bench = replay.replay(found, chosen, QUICK, None, (["pytorch"], []), lambda who, what: None)
    (row,) = bench.points[0].rows
    assert row.status == "ok" and row.warm.calls <= 20
    assert {e.output.partition("[")[0] for e in row.errors} >= {"self", "exp_avgs", "exp_avg_sqs"}


@pytest.mark.parametrize(
    ("operator", "extra"),
    [
        ("aten::_scaled_dot_product_flash_attention_backward", []),
        ("aten::_scaled_dot_product_cudnn_attention_backward", ["attn_bias"]),
    ],
)
def test_attention_of_a_gpu_runs_on_a_cpu_by_autograd(operator, extra):
    shape = [2, 3, 16, 8]
    half = "c10::BFloat16"
    seeds = ["", ""] if not extra else ["long int", "long int", "", "", ""]
    types = [half] * 5 + ["float"]
    dims = [shape] * 5 + [[2, 3, 16]]
    if extra:
        types, dims = types + seeds + ["Scalar"] * 4 + [""], dims + [[], [], [], [], []] + [[]] * 5
        values = [""] * 11 + ["16", "16", "0.", "True", ""]
    else:
        types += ["", "", "Scalar", "Scalar", "Scalar", "Scalar", "long int", "long int", ""]
        dims += [[]] * 9
        values = [""] * 8 + ["16", "16", "0.", "True", "", "", ""]
    bench = replayed(calls_of(operator, types, dims, None, values), ("pytorch", "math"))
    assert {row.way: row.status for row in bench.points[0].rows} == {"pytorch": "ok", "math": "ok"}
    assert bench.points[0].dtype == "bf16" and any("runs in its place" in text for text in bench.recorded.stated)
    assert attention.is_attention(operator) and not attention.is_attention("aten::linear")


def test_random_numbers_are_timed_and_not_called_right():
    calls = calls_of("aten::normal_", ["float", "Scalar", "Scalar", ""], [[64], [], [], []], [[1], [], [], []],
                     ["", "0.", "1.", ""])  # fmt: skip
    bench = replayed(calls)
    (row,) = bench.points[0].rows
    assert row.status == "unchecked" and row.warm and any("random" in note for note in bench.notes)


def test_a_call_whose_check_does_not_fit_into_the_memory_is_refused_before_it_is_made():
    """In fp64 the scores of eight videos take 7.6 GB, three times over beside the call's own."""
    types, values = ["c10::BFloat16", "Scalar", "Scalar"], ["", "-1", "False"]
    found = found_of(calls_of("aten::_softmax", types, [[8, 12, 3137, 3137], [], []], None, values))
    with pytest.raises(RunFailed, match=r"takes at least 35\.90 GB to be checked against fp64, and 20\.00 GB are free"):
        replay.choose(found, "cpu", 0, 20e9)
    small = found_of(calls_of("aten::_softmax", types, [[2, 3, 4], [], []], None, values))
    assert replay.choose(small, "cpu", 0, 1e6).calls is small.levels[0]
    with pytest.raises(RunFailed, match="are free"):
        replay.choose(small, "cpu", 0, 24 * 38 - 1)  # 10 bytes an element of the input, 28 of the result


def test_a_wrong_way_gets_no_time(monkeypatch):
    calls = calls_of("aten::mm", ["float", "float"], [[8, 8], [8, 8]], [[8, 1], [8, 1]], ["", ""])
    honest = rebuilt.expected
    monkeypatch.setattr(
        rebuilt, "expected", lambda *given: {name: value * 1.001 for name, value in honest(*given).items()}
    )
    (row,) = replayed(calls).points[0].rows
    assert row.status == "wrong" and row.warm is None and "error" in row.reason


def test_the_time_of_the_same_device_is_compared(monkeypatch):
    calls = calls_of("aten::relu", ["float"], [[64]], [[1]], [""])
    monkeypatch.setattr(replay, "recorded", _as_if_recorded_here(replay.recorded))
    bench = replayed(calls)
    (row,) = bench.points[0].rows
    assert row.of_trace.value == pytest.approx(1050.0 / row.warm.ns.value)


def test_a_softmax_of_square_scores_is_timed_with_those_of_causal_attention_too(monkeypatch):
    monkeypatch.setattr(replay, "recorded", _as_if_recorded_here(replay.recorded))
    types, inputs = ["float", "Scalar", "Scalar"], ["", "-1", "False"]
    square = replayed(calls_of("aten::_softmax", types, [[2, 16, 16], [], []], [[256, 16, 1], [], []], inputs)).recorded
    wide = replayed(calls_of("aten::_softmax", types, [[2, 16, 32], [], []], [[512, 32, 1], [], []], inputs)).recorded
    assert square.masked.value > 0 and square.zeros.value > 0
    assert wide.masked is None and wide.zeros.value > 0


def test_masked_scores_hide_what_comes_later():
    values = {"self": torch.randn(2, 4, 4), "dim": -1}
    scores = contents.masked("aten::_softmax", values)["self"]
    assert torch.equal(torch.isinf(scores), torch.ones(4, 4).triu(1).bool().expand(2, 4, 4))
    assert torch.equal(scores.tril(), values["self"].tril()) and contents.masked("aten::gelu", values) is None


def _as_if_recorded_here(original):
    def made(*given):
        found = original(*given)
        found.comparable = True
        return found

    return made


def test_a_generated_kernel_needs_a_gpu_and_its_source(tmp_path):
    trace = recorded.TraceTable(FIXTURES / "compiled.json.gz")
    number = next(i for i, g in enumerate(trace.kernel_groups(), 1) if g.example.startswith("triton_"))
    found = trace.by_kernel(number)
    with pytest.raises(NotRebuilt, match="runs on a GPU alone"):
        replay.choose(found, "cpu", 7)
    name = found.levels[0].operator
    with pytest.raises(NotRebuilt, match="is not on this machine: it was /tmp/torchinductor_root/"):
        generated.source_of(name, found.trace)
    copy = tmp_path / "trace.json.gz"
    copy.write_bytes(found.trace.read_bytes())
    text = f"x = async_compile.triton('{name}', '''\nimport triton\ndef {name}(a): pass\n''', device_str='cuda')\n"
    (tmp_path / "generated.txt").write_text(text)
    assert f"def {name}(a)" in generated.source_of(name, copy)


def test_a_script_runs_where_perfkit_cannot_be_imported(eager, tmp_path):
    found = eager.by_operator("native_layer_norm_backward", "")
    path = tmp_path / "bug.py"
    script.write(path, found, replay.choose(found, "cpu", 7), 7)
    text = path.read_text()
    assert "import perfkit" not in text and "from perfkit" not in text
    blocked = f"import sys, runpy; sys.modules['perfkit'] = None; sys.argv = ['{path}', '--device', 'cpu']; "
    blocked += f"runpy.run_path('{path}', run_name='__main__')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(", right") == 3 and "another device: the two do not compare" in done.stdout
    assert "us (median of 30" in done.stdout and "normal, mean 0, deviation 1" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no operator of it is named"),
        (["--kernel", "1", "--operator", "aten::mm"], "both choose"),
        (["--kernel", "1", "--module", "h.3"], "--module goes with --operator"),
        (["--kernel", "1", "--sizes", "B=4"], "--sizes does not go with a trace"),
        (["--kernel", "1", "--dtype", "bf16"], "--dtype does not go with a trace"),
        (["--kernel", "99"], "has 29 rows"),
        (["gelu", "--kernel", "1"], "one at a time|run at a time"),
    ],
)
def test_wrong_arguments_get_a_sentence(run_cli, options, words):
    done = run_cli(["bench", str(FIXTURES / "eager.json.gz"), *options, "--no-ceilings"])
    assert done.rc == 2 and "Traceback" not in done.stderr
    assert any(word in " ".join(done.stderr.split()) for word in words.split("|"))


def test_the_command_answers_as_text_json_and_in_brief(run_cli):
    base = ["bench", str(FIXTURES / "eager.json.gz"), "--operator", "aten::gelu", "--no-ceilings", "--seconds", "1e-6",
            "--implementation", "pytorch", "--cache", "warm", "--device", "cpu"]  # fmt: skip
    text = run_cli(base)
    shown = " ".join(text.stdout.split())
    assert text.rc == 0 and "In the trace" in shown and "another device: the two do not compare" in shown
    assert "approximate none" in shown and "approximate is not recorded" not in shown
    answer = json.loads(run_cli([*base, "--json"]).stdout)
    said = answer["recorded"]
    assert said["operator"] == "aten::gelu" and said["comparable"] is False and math.isfinite(said["ns"]["value"])
    brief = run_cli([*base, "--brief"]).stdout
    assert len(brief.encode()) <= 4096 and "replay" in json.loads(brief)["measured"]["title"]


def test_options_of_a_trace_need_one(run_cli):
    done = run_cli(["bench", "gelu", "--operator", "aten::mm"])
    assert done.rc == 2 and "are of a trace" in done.stderr
