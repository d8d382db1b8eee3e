"""References that follow a formula, against what they are the formula of."""

import pytest
import torch

from perfkit.kernels.families import find


@pytest.mark.parametrize(("heads", "shared"), [(3, 3), (4, 2), (4, 1)])
def test_the_gradients_of_attention_are_those_of_autograd(heads: int, shared: int) -> None:
    """With exact y and lse, also for heads of queries that share keys."""
    forward, backward = find("flash_attention_forward", ()), find("flash_attention_backward", ())
    make = torch.Generator().manual_seed(1)
    q, dy = (torch.randn(2, heads, 9, 8, dtype=torch.float64, generator=make) for _ in range(2))
    k, v = (torch.randn(2, shared, 9, 8, dtype=torch.float64, generator=make) for _ in range(2))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    y, lse = forward.reference(*leaves, 0.3)
    expected = torch.autograd.grad(y, leaves, dy)
    with torch.no_grad():
        got = backward.reference(dy, q, k, v, y, lse, 0.3)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_what_y_lost_when_it_was_rounded_is_no_error_of_the_gradients() -> None:
    """A right kernel was called wrong in one of fifteen draws: the reference took the exact y, not the rounded one."""
    forward, backward = find("flash_attention_forward", ()), find("flash_attention_backward", ())
    make = torch.Generator().manual_seed(2)
    dy, q, k, v = (torch.randn(1, 1, 4, 64, generator=make).bfloat16().double() for _ in range(4))
    exact, lse = forward.reference(q, k, v, 0.125)
    given = exact.bfloat16().double()
    dq, _, _ = backward.reference(dy, q, k, v, given, lse, 0.125)
    p = (0.125 * q @ k.mT - lse[..., None]).exp().tril()
    by_hand = 0.125 * (p * (dy @ v.mT - (dy * given).sum(-1, keepdim=True))) @ k
    torch.testing.assert_close(dq, by_hand, rtol=1e-10, atol=1e-12)
    assert (dq - backward.reference(dy, q, k, v, exact, lse, 0.125)[0]).abs().max() > 1e-4
