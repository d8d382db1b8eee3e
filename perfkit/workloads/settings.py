"""From options as a person gives them to `Settings`: defaults from the preset, and every check before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.errors import Unavailable, UsageError
from perfkit.hardware.access import no_gpu
from perfkit.settings import Settings, fields
from perfkit.workloads import loader, parallel
from perfkit.workloads.choices import not_one_of, unknown
from perfkit.workloads.interface import Workload

FP8_MULTIPLE = 16  # of every dimension of a product of fp8


def resolve_settings(workload: Workload, **options: Any) -> Settings:
    """Checked settings for a run of `workload`; `options` are fields of `Settings`, None meaning the default.

    Raises `UsageError` for an unknown preset, variant, dtype, device, mode or profiler (naming the known ones and the
    nearest), for a number out of range, and for an option that the workload does not take; `Unavailable` when the
    device is missing or lacks the precision.
    """
    given = {name: value for name, value in options.items() if value is not None and (name, value) != ("variant", "")}
    preset = given.pop("preset", next(iter(workload.presets)))
    if preset not in workload.presets:
        raise unknown(f"preset of {workload.name}", preset, workload.presets)
    overrides = _overrides(workload, preset, given.pop("dimensions", None) or {})
    dimensions = dict(workload.presets[preset]) | overrides
    values: dict[str, Any] = {k: dimensions[k] for k in ("batch_size", "sequence_length") if k in dimensions}
    if workload.variants:
        values["variant"] = workload.variants[0]
    values |= given
    values |= {k: tuple(given[k]) for k in ("executors", "kernel_dirs") if k in given}
    settings = Settings(workload=loader.source_of(workload), preset=preset, dimensions=overrides, **values)
    _check_names(workload, settings)
    _check_numbers(workload, settings, dimensions)
    _check_parts(workload, settings)
    _check_fp8(workload, settings)
    _check_device(settings)
    settings = parallel.resolved(workload, settings)
    workload.check(settings)
    return settings


def _overrides(workload: Workload, preset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given dimensions in the types of the preset's. Raises `UsageError` for one that does not fit."""
    known = {k: v for k, v in workload.presets[preset].items() if k not in ("batch_size", "sequence_length")}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"dimension of {workload.name}", name, known)
        try:
            found[name] = type(known[name])(value)
        except ValueError:
            kind = {int: "a whole number", float: "a number"}.get(type(known[name]), "another value")
            raise UsageError(f"--dim {name} must be {kind}; it is {value!r}.", f"{preset} has {known[name]}.") from None
        if name in workload.choices and found[name] not in workload.choices[name]:
            raise unknown(name, str(found[name]), tuple(map(str, workload.choices[name])))
        if isinstance(found[name], int) and found[name] < 1:
            raise UsageError(f"--dim {name} must be at least 1; it is {value}.")
    return found


def _check_names(workload: Workload, settings: Settings) -> None:
    for name, field in fields().items():
        value, known = getattr(settings, name), field.declared.choices
        if known and value not in known:
            raise not_one_of(field.option, value, known)
    if settings.variant and settings.variant not in workload.variants:
        raise unknown(f"variant of {workload.name}", settings.variant, workload.variants)


def _check_numbers(workload: Workload, settings: Settings, dimensions: Mapping[str, Any]) -> None:
    for name, field in fields().items():
        value, least = getattr(settings, name), field.declared.least
        if least is not None and value is not None and value < least:
            raise UsageError(f"{field.option} must be at least {least}; it is {value}.")
    length, context = settings.sequence_length, dimensions.get("context")
    if length is not None and "sequence_length" not in dimensions:
        raise UsageError(f"{workload.name} has no sequence length.", "Leave --sequence-length out.")
    if length is None or context is None:
        return
    if settings.generate and length + settings.generate > context:
        raise UsageError(
            f"A prompt of {length} tokens and --generate {settings.generate} need a cache of "
            f"{length + settings.generate} positions; the context of {settings.preset} is {context}.",
            f"Give --prompt {max(context - settings.generate, 1)}, or fewer tokens to generate.",
        )
    if length > context:
        raise UsageError(
            f"--sequence-length {length} is longer than the context of {settings.preset}, which is {context}."
        )


