"""The gate: what counts as right, and what never passes."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from perfkit import correctness
from perfkit.correctness import errors_against, judge, relative_error, rounding_of_a_sum, write_reference


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
    monkeypatch.setattr(correctness, "_CHUNK", 10)
    assert relative_error(a, r) == pytest.approx(whole, rel=1e-12)


def test_reference_round_trip_keeps_fp64_and_names_what_is_missing(tmp_path):
    value = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    write_reference(tmp_path, {"outputs": value, "gradient of w": value})
    errors = errors_against(tmp_path, {"outputs": value})
    assert errors == {"outputs": 0.0, "gradient of w": None}
    assert set(json.loads((tmp_path / "reference.json").read_text())) == {"outputs", "gradient of w"}


def verdict(errors, eager=None, losses=(1.0,), dtype="fp32", problems=(), samples=1):
    eager = errors if eager is None else eager
    return judge(dtype, "fp64", errors, eager, losses, [1.0], [1.0], problems, samples)


def test_three_times_eagers_error_passes_and_more_does_not():
    assert verdict({"outputs": 2.9e-6}, {"outputs": 1e-6}).ok
    found = verdict({"outputs": 3.1e-6}, {"outputs": 1e-6})
    assert not found.ok
    assert "outputs: relative error 3.1e-06, allowed 3e-06" in found.problems[0]


def test_an_error_below_the_rounding_unit_is_no_error_even_when_eager_was_lucky():
    assert verdict({"loss": 2.0**-23}, {"loss": 0.0}).ok
    assert not verdict({"loss": 1e-3}, {"loss": 0.0}).ok


def test_a_sum_over_many_samples_may_be_added_in_another_order():
    """The gradient of a bias: adding 4096 rows one after the other errs by what is allowed, and eager by far less."""
    rows = np.random.default_rng(0).standard_normal((4096, 64)).astype(np.float32)
    exact = rows.astype(np.float64).sum(0)
    in_order = relative_error(torch.from_numpy(np.cumsum(rows, 0, dtype=np.float32)[-1]), exact)
    in_a_tree = relative_error(torch.from_numpy(rows).sum(0), exact)
    assert in_order > correctness.SLACK * max(in_a_tree, correctness.FLOOR["fp32"])
    assert rounding_of_a_sum(4096) / 3 < in_order < 3 * rounding_of_a_sum(4096)
    found = partial(judge, "fp32", "fp64", {"gradient of b": in_order}, {"gradient of b": in_a_tree}, [], [], [])
    assert found(samples=4096).ok and not found(samples=1).ok


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
