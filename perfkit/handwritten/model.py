"""Facts that the shared step of language models needs of a model: its norm, and the paths of its modules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Norm:
    """A norm of the catalog: `kernel`_forward, `kernel`_backward and residual_`kernel`_forward.

    `operator` is what the model calls. `statistics` are what forward gives with its result and backward takes, in
    fp32; `parameters` are the norm's own, each with a gradient d`parameter`.
    """

    kernel: str
    operator: str
    statistics: tuple[str, ...]
    parameters: tuple[str, ...]


LAYER_NORM = Norm("layernorm", "layer_norm", ("mean", "rstd"), ("weight", "bias"))
RMS_NORM = Norm("rmsnorm", "rms_norm", ("rstd",), ("weight",))


@dataclass(frozen=True)
class Names:
    """Module paths: those of the second group begin at a layer.

    The first of `encoder` is the embedding of the tokens; backward ends with all of them.
    """

    encoder: tuple[str, ...]
    layers: str
    last_norm: str
    head: str

    norms: tuple[str, str]
    attention: str
    attention_out: str
    attention_sum: str  # where the branch of attention is added to x; "" is the layer itself, where the MLP's is
    mlp_out: str