def _check_parts(workload: Workload, settings: Settings) -> None:
    used = [field for name, field in fields().items() if getattr(settings, name) != field.default]
    for field in used:
        if field.declared.takes_part and field.name not in workload.takes:
            raise UsageError(f"{workload.name} does not take {field.option}.", f"Leave {field.option} out.")
    if settings.training and settings.grad_accumulation > 1 and workload.has("step"):
        raise UsageError(
            f"{workload.name} has a training step of its own, which perfkit does not divide into batches.",
            "Leave --grad-accumulation out.",
        )
    if settings.generate and settings.training:
        raise UsageError("--generate is inference, not a training step.", "Leave it out, or give --inference as well.")
    for field in used:
        if field.declared.training and not settings.training:
            other = "--generate" if settings.generate else "--inference"
            raise UsageError(f"{field.option} belongs to training.", f"Leave it out, or leave {other} out.")


def _check_fp8(workload: Workload, settings: Settings) -> None:
    if settings.dtype != "fp8":
        return
    if not settings.training:
        raise UsageError("--dtype fp8 is of a training step.", "Use --dtype bf16 for inference.")
    if settings.in_group:
        raise UsageError("--dtype fp8 trains in one process.", "Leave --ranks and --parallel out, or use --dtype bf16.")
    if not workload.layers:
        raise UsageError(
            f"{workload.name} names no repeated layers, whose linear layers --dtype fp8 is for.",
            'Choose gpt2 or llama, give your workload `layers = "path.of.the.list.*"`, or use --dtype bf16.',
        )
    rows = settings.batch_size * (settings.sequence_length or 1)
    if settings.sequence_length and rows % FP8_MULTIPLE:
        raise UsageError(
            f"--dtype fp8 needs B·T to divide by {FP8_MULTIPLE}, as cuBLASLt does; {settings.batch_size} × "
            f"{settings.sequence_length} = {rows} does not.",
            f"Give -B {FP8_MULTIPLE}, or -T {-(-settings.sequence_length // FP8_MULTIPLE) * FP8_MULTIPLE}.",
        )


def _check_device(settings: Settings) -> None:
    kind, _, index = settings.device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise not_one_of("--device", settings.device, ("cpu", "cuda", "cuda:1"))
    if kind == "cuda":
        if settings.allocator != "default":
            raise UsageError("--allocator is of CPU tensors; a GPU's allocator keeps what is freed.", "Leave it out.")
        _check_gpu(int(index or 0), settings.dtype)
    elif settings.cuda_graphs == "all":
        raise UsageError(
            "--cuda-graphs all needs a GPU; the device is the CPU.", "Leave it out, or give --device cuda."
        )
    elif settings.dtype == "tf32":
        raise UsageError(
            "--dtype tf32 needs a CUDA GPU of compute capability 8.0 or newer; the device is the CPU.",
            "Use fp32 or bf16, or --device cuda.",
        )


def _check_gpu(index: int, dtype: str) -> None:
    import torch

    if torch.version.cuda is None:
        raise Unavailable("--device cuda: this PyTorch is built without CUDA.", "Install a CUDA build, or use the CPU.")
    if not torch.cuda.is_available():
        raise no_gpu("--device cuda")
    count = torch.cuda.device_count()
    if index >= count:
        raise Unavailable(f"--device cuda:{index}: the last CUDA GPU of this machine is cuda:{count - 1}.")
    major, minor = torch.cuda.get_device_capability(index)
    if dtype == "tf32" and major < 8:
        raise Unavailable(
            f"--dtype tf32 needs compute capability 8.0 or newer; this GPU has {major}.{minor}.", "Use --dtype fp32."
        )
    if dtype == "fp8" and (major, minor) < (8, 9):
        raise Unavailable(
            f"--dtype fp8 needs compute capability 8.9 or newer; this GPU has {major}.{minor}, and emulated its times "
            "would mislead.",
            "Use --dtype bf16.",
        )
