"""Every implementation of every operation against its reference in fp64."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
import torch

from perfkit.errors import InputError, RunFailed, Unavailable
from perfkit.kernels import catalog, check, find, use_version
from perfkit.kernels.c.toolchain import ISA_FEATURES
from perfkit.kernels.checking import poisoned_run
from tests.support import forks
from tests.support.kernels.threads import same_bits_on_any_number_of_threads

IN_C = [(o.name, i.version) for f in catalog() for o in f.operations for i in o.implementations if i.language == "c"]
VERSIONS = (1, 2)
ops = torch.ops.perfkit


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "version"), IN_C)
def test_agrees_with_the_reference(name: str, version: int, dtype: str) -> None:
    for result in check(name, version, dtype):
        result.require()


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
def test_each_instruction_set_agrees(isa: str) -> None:
    """In a process of its own: an instruction set is chosen when a kernel is built and bound."""
    if not set(ISA_FEATURES[isa]) <= set(Path("/proc/cpuinfo").read_text().split()):
        pytest.skip(f"this processor has no {isa}")
    program = (
        "from perfkit.kernels import catalog, check\n"
        "for family in catalog():\n"
        "    for operation in family.operations:\n"
        "        for dtype in {d for i in operation.implementations for d in i.dtypes}:\n"
        "            [result.require() for result in check(operation, None, dtype, seed=5)]\n"
        "print('all right')"
    )
    environment = {**os.environ, "PERFKIT_KERNEL_ISA": isa}
    done = forks.run([sys.executable, "-c", program], env=environment)
    assert done.stdout.strip() == "all right", done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("channels", [1, 2, 15, 16, 17, 31, 65, 771])
def test_layernorm_over_odd_widths(version: int, channels: int) -> None:
    if channels == 1:
        x, one = torch.randn(3, 2, 1), torch.ones(1)
        with use_version(version):
            y, mean, rstd = ops.layernorm_forward(x, one, one * 0.25, 1e-5)
        assert torch.equal(y, torch.full_like(y, 0.25))
        assert torch.equal(mean, x[..., 0])
        assert torch.allclose(rstd, torch.full((3, 2), 1e-5**-0.5))
        return
    sizes = {"B": 3, "T": 7, "C": channels}
    for name in ("layernorm_forward", "layernorm_backward"):
        # Two channels have no direction left after mean and deviation: dx is rounding alone, unlike the other results.
        # If they are nearly equal, y is too: 1 of 100 draws misses the tolerance, so the draw is a fixed one.
        results = check(name, version, sizes=sizes, seed=channels)
        errors = [e for r in results for e in r.errors if not (channels == 2 and e.output == "dx")]
        assert all(e.ok for e in errors), results


@pytest.mark.parametrize("version", VERSIONS)
def test_layernorm_of_values_far_from_zero(version: int) -> None:
    x = torch.randn(4, 3, 100) + 1000
    one, zero = torch.ones(100), torch.zeros(100)
    (result,) = check("layernorm_forward", version, inputs=(x, one, zero, 1e-5))
    # A mean of 1000 leaves fp32 about 1e-4 of the deviation: what eager PyTorch reaches too.
    assert all(e.error < 1e-3 for e in result.errors), result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_of_extreme_values(version: int, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1e-40, -1e-40, 1e-30, 8.0, -8.0, 30.0, -30.0, 1e20, -1e20, 3e38, -3e38], dtype=dtype)
    expected = torch.nn.functional.gelu(x.double(), approximate="tanh")
    slope = torch.ops.aten.gelu_backward(torch.ones_like(x).double(), x.double(), approximate="tanh")
    with use_version(version):
        y, dx = ops.gelu_forward(x), ops.gelu_backward(torch.ones_like(x), x)
    assert torch.allclose(y.double(), expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=1e-6)
    finite = slope.isfinite() & dx.isfinite()
    assert finite[:9].all()
    assert torch.allclose(dx.double()[finite], slope[finite], rtol=1e-2, atol=2e-6)
    special = torch.tensor([math.nan, math.inf], dtype=dtype)
    with use_version(version):
        assert ops.gelu_forward(special)[0].isnan()
        assert ops.gelu_forward(special)[1] == math.inf
        assert ops.gelu_backward(torch.ones_like(special), special)[0].isnan()


def test_the_fast_gelu_gradient_is_finite_everywhere() -> None:
    x = torch.tensor([1e20, -1e20, 3e38, -3e38, math.inf, -math.inf])
    assert torch.allclose(ops.gelu_backward(torch.ones(6), x), torch.tensor([1.0, 0, 1, 0, 1, 0]), atol=1e-6)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("time", [1, 2, 15, 16, 17, 33, 64])
def test_causal_softmax_rows(version: int, time: int) -> None:
    """Rows sum to 1, the future is exactly 0 and is not looked at."""
    scores = torch.randn(2, 3, time, time) * 20
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    with use_version(version):
        att = ops.causal_softmax_forward(scores, 0.7)
        ignorant = ops.causal_softmax_forward(scores.masked_fill(future, math.nan), 0.7)
        datt = torch.randn_like(scores)
        gradient = ops.causal_softmax_backward(datt, att, 0.7)
        same_gradient = ops.causal_softmax_backward(datt.masked_fill(future, math.nan), att, 0.7)
    assert (att[..., future] == 0).all()
    assert torch.allclose(att.sum(-1), torch.ones(2, 3, time), atol=1e-6)
    assert torch.equal(att, ignorant)
    assert (gradient[..., future] == 0).all()
    assert torch.equal(gradient, same_gradient)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scale", [0.125, -2.0, 0.0, 100.0])
def test_causal_softmax_of_large_and_masked_scores(version: int, scale: float) -> None:
    scores = torch.randn(1, 2, 40, 40) * 50
    if scale > 0:
        scores[..., 5] = -math.inf  # a mask of the user's own, among the past
        scores[..., 5, 5] = 0.0
    (result,) = check("causal_softmax_forward", version, inputs=(scores, scale))
    # Rounding scale·s itself moves exp by its size in units of 2⁻²⁴; PyTorch's fp32 result moves as much.
    assert all(e.error < 2e-3 for e in result.errors), result


@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_without_a_finite_score_is_nan(version: int) -> None:
    scores = torch.full((1, 1, 3, 3), -math.inf)
    with use_version(version):
        att = ops.causal_softmax_forward(scores, 1.0)
    assert att.tril().isnan().sum() == 6
    assert (att[..., 0, 1:] == 0).all()


def random_targets(rows: int, vocabulary: int, ignore_index: int) -> torch.Tensor:
    targets = torch.randint(0, vocabulary, (rows,))
    targets[::2] = ignore_index
    return targets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ignore_index", [-1, -100, 3])
def test_cross_entropy_leaves_out_ignored_rows(version: int, ignore_index: int) -> None:
    logits, targets = torch.randn(9, 101) * 3, random_targets(9, 101, ignore_index)
    dloss = torch.tensor(-0.75)
    check("cross_entropy_forward", version, inputs=(logits, targets, 101, ignore_index))[0].require()
    logsumexp = logits.double().logsumexp(-1).float()
    arguments = (dloss, logits, targets, logsumexp, 101, ignore_index)
    check("cross_entropy_backward", version, inputs=arguments)[0].require()
    (gradient,) = poisoned_run(find("cross_entropy_backward"), version, arguments)
    assert (gradient[targets == ignore_index] == 0).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_cross_entropy_with_all_rows_ignored(version: int) -> None:
    """As in PyTorch: the loss is 0 / 0, the gradient 0."""
    logits, targets = torch.randn(4, 33), torch.full((4,), -1)
    with use_version(version):
        loss, logsumexp = ops.cross_entropy_forward(logits, targets, 33, -1)
        gradient = ops.cross_entropy_backward(torch.ones(()), logits, targets, logsumexp, 33, -1)
    assert loss.isnan()
    assert torch.allclose(logsumexp, logits.logsumexp(-1))
    assert (gradient == 0).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_cross_entropy_of_large_and_padded_logits(version: int) -> None:
    """Logits in the thousands, blocks of -inf (a padded vocabulary) before and after the finite ones."""
    logits = torch.randn(3, 9001) * 500 + 2000
    logits[:, :4500] = -math.inf
    logits[1, 6000:] = -math.inf
    targets = torch.tensor([5000, 4501, 8999])
    (result,) = check("cross_entropy_forward", version, inputs=(logits, targets, 9001, -1))
    assert all(e.error < 1e-6 for e in result.errors), result
    logsumexp = logits.double().logsumexp(-1).float()
    arguments = (torch.ones(()), logits, targets, logsumexp, 9001, -1)
    (result,) = check("cross_entropy_backward", version, inputs=arguments)
    assert all(e.error < 1e-3 for e in result.errors), result


@pytest.mark.parametrize("version", VERSIONS)
def test_cross_entropy_shows_nan(version: int) -> None:
    logits, targets = torch.randn(2, 5000), torch.tensor([1, 2])
    logits[0, 4321] = math.nan
    with use_version(version):
        loss, logsumexp = ops.cross_entropy_forward(logits, targets, 5000, -1)
    assert loss.isnan()
    assert logsumexp.isnan().tolist() == [True, False]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("bad", [-2, 101, 2**40])
def test_a_target_outside_the_vocabulary_is_refused(version: int, bad: int) -> None:
    logits, targets = torch.randn(3, 101), torch.tensor([0, bad, 1])
    with use_version(version), pytest.raises(RunFailed, match="target is neither an index below V nor ignore_index"):
        ops.cross_entropy_forward(logits, targets, 101, -1)
    with use_version(version), pytest.raises(RunFailed, match="target"):
        ops.cross_entropy_backward(torch.ones(()), logits, targets, torch.zeros(3), 101, -1)


def test_sums_over_rows_have_the_same_bits_on_any_number_of_threads() -> None:
    x, dy, weight = torch.randn(5, 200, 96), torch.randn(5, 200, 96), torch.randn(96)
    _, mean, rstd = ops.layernorm_forward(x, weight, weight, 1e-5)
    logits, targets = torch.randn(300, 1000), random_targets(300, 1000, -1)
    same_bits_on_any_number_of_threads(
        lambda: [
            *ops.layernorm_backward(dy, x, weight, mean, rstd),
            *ops.cross_entropy_forward(logits, targets, 1000, -1),
        ]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_tensors_without_elements(version: int) -> None:
    nothing = torch.empty(0, 5, 12)
    weight = torch.ones(12)
    with use_version(version):
        q, _, _ = ops.split_heads_forward(nothing, 2)
        assert q.shape == (0, 2, 5, 2)
        assert ops.split_heads_backward(q, q, q).shape == (0, 5, 12)
        assert ops.merge_heads_forward(torch.empty(2, 3, 0, 4)).shape == (2, 0, 12)
        assert ops.merge_heads_backward(nothing, 3).shape == (0, 3, 5, 4)
        assert ops.causal_softmax_forward(torch.empty(1, 2, 0, 0), 1.0).shape == (1, 2, 0, 0)
        assert ops.gelu_forward(torch.empty(3, 0)).shape == (3, 0)
        y, mean, rstd = ops.layernorm_forward(nothing, weight, weight, 1e-5)
        assert y.shape == (0, 5, 12)
        assert mean.shape == rstd.shape == (0, 5)
        dx, dweight, dbias = ops.layernorm_backward(nothing, nothing, weight, mean, rstd)
        assert dx.shape == (0, 5, 12)
        assert torch.equal(dweight, torch.zeros(12))
        assert torch.equal(dbias, torch.zeros(12))
        loss, logsumexp = ops.cross_entropy_forward(torch.empty(0, 7), torch.empty(0, dtype=torch.int64), 7, -1)
        assert loss.isnan()
        assert logsumexp.shape == (0,)


def test_inputs_need_not_be_contiguous() -> None:
    x = torch.randn(6, 40).t()
    weight = torch.randn(12)[::2]
    assert not x.is_contiguous()
    assert torch.allclose(ops.gelu_forward(x), torch.nn.functional.gelu(x, approximate="tanh"), atol=1e-6)
    y, _, _ = ops.layernorm_forward(x, weight, weight, 1e-5)
    assert torch.allclose(y, torch.nn.functional.layer_norm(x, (6,), weight, weight), atol=1e-5)
    expanded = torch.ones(()).expand(2, 5, 12)
    assert torch.equal(ops.merge_heads_backward(expanded, 3), torch.ones(2, 3, 5, 4))


def test_shapes_types_and_heads_that_do_not_fit_are_refused() -> None:
    x = torch.randn(2, 5, 12)
    with pytest.raises(InputError, match=r"weight has shape \(7,\) where \(C\) is needed with C = 12"):
        ops.layernorm_forward(x, torch.ones(7), torch.ones(12), 1e-5)
    with pytest.raises(InputError, match="4 channels cannot be split into 3 heads"):
        ops.split_heads_forward(x, 3)
    with pytest.raises(InputError, match="dk has shape"):
        ops.split_heads_backward(torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 6), torch.ones(2, 3, 4, 5))
    with pytest.raises(InputError, match="targets is int32 on cpu where int64 on cpu is needed"):
        ops.cross_entropy_forward(torch.randn(2, 3), torch.tensor([0, 1], dtype=torch.int32), 3, -1)
    with pytest.raises(InputError, match="There are 3 columns of logits for 4 words"):
        ops.cross_entropy_forward(torch.randn(2, 3), torch.tensor([0, 1]), 4, -1)
    with pytest.raises(InputError, match="bias is bf16 on cpu where fp32"):
        ops.layernorm_forward(x, torch.ones(12), torch.ones(12).bfloat16(), 1e-5)
    with pytest.raises(Unavailable, match="perfkit::gelu_forward has no version for fp64 on cpu"):
        ops.gelu_forward(x.double())
    with use_version(7), pytest.raises(Unavailable, match="no version 7 for fp32"):
        ops.gelu_forward(x)


def test_results_large_enough_for_huge_pages() -> None:
    x = torch.randn(5_000_003)
    assert torch.allclose(ops.gelu_forward(x), torch.nn.functional.gelu(x, approximate="tanh"), atol=1e-6)
