"""The parameters of a run's model: names, sizes, and which are trained."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.run_folder import Manifest

_ELEMENT = {"bf16": 2, "fp8": 2}  # bytes of a number in the model's precision; 4 in the others


@dataclass(frozen=True)
class Parameter:
    """A parameter in the order of the model; `bytes` in the precision of the run."""

    name: str
    bytes: int
    trained: bool = True


def parameters_of(manifest: Manifest) -> list[Parameter]:
    """Return all parameters of a run. Where an older run folder does not name them, the model is built without memory.

    Raises `InputError` where that is not possible.
    """
    facts, width = manifest.workload, _ELEMENT.get(manifest.settings.dtype, 4)
    frozen = set(facts.frozen)
    sizes = facts.parameter_sizes or _built(manifest)
    return [Parameter(name, count * width, name not in frozen) for name, count in sizes.items()]


def _built(manifest: Manifest) -> dict[str, int]:
    settings = manifest.settings
    again = InputError("The run folder does not say how large each parameter is.", "Run the workload again.")
    try:
        import torch

        from perfkit.workloads import loader

        workload = loader.find(settings.workload)
        with torch.device("meta"):
            model = workload.build(settings)
    except Exception as error:  # any error of a user's model, or a missing torch
        raise again from error
    return {name: parameter.numel() for name, parameter in model.named_parameters()}
