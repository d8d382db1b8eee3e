"""Records of Inductor's Triton kernels. Their code is generated for the CPU here, where nothing can run it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from perfkit.backends.compile import _declared  # noqa: E402
from perfkit.inductor.recording import Recording, recording  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.slow]

ROWS, WIDTH = 64, 96


def recorded(model, *inputs, monkeypatch) -> Recording:
    """Return the record of generating Triton code for `model`; compiling it then fails for want of a driver."""
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
    assert name.removeprefix("triton_")[3:].startswith("_fused_embedding_sum")  # per: at once; red: in a loop
    declared = _declared(kernel)
    assert declared.bytes_read == 4 * ROWS * WIDTH + 8 * ROWS
    assert declared.bytes_written == 4 * ROWS
    assert declared.flop == {"vector_fp32": ROWS * WIDTH}


def test_the_calls_of_triton_kernels_are_told_with_their_lines(monkeypatch):
    """Outside of any module the work is the model's own; each launch is in its line of the code."""
    found = recorded(
        lambda x, w: torch.tanh(x * w), torch.ones(ROWS, WIDTH), torch.ones(WIDTH), monkeypatch=monkeypatch
    )
    ((site,),) = found.sites.graphs
    assert {site.name} == set(found.known())
    assert f"{site.name}.run(" in found.code[0].splitlines()[site.line - 1]
    assert {(m.module, m.operator) for m in site.members} == {("(root)", "mul"), ("(root)", "tanh")}


@pytest.mark.parametrize(("width", "access"), [(5000, 2), (5001, 10)])
def test_each_loop_of_a_reduction_has_its_bytes_and_instructions(width, access, monkeypatch):
    """Maximum and sum of exponentials in one loop, exp(x − max) in another; rows of 5001 begin anywhere."""

    def softmax(x):
        most, _ = torch._inductor.inductor_prims.prepare_softmax_online(x, 1)
        return torch.exp(x - most)

    found = recorded(softmax, torch.ones(ROWS, width), monkeypatch=monkeypatch)
    assert found.warnings == []
    ((name, kernel),) = found.known().items()
    assert name.startswith("triton_red_fused")
    size = ROWS * width
    first, *_, last = kernel.loops
    assert first == (pytest.approx(4 * size, rel=0.01), pytest.approx((29 + access) * size, rel=0.01))
    assert last == (pytest.approx(8 * size, rel=0.01), pytest.approx((1 + 9 + 2 * access) * size, rel=0.01))
    assert _declared(kernel).loops == kernel.loops
    assert _declared(kernel).flop == {"vector_fp32": pytest.approx(6 * size, rel=0.01)}


def test_a_kernel_that_is_called_without_its_name_is_told(monkeypatch):
    """So Inductor calls what reduces rows and columns at once."""
    from torch._inductor.codegen.triton import TritonScheduling

    from perfkit.inductor import recording as module

    wrapped = module._recording_comment

    def unnamed(into, original):
        inner = wrapped(into, original)
        return lambda self, node_schedule, kernel_name=None: inner(self, node_schedule)

    monkeypatch.setattr(module, "_recording_comment", unnamed)
    assert "codegen_comment" in vars(TritonScheduling)
    found = recorded(lambda x: torch.tanh(x * 2), torch.ones(ROWS, WIDTH), monkeypatch=monkeypatch)
    ((site,),) = found.sites.graphs
    assert {site.name} == set(found.known())
    assert {m.operator for m in site.members} == {"mul", "tanh"}


@pytest.mark.parametrize(("then", "instructions"), [(True, 4 + 2 + 2 + 1 + 9 + 2 * 2), (False, 2 + 4 + 2 + 1 + 9)])
def test_a_block_that_holds_its_rows_takes_exponentials_once(then, instructions, monkeypatch):
    """Maximum, then exp(x − max) for the sum and for what follows: an online softmax's 29 are for rows read in pieces.
    The softmax of explicit attention on an H200 was predicted to take 1.7 times what it took."""

    def softmax(x):
        most, total = torch._inductor.inductor_prims.prepare_softmax_online(x, 1)
        return torch.exp(x - most) if then else (most, total)

    found = recorded(softmax, torch.ones(4096, 1024), monkeypatch=monkeypatch)
    ((name, kernel),) = found.known().items()
    assert name.startswith("triton_per_fused") and len(kernel.loops) == 1
    assert kernel.loops[0][1] == pytest.approx(instructions * 4096 * 1024, rel=0.01)
