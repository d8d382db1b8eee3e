"""What is recorded of Inductor's Triton kernels. Their code is generated for the CPU here, where nothing can run it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from perfkit.backends.compile import _declared  # noqa: E402
from perfkit.backends.inductor.recording import Recording, recording  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.slow]

ROWS, WIDTH = 64, 96


def recorded(model, *inputs, monkeypatch) -> Recording:
    """What is recorded while Triton code is generated for `model`; compiling it then fails for want of a driver."""
    import torch._inductor.config as config
    from torch._inductor.exc import InductorError

    monkeypatch.setattr("torch.utils._triton.triton_hash_with_backend", lambda: "none")  # it asks the driver
    found = Recording()
    uncached = {"cpu_backend": "triton", "fx_graph_cache": False, "fx_graph_remote_cache": False}
    with (
        config.patch(uncached),
        recording(found),
        torch.no_grad(),
        pytest.raises(InductorError, match=r"backends|driver"),
    ):
        torch.compile(model, dynamic=False)(*inputs)
    return found


def test_a_pointwise_kernel_has_its_work_by_hand(monkeypatch):
    found = recorded(
        lambda x, w: torch.tanh(x * 2 + w), torch.ones(ROWS, WIDTH), torch.ones(WIDTH), monkeypatch=monkeypatch
    )
    assert found.warnings == []
    ((name, kernel),) = found.known().items()
    assert name == "triton_poi_fused_add_mul_tanh_0"
    declared = _declared(kernel)
    assert declared.flop == {"vector_fp32": 3 * ROWS * WIDTH}
    assert declared.bytes_read == 4 * (ROWS * WIDTH + WIDTH)
    assert declared.bytes_written == 4 * ROWS * WIDTH


def test_a_gather_reads_rows_and_a_reduction_counts(monkeypatch):
    table, index = torch.ones(1000, WIDTH), torch.arange(ROWS)
    found = recorded(lambda t, i: torch.nn.functional.embedding(i, t).sum(-1), table, index, monkeypatch=monkeypatch)
    ((name, kernel),) = found.known().items()
    assert name.startswith("triton_per_fused_embedding_sum")
    declared = _declared(kernel)
    assert declared.bytes_read == 4 * ROWS * WIDTH + 8 * ROWS
    assert declared.bytes_written == 4 * ROWS
    assert declared.flop == {"vector_fp32": ROWS * WIDTH}


def test_the_calls_of_triton_kernels_are_told_with_their_lines(monkeypatch):
    """Outside of any module the work is the model's own; each launch stands in its line of the code."""
    found = recorded(
        lambda x, w: torch.tanh(x * w), torch.ones(ROWS, WIDTH), torch.ones(WIDTH), monkeypatch=monkeypatch
    )
    ((site,),) = found.sites.graphs
    assert {site.name} == set(found.known())
    assert f"{site.name}.run(" in found.code[0].splitlines()[site.line - 1]
    assert {(m.module, m.operator) for m in site.members} == {("(root)", "mul"), ("(root)", "tanh")}
