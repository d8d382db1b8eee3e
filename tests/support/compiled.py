"""Inductor's programs are kept in the shared cache by their text, which contains the numbers of graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def fresh_graphs() -> Iterator[None]:
    """torch.compile without what earlier tests compiled, its graphs counted from 0: the same text in any order."""
    import torch._dynamo
    import torch._inductor.compile_fx

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._inductor.compile_fx, "_graph_counter", itertools.count())
        yield
    torch._dynamo.reset()
