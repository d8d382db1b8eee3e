"""Layers in fp8 under torch.compile: the check runs them compiled, finds a wrong scale, and counts for nothing."""

from __future__ import annotations

import pytest
import torch

from perfkit import backends
from perfkit.fp8 import convert, linear
from perfkit.workloads import find, resolve_settings


@pytest.mark.skipif(backends.get("compile").unavailable() is not None, reason="torch.compile needs a C++ compiler")
def test_compiled_layers_are_checked_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = find("gpt2")
    settings = resolve_settings(workload, preset="tiny", dtype="fp8", dimensions={"layers": 1})
    model = workload.build(settings).bfloat16()
    model.transformer.h[0].attn = model.transformer.h[0].mlp.c_fc = torch.nn.Identity()  # type: ignore[union-attr]
    convert(model, workload.layers)
    program = backends.get("compile").prepare(workload, model, settings)
    checks = program.checks()
    assert len(checks) == 2 * 4 and all(check.ok for check in checks)
    assert program.compiler() == {"graphs": 0, "graph_breaks": {}, "break_lines": [], "recompilations": []}
    right = linear.cast
    monkeypatch.setattr(linear, "cast", lambda x, scale, dtype: right(x, scale * 1.02, dtype))
    torch._dynamo.reset()
    wrong = [check.name.split(" of ")[1] for check in program.checks() if not check.ok]
    assert {"y", "dx", "dW"} <= set(wrong)
