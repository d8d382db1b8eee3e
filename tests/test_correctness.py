"""The gate: what counts as right, and what never passes."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from perfkit import correctness
from perfkit.correctness import (
    FirstSteps,
    errors_against,
    judge,
    relative_error,
    rounding_of_a_sum,
    update_error,
    write_reference,
)
from perfkit.run_folder import Check


def test_relative_error_is_the_ratio_of_norms():
    reference = np.array([[3.0, 4.0]])
    assert relative_error(torch.tensor([[3.0, 4.5]]), reference) == pytest.approx(0.5 / 5.0)


def test_relative_error_is_absolute_where_the_reference_is_zero():
    assert relative_error(torch.tensor([0.3, 0.4]), np.zeros(2)) == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [[1.0, float("nan")], [1.0, float("inf")], [1.0], [[1.0, 2.0]]])
def test_not_finite_or_misshapen_is_not_comparable(bad):
    assert relative_error(torch.tensor(bad), np.array([1.0, 2.0])) is None


def test_comparison_in_chunks_equals_comparison_at_once(monkeypatch):
    torch.manual_seed(0)
    a, r = torch.randn(1001), np.random.default_rng(0).standard_normal(1001)
    whole = relative_error(a, r)
    monkeypatch.setattr(correctness, "_CHUNK", {"cpu": 10})
    assert relative_error(a, r) == pytest.approx(whole, rel=1e-12)


def test_reference_round_trip_keeps_fp64_and_names_what_is_missing(tmp_path):
    value = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    write_reference(tmp_path, {"outputs": value, "gradient of w": value})
    errors = errors_against(tmp_path, {"outputs": value})
    assert errors == {"outputs": 0.0, "gradient of w": None}
    assert set(json.loads((tmp_path / "reference.json").read_text())) == {"outputs", "gradient of w"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_a_long_output_some_positions_of_every_sample_are_compared(tmp_path, monkeypatch, ranks):
    monkeypatch.setattr(correctness, "_WHOLE", 100)
    torch.manual_seed(0)
    value = torch.randn(4, 10, 7)  # 280 elements: every third position, 0, 3, 6 and 9
    write_reference(tmp_path, {"outputs": value, "gradient of w": value})
    assert np.load(tmp_path / "0.npy").shape == (4, 4, 7) and np.load(tmp_path / "1.npy").shape == (4, 10, 7)

    def error(wrong):
        return errors_against(tmp_path, {"outputs": wrong[: 4 // ranks], "gradient of w": value}, 0, ranks)["outputs"]

    assert error(value) == 0.0 and error(value[..., 0]) is None and error(value[:, :6]) is None
    for position in (0, 3, 6, 9):
        wrong = value.clone()
        wrong[1, position] += 1
        assert error(wrong) > 0.1


def verdict(errors, eager=None, losses=(1.0,), dtype="fp32", problems=(), samples=1):
    eager = errors if eager is None else eager
    found = FirstSteps(list(losses), errors, problems=list(problems))
    return judge(dtype, "fp64", found, FirstSteps([1.0], eager), [1.0], samples)


def test_three_times_eagers_error_passes_and_more_does_not():
    assert verdict({"outputs": 2.9e-6}, {"outputs": 1e-6}).ok
    found = verdict({"outputs": 3.1e-6}, {"outputs": 1e-6})
    assert not found.ok
    assert "outputs: relative error 3.1e-06, allowed 3e-06" in found.problems[0]


def test_an_error_below_the_rounding_unit_is_no_error_even_when_eager_was_lucky():
    assert verdict({"loss": 2.0**-23}, {"loss": 0.0}).ok
    assert not verdict({"loss": 1e-3}, {"loss": 0.0}).ok


def test_a_sum_over_many_samples_may_be_added_in_another_order():
    """The gradient of a bias: adding 4096 rows one after the other reaches the limit, and eager is far below it."""
    rows = np.random.default_rng(0).standard_normal((4096, 64)).astype(np.float32)
    exact = rows.astype(np.float64).sum(0)
    in_order = relative_error(torch.from_numpy(np.cumsum(rows, 0, dtype=np.float32)[-1]), exact)
    in_a_tree = relative_error(torch.from_numpy(rows).sum(0), exact)
    assert in_order > correctness.SLACK * max(in_a_tree, correctness.FLOOR["fp32"])
    assert rounding_of_a_sum(4096) / 3 < in_order < 3 * rounding_of_a_sum(4096)
    found, eager = FirstSteps(errors={"gradient of b": in_order}), FirstSteps(errors={"gradient of b": in_a_tree})
    of = partial(judge, "fp32", "fp64", found, eager, [])
    assert of(samples=4096).ok and not of(samples=1).ok


@pytest.mark.parametrize("samples", [1, 256, 2048, 16384])
def test_a_dropped_row_is_wrong_however_many_there_are(samples):
    assert not verdict({"gradient of b": 1 / samples}, {"gradient of b": 0.0}, samples=samples).ok


def test_the_outputs_are_no_sum_over_samples():
    assert not verdict({"outputs": 1e-6}, {"outputs": 0.0}, samples=4096).ok


def test_nan_never_passes_though_eager_is_nan_too():
    assert not verdict({"outputs": None}, {"outputs": None}).ok


def test_losses_of_the_first_steps_are_part_of_the_verdict():
    found = verdict({"outputs": 0.0}, losses=(1.01,))
    assert not found.ok
    assert "losses of the first 1 steps" in found.problems[0]
    assert not verdict({"outputs": 0.0}, losses=(float("nan"),)).ok
    assert not verdict({"outputs": 0.0}, losses=()).ok


def test_a_backends_own_complaint_makes_it_wrong():
    found = verdict({"outputs": 0.0}, problems=["gelu did not run on its kernel."])
    assert not found.ok
    assert found.problems == ["gelu did not run on its kernel."]


def test_many_wrong_tensors_are_summed_up_worst_first():
    found = verdict({f"t{i}": 10.0**i for i in range(5)}, {f"t{i}": 0.0 for i in range(5)})
    assert found.problems[0].startswith("t4")
    assert found.problems[-1] == "2 further tensors are wrong."


def test_sparse_gradients_are_compared_by_their_values(tmp_path):
    indices, values = torch.tensor([[3, 1, 3]]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]])
    sparse = torch.sparse_coo_tensor(indices, values, (6, 2), check_invariants=True)
    correctness.write_reference(tmp_path, {"table": sparse.double()})
    assert correctness.errors_against(tmp_path, {"table": sparse})["table"] == 0.0
    assert correctness.errors_against(tmp_path, {"table": sparse.to_dense()})["table"] == 0.0
    other = torch.sparse_coo_tensor(indices, 2 * values, (6, 2), check_invariants=True)
    assert correctness.errors_against(tmp_path, {"table": other})["table"] == pytest.approx(1.0)


def stepped(dtype, wrong=1.0, n=20_000):
    """Parameters before AdamW's 10th step, what they should be (both fp64), and what `dtype` holds of a wrong step."""
    make = torch.Generator().manual_seed(3)
    before = (0.02 * torch.randn(n, generator=make)).to(dtype).double()
    change = 1e-4 * torch.rand(n, generator=make, dtype=torch.float64) - 5e-5
    exact = before + wrong * change
    return exact.float().to(dtype), before, before + change


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_a_right_update_rounding_leaves_no_error(dtype):
    assert update_error(*stepped(dtype)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_that_is_off_by_a_thousandth_errs_by_that(dtype):
    assert 2e-4 < update_error(*stepped(dtype, wrong=1.001)) < 1.1e-3
    assert 2e-4 < update_error(*stepped(dtype, wrong=0.999)) < 1.1e-3


def test_an_update_of_one_element_in_many_that_is_left_out_shows():
    held, before, expected = stepped(torch.float32)
    held[7] = before[7]
    assert update_error(held, before, expected) == pytest.approx(1.0, abs=0.7)


def test_an_update_in_chunks_errs_as_the_whole(monkeypatch):
    whole = update_error(*stepped(torch.bfloat16, wrong=1.001))
    monkeypatch.setattr(correctness, "_CHUNK", {"cpu": 1000})
    assert update_error(*stepped(torch.bfloat16, wrong=1.001)) == pytest.approx(whole, rel=1e-12)


def test_parameters_that_should_stay_err_by_their_own_size():
    frozen = torch.tensor([1.0, -1.0, 1.0])
    assert update_error(frozen, frozen.double(), frozen.double()) == 0.0
    assert update_error(1.01 * frozen, frozen.double(), frozen.double()) == pytest.approx(0.01, rel=0.01)
    nothing = torch.zeros(3, dtype=torch.float64)
    assert update_error(torch.tensor([0.0, 1.0, 0.0]), nothing, nothing) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [[1.0, float("nan")], [1.0, float("inf")], [1.0]])
