"""Generating tokens with a cache: the same as without it, checked so that a cache one position off is found."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfkit.backends.catalog import CatalogBackend
from perfkit.backends.generation import TOKENS, Generation, calls, token_check
from perfkit.backends.llmc import Llmc
from perfkit.cli.parts.options import alone, prompt_length, whole_numbers
from perfkit.errors import UsageError
from perfkit.workloads import find, resolve_settings
from perfkit.workloads.language import generate
from tests.support.workloads.checking import verdict

PROMPT, COUNT = 12, 6

# A backend whose cache is one position off: what a token is comes to stand where the one before it stood.
OFF = """
from perfkit.backends import Backend
from perfkit.backends.eager import Eager

class Off(Backend):
    name = "off"
    summary = "eager with a cache that is one position off"

    def prepare(self, workload, model, settings):
        program = Eager().prepare(workload, model, settings)
        prefill, decode = program.generating
        program.generating = prefill, lambda token, cache, position: decode(token, cache, position - 1)
        return program
"""


def settings_of(name, **options):
    given = {"preset": "tiny", "batch_size": 2, "sequence_length": PROMPT, "generate": COUNT, "training": False}
    return resolve_settings(find(name), **{**given, **options})


def made(s):
    """Model in fp64, generation and batch of the settings."""
    workload = find(s.workload)
    model = workload.build(s).double()
    return model, Generation(workload, model, s), workload.batch(s, 0)


@pytest.mark.parametrize("variant", ["explicit", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_cache_changes_nothing(name, variant):
    s = settings_of(name, variant=variant)
    model, generation, batch = made(s)
    tokens = generation.run(calls(model), batch)
    expected = generate(model, batch[0], COUNT, 128)
    assert torch.equal(tokens, expected[:, PROMPT:])
    generation.follow = tokens
    logits = generation.run(calls(model), batch)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(expected[:, :-1])[0][:, PROMPT - 1 :], rtol=1e-10, atol=1e-12)


def test_when_each_token_came():
    model, generation, batch = made(settings_of("llama"))
    for _ in range(2):
        generation.run(calls(model), batch)
    times = generation.take()
    assert [len(step) for step in times] == [COUNT, COUNT]
    assert all(ns > 0 for step in times for ns in step)
    assert generation.take() == []


def test_the_reference_does_not_believe_its_cache():
    s = settings_of("llama")
    model, generation, batch = made(s)
    expected = generate(model, batch[0], COUNT, 128)[:, PROMPT:]
    wrong = generation.positions
    generation.positions = [position - 1 for position in wrong]
    assert not torch.equal(generation.run(calls(model), batch), expected)
    tokens, logits = generation.without_cache(model, batch)
    assert torch.equal(tokens, expected)
    assert torch.equal(logits.argmax(-1), expected)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_backend_that_is_right_and_a_cache_one_position_off(name, tmp_path):
    (tmp_path / "off.py").write_text(OFF)
    s = settings_of(name, profiler="none")
    right, first = verdict(s, tmp_path)
    assert right.ok
    assert [check.name for check in right.checks] == ["outputs", TOKENS]
    assert first["first_step_ns"] > 0
    wrong, _ = verdict(s, tmp_path, str(tmp_path / "off.py"))
    assert {check.name: check.ok for check in wrong.checks}["outputs"] is False


@pytest.mark.parametrize(("name", "operator"), [("llama", "gemv"), ("gpt2", "gemv_bias")])
def test_kernels_decode_by_products_of_one_row(name, operator):
    """Not the prompt's pass, nor a program that trains; and PyTorch's function is what it was afterwards."""
    s = settings_of(name, batch_size=1)
    workload, plain = find(name), torch.nn.functional.linear
    program = CatalogBackend().prepare(workload, workload.build(s), s)
    program.generation = Generation(workload, program.model, s)
    with torch.profiler.profile(record_shapes=True) as profile:
        tokens = program.forward(workload.batch(s, 0))[0]
    called = {(e.name, tuple(e.input_shapes[0])) for e in profile.events() if e.input_shapes}
    rows = {shape[1] for name, shape in called if name == f"perfkit::{operator}"}
    assert rows == {1}
    assert any(name == "aten::linear" and shape[1] == PROMPT for name, shape in called)
    assert torch.nn.functional.linear is plain
    model, generation, batch = made(s)
    assert torch.equal(tokens, generation.run(calls(model), batch))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_pass_by_hand_makes_the_same_tokens(batch):
    """And the same logits: heads share keys in tiny, and the head has a weight of its own."""
    s = settings_of("llama", batch_size=batch)
    workload = find("llama")
    program = Llmc().prepare(workload, workload.build(s), s)
    program.generation = Generation(workload, program.model, s)
    with torch.profiler.profile() as profile:
        tokens = program.forward(workload.batch(s, 0))[0]
    assert {f"perfkit::decode_{name}" for name in ("qkv", "attention", "sum", "swiglu", "head", "token")} <= {
        event.name for event in profile.events()
    }
    model, generation, given = made(s)
    assert torch.equal(tokens, generation.run(calls(model), given))
    program.generation.follow = generation.follow = tokens
    logits = program.forward(workload.batch(s, 0))[0].double()
    torch.testing.assert_close(logits, generation.run(calls(model), given), rtol=1e-4, atol=1e-5)


def test_who_has_no_pass_by_hand():
    assert Llmc().unavailable(settings_of("gpt2")) == "The workload gpt2 brings no token's pass written by hand."
    assert Llmc().unavailable(settings_of("llama")) is None


def test_tokens_are_followed_to_the_first_that_differs():
    logits = torch.tensor([[[3.0, 1.0, 0.0], [0.0, 2.0, 1.999]], [[5.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    expected = torch.tensor([[0, 1], [0, 0]])
    assert token_check(expected, logits, expected, logits).ok
    near = logits + 0.001 * torch.tensor([0.0, -1.0, 1.0])
    assert token_check(torch.tensor([[0, 2], [0, 0]]), near, expected, logits).ok  # as close as the error
    assert not token_check(torch.tensor([[0, 2], [0, 0]]), logits, expected, logits).ok  # exact logits choose 1
    later = token_check(torch.tensor([[0, 1], [1, 2]]), logits, expected, logits)
    assert later.error == 0.5  # one of two sequences, however many of its tokens differ


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_flop_of_both_phases_agree_with_the_flop_counter(name):
    s = settings_of(name, sequence_length=100, generate=2)
    workload = find(name)
    model, generation, batch = made(s)
    with FlopCounterMode(display=False) as counter:
        generation.run(calls(model), batch)
    assert sum(workload.model_flop(s).values()) == pytest.approx(counter.get_total_flops(), rel=0.01)
    phases = workload.phases(model, s)
    assert sum(phase.runs * phase.flop for phase in phases) == pytest.approx(sum(workload.model_flop(s).values()))


def test_bytes_of_weights_and_cache():
    """The embedding of tiny's 164 k parameters is not read whole; a position keeps 2 · 2 layers · 2 heads · 16."""
    s = settings_of("llama")
    workload = find("llama")
    model = workload.build(s)
    prefill, decode = workload.phases(model, s)
    parameters = sum(p.numel() for p in model.parameters())
    assert prefill.weight_bytes == decode.weight_bytes == 4 * (parameters - 512 * 64)
    assert prefill.cache_bytes == 4 * 2 * 2 * 2 * 2 * 16 * PROMPT
    assert decode.cache_bytes == pytest.approx(4 * 2 * 2 * 2 * 2 * 16 * (PROMPT + (1 + 2 + 3 + 4 + 5) / 5))
    assert (prefill.tokens, decode.tokens, decode.runs) == (2 * PROMPT, 2, COUNT - 1)
    assert workload.phases(model.double(), s) == [prefill, decode]  # the run's precision counts, not the reference's
    half = workload.phases(model, msgspec.structs.replace(s, dtype="bf16"))[1]
    assert (2 * half.weight_bytes, 2 * half.cache_bytes) == (decode.weight_bytes, decode.cache_bytes)
    tied = settings_of("llama", dimensions={"head": "tied"})
    model = workload.build(tied)
    assert workload.phases(model, tied)[1].weight_bytes == 4 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("llama", {"training": True}, "--generate is inference"),
        ("llama", {"recompute": True}, "--recompute belongs to training. Leave it out, or leave --generate out"),
        ("llama", {"generate": 128}, "--generate 128 need a cache of 140 positions; the context of tiny is 128"),
        ("mlp", {"preset": "deep", "sequence_length": None}, "mlp does not take --generate"),
    ],
)
def test_what_does_not_go_together(name, options, error):
    with pytest.raises(UsageError) as caught:
        settings_of(name, **options)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("512", 0, None), "--prompt is for a step that generates tokens"),
        (("512", 8, 64), "--prompt and --sequence-length are the same here"),
        (("notes.txt", 8, None), "--prompt notes.txt is not a number of tokens"),
    ],
)
def test_prompts_that_are_none(given, error):
    with pytest.raises(UsageError, match=error):
        prompt_length(*given)


def test_a_prompt_of_so_many_tokens():
    assert prompt_length("512", 8, None) == 512
    assert prompt_length("", 0, 64) == 64


def test_several_batch_sizes():
    assert whole_numbers("--batch-size", "1,8, 32,8") == [1, 8, 32]
    assert whole_numbers("--batch-size", "") == []
    for wrong in ("0", "two", "1,-2"):
        with pytest.raises(UsageError, match="--batch-size must be a whole number of at least 1"):
            whole_numbers("--batch-size", wrong)
    alone({"on": "", "annotate": False})
    with pytest.raises(UsageError, match="--annotate does not go with several batch sizes"):
        alone({"on": "", "annotate": True})
