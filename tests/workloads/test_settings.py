"""Options become settings: defaults from the preset, and one sentence for each that cannot be."""

from __future__ import annotations

import pytest
import torch

from perfkit.errors import Unavailable, UsageError
from perfkit.workloads import resolve_settings


def says(error, kind=UsageError):
    return pytest.raises(kind, match=error)


def test_defaults_come_from_the_preset(gpt2):
    s = resolve_settings(gpt2, batch_size=None, preset=None, variant=None)
    assert (s.workload, s.preset, s.variant, s.batch_size, s.sequence_length) == ("gpt2", "gpt2", "explicit", 4, 64)
    assert (s.device, s.dtype, s.weights, s.data, s.training) == ("cpu", "fp32", "random", "synthetic", True)


def test_options_override_the_preset(gpt2):
    s = resolve_settings(gpt2, preset="xl", batch_size=1, sequence_length=1024, executors=["sdpa"], training=False)
    assert (s.batch_size, s.sequence_length, s.executors, s.training) == (1, 1024, ("sdpa",), False)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"preset": "larg"}, r"no preset of gpt2 called 'larg'\. Did you mean large\? Known: gpt2, tiny, medium"),
        ({"variant": "spda"}, r"no variant of gpt2 called 'spda'\. Did you mean sdpa\? Known: explicit, sdpa"),
        ({"dtype": "fp23"}, r"--dtype is one of fp32, tf32, bf16, fp8; not 'fp23'\. Did you mean fp32\?"),
        ({"dtype": "int8"}, r"--dtype is one of .*; not 'int8'\.$"),
        ({"compile_mode": "max"}, "--compile-mode is one of default, reduce-overhead, .*; not 'max'"),
        ({"optimizer": "fuse"}, r"--optimizer is one of default, foreach, fused; not 'fuse'\. Did you mean fused\?"),
        ({"allocator": "kept"}, r"--allocator is one of default, keep; not 'kept'\. Did you mean keep\?"),
        ({"cuda_graphs": "some"}, r"--cuda-graphs is one of default, all, none; not 'some'\."),
        ({"allocator": "keep", "device": "cuda"}, "--allocator is of CPU tensors"),
        ({"profiler": "ncuu"}, "--profiler is one of torch, ncu, nsys, none; not 'ncuu'"),
        ({"device": "cud"}, r"--device is one of cpu, cuda, cuda:1; not 'cud'\. Did you mean cuda\?"),
        ({"device": "cpu:1"}, "--device is one of .*; not 'cpu:1'"),
        ({"device": "cuda:x"}, "--device is one of .*; not 'cuda:x'"),
        ({"dtype": "tf32"}, r"tf32 needs a CUDA GPU of compute capability 8\.0 or newer; the device is the CPU"),
        ({"batch_size": 0}, "--batch-size must be at least 1; it is 0"),
        ({"steps": 0}, "--steps must be at least 1"),
        ({"warmup": -1}, "--warmup must be at least 0"),
        ({"seed": -1}, "--seed must be at least 0"),
        ({"grad_accumulation": 0}, "--grad-accumulation must be at least 1"),
        ({"sequence_length": 0}, "--sequence-length must be at least 1"),
        ({"sequence_length": 1025}, "--sequence-length 1025 is longer than the context of gpt2, which is 1024"),
        ({"training": False, "grad_accumulation": 2}, "--grad-accumulation belongs to training"),
        ({"training": False, "recompute": True}, "--recompute belongs to training"),
        ({"training": False, "optimizer": "fused"}, "--optimizer belongs to training"),
        ({"dimensions": {"layer": "4"}}, "no dimension of gpt2 called 'layer'. Did you mean layers"),
        ({"dimensions": {"layers": "four"}}, "--dim layers must be a whole number; it is 'four'"),
        ({"dimensions": {"layers": "0"}}, "--dim layers must be at least 1"),
        ({"dimensions": {"context": "32"}, "sequence_length": 64}, "longer than the context of gpt2, which is 32"),
    ],
    ids=str,
)
def test_what_cannot_be(gpt2, options, error):
    with says(error):
        resolve_settings(gpt2, **options)


def test_cuda_without_a_gpu(gpt2, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with says("--device cuda: this PyTorch is built without CUDA", Unavailable):
        resolve_settings(gpt2, device="cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with says("--device cuda: no usable CUDA GPU was found", Unavailable):
        resolve_settings(gpt2, device="cuda")


def test_what_a_gpu_lacks(gpt2, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
    with says("--device cuda:2: the last CUDA GPU of this machine is cuda:1", Unavailable):
        resolve_settings(gpt2, device="cuda:2")
    with says(r"tf32 needs compute capability 8\.0 or newer; this GPU has 7\.5", Unavailable):
        resolve_settings(gpt2, device="cuda", dtype="tf32")
    assert resolve_settings(gpt2, device="cuda:1", dtype="fp32").device == "cuda:1"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    assert resolve_settings(gpt2, device="cuda", dtype="tf32").dtype == "tf32"


def test_dimensions_given_otherwise(gpt2):
    settings = resolve_settings(gpt2, preset="tiny", dimensions={"layers": "3", "channels": "32"})
    assert settings.dimensions == {"layers": 3, "channels": 32}
    model = gpt2.build(settings)
    assert len(model.transformer.h) == 3
    assert model.lm_head.weight.shape == (512, 32)
    assert sum(gpt2.model_flop(settings).values()) != sum(
        gpt2.model_flop(resolve_settings(gpt2, preset="tiny")).values()
    )
    with says("32 channels do not divide into 5 heads"):
        gpt2.build(resolve_settings(gpt2, preset="tiny", dimensions={"heads": 5, "channels": 32}))