def test_an_update_that_is_not_finite_or_misshapen_is_not_comparable(bad):
    assert update_error(torch.tensor(bad), torch.zeros(2).double(), torch.ones(2).double()) is None


def test_an_update_to_what_is_not_finite_is_not_comparable():
    wanted = torch.tensor([1.0, float("nan")], dtype=torch.float64)
    assert update_error(torch.ones(2), torch.zeros(2).double(), wanted) is None


def updated(errors, eager, dtype="bf16", updates_in=""):
    found = FirstSteps([1.0], updates=errors, updates_in=updates_in)
    return judge(dtype, "fp64", found, FirstSteps([1.0], updates=eager), [1.0])


def test_an_update_may_err_as_eagers_worst_does_in_the_same_precision():
    assert updated({"update of a": 0.02}, {"update of a": 0.0, "update of b": 0.01}).ok
    assert not updated({"update of a": 0.04}, {"update of a": 0.0, "update of b": 0.01}).ok
    assert not updated({"update of a": None}, {"update of a": 0.0}).ok


def test_an_optimizer_that_computes_in_fp32_is_not_excused_by_an_eager_in_bf16():
    assert updated({"update of a": 2e-5}, {"update of a": 0.01}, updates_in="fp32").ok
    found = updated({"update of a": 5e-4}, {"update of a": 0.01}, updates_in="fp32")
    assert found.problems == ["update of a: relative error 0.0005, allowed 3e-05."]
    assert not updated({"update of a": 5e-4}, {"update of a": 0.0}, dtype="tf32").ok


def test_a_backends_check_of_its_own_part_is_part_of_the_verdict():
    part = Check("adamw_step by itself: v", 1e-3, 1e-5, None, False)
    found = judge("fp32", "fp64", FirstSteps([1.0], parts=[part]), FirstSteps([1.0]), [1.0])
    assert not found.ok and found.checks[-1] is part
    assert found.problems == ["adamw_step by itself: v: relative error 0.001, allowed 1e-05."]


@pytest.mark.parametrize(("error", "ok"), [(0.18, True), (0.49, True), (0.51, False)])
def test_in_fp8_eager_itself_is_held_to_a_limit(error: float, ok: bool) -> None:
    """Its products are perfkit's: three times its own error allows anything."""
    found = FirstSteps(errors={"gradient of w": error})
    assert judge("fp8", "fp64", found, found, []).ok == ok
    (check,) = judge("fp8", "fp64", found, FirstSteps(errors={"gradient of w": 0.01}), []).checks
    assert check.allowed == pytest.approx(3 * 2.0**-4, rel=1e-3)
