"""The summary that llm.c's profile script makes of one training step of its `profile_gpt2cu`, from a kernel table.

The profiled model has one layer; kernels of the blocks count for `layers` of them. Each kernel, numbered from 0 in
launch order, gets a pass by the first test that holds: (1) an embedding kernel, by name: enc × 1; (2) one of six around
the last fused classifier: cls × 1; (3) the optimizer, its copies of the weights or the gradient norm, by name: opt × 1;
(4) after the embedding's backward: init × 0; (5) else a block, forward before the classifier and backward after it: ×
layers. Where each kernel knows its pass, as in a report that perfkit captured, places decide and no name: kernels of a
block are those from the first to the last whose module has a number in its path. Time, bytes and instructions are
multiplied, rates and shares are not; totals leave init out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from perfkit.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.table import KernelTable

ENCODER, FORWARD, CLASSIFIER, BACKWARD, OPTIMIZER, INIT = PASSES = ("enc", "fwd", "cls", "bwd", "opt", "init")
LAYERS = 12
_CLASSIFIER_SPAN = (-2, 4)  # around the fused classifier: layernorm and matmul before it, their backwards after it
_OPTIMIZER = ("adamw", "global_norm", "copy_and_cast")  # copies: of the weights, in fp32, for adamw
_COLLAPSED = ("ampere_bf16", "cudnn_generated_fort_native_sdpa")  # generated names that differ by tile sizes
_BLOCK = re.compile(r"(?:^|\.)\d+(?:\.|$)")  # a module of a repeated layer, such as transformer.h.0.mlp
_NOT_KERNELS = ("cpu_op", "memcpy", "memset", "graph")

# Needs of the summary: column of the kernel table → in words, and ncu's metrics.
_NEEDED = {
    "duration_ns": ("durations", ("gpu__time_duration.sum",)),
    "dram_read_bytes": ("bytes read from DRAM", ("dram__bytes_read.sum",)),
    "dram_write_bytes": ("bytes written to DRAM", ("dram__bytes_write.sum",)),
    "l2_read_bytes": ("bytes read from L2", ("lts__t_sectors_srcunit_tex_op_read.sum",)),
    "l2_write_bytes": ("bytes written to L2", ("lts__t_sectors_srcunit_tex_op_write.sum",)),
    "tensor_active": (
        "tensor-core activity",
        ("sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",),
    ),
    "instructions": ("instructions", ("smsp__inst_executed.sum",)),
}
_ADDED = ("time_ns", "dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes", "instructions")


@dataclass(frozen=True)
class LlmcStyle:
    """`layers` of the whole model, and the name under which each of `PASSES` is shown (its own where left out)."""

    layers: int = LAYERS
    names: tuple[tuple[str, str], ...] = ()

    def name(self, pass_: str) -> str:
        """The shown name of a pass."""
        return dict(self.names).get(pass_, pass_)


class LlmcCall(msgspec.Struct, kw_only=True):
    """One kernel call: amounts times `multiplier` (its own for init, × 0), rates as measured.

    `bandwidth` is DRAM bytes/s, `tensor` a share of 0 to 1.
    """

    number: int
    pass_: str
    multiplier: int
    name: str
    time_ns: float
    bandwidth: float
    tensor: float
    dram_read_bytes: float
    dram_write_bytes: float
    l2_read_bytes: float
    l2_write_bytes: float
    instructions: float


class Kind(msgspec.Struct, frozen=True):
    """All calls of one name: Σ time (init included), its share of the total, and calls a step (init counts 0)."""

    name: str
    time_ns: float
    share: float
    count: int


class LlmcSummary(msgspec.Struct, kw_only=True):
    """The whole summary, in base units. Totals leave init out; `tensor` and `efficiency` are weighted by time.

    `peak_bandwidth` (bytes/s) and `peak_tensor` (0.5 or 1) are what `efficiency` is judged by.
    """

    layers: int
    calls: list[LlmcCall]
    kinds: list[Kind]  # largest time first
    passes: dict[str, float]  # pass → ns
    time_ns: float
    dram_read_bytes: float
    dram_write_bytes: float
    l2_read_bytes: float
    l2_write_bytes: float
    instructions: float
    tensor: float
    efficiency: float
    peak_bandwidth: float
    peak_tensor: float

    @property
    def bandwidth(self) -> float:
        """DRAM bytes/s of the whole step."""
        return self.rate(self.dram_read_bytes + self.dram_write_bytes)

    def rate(self, amount: float) -> float:
        """`amount` a second of the step."""
        return amount / self.time_ns * 1e9 if self.time_ns else 0.0


def named(text: str) -> tuple[tuple[str, str], ...]:
    """`"fwd=forward,cls=head"` → pairs of a pass and its name. Raises `UsageError` for anything else."""
    pairs = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        pass_, equals, name = (p.strip() for p in part.partition("="))
        if pass_ not in PASSES or not equals or not name:
            raise UsageError(f"{part!r} names no pass.", f"Write PASS=NAME, with PASS one of {', '.join(PASSES)}.")
        pairs.append((pass_, name))
    return tuple(pairs)


def summarize(table: KernelTable, settings: LlmcStyle | None = None) -> LlmcSummary:
    """The summary of `table`, which holds one training step of a one-layer model in launch order.

    Raises `InputError` when the table lacks a column (it names the ncu option that supplies it), or has no fused
    classifier, so that it cannot be such a step; `UsageError` for less than one layer.
    """
    settings = settings or LlmcStyle()
    if settings.layers < 1:
        raise UsageError(f"--layers must be at least 1, not {settings.layers}.")
    frame = _kernels(table)
    calls = _calls(frame, settings.layers)
    measured = calls[1:]  # the first kernel warms up
    peak_bandwidth = max((c.bandwidth for c in measured), default=0.0)
    peak_tensor = 1.0 if max((c.tensor for c in measured), default=0.0) > 0.5 else 0.5
    counted = [c for c in calls if c.pass_ != INIT]
    totals = {name: sum(getattr(c, name) for c in counted) for name in _ADDED}
    time = totals["time_ns"]
    reached = [max(_share(c.bandwidth, peak_bandwidth), c.tensor / peak_tensor) for c in counted]
    return LlmcSummary(
        layers=settings.layers,
        calls=calls,
        kinds=_kinds(calls, time),
        passes={p: sum(c.time_ns for c in calls if c.pass_ == p) for p in PASSES},
        tensor=_share(sum(c.tensor * c.time_ns for c in counted), time),
        efficiency=_share(sum(r * c.time_ns for r, c in zip(reached, counted, strict=True)), time),
        peak_bandwidth=peak_bandwidth,
        peak_tensor=peak_tensor,
        **totals,
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _kernels(table: KernelTable) -> pd.DataFrame:
    """The rows that are GPU kernels, in launch order, with every column that is needed."""
    where = table.source.get("path", "The table")
    frame = table.frame[~table.frame["kind"].isin(_NOT_KERNELS)].sort_values("order")
    if not len(frame):
        raise InputError(
            f"{where} holds no GPU kernels, which the llm.c style sums up.",
            "Give a report that `ncu --set full` made of llm.c's profile_gpt2cu.",
        )
    missing = [name for name in _NEEDED if frame[name].isna().any()]
    if missing:
        words = ", ".join(_NEEDED[name][0] for name in missing)
        metrics = ",".join(m for name in missing for m in _NEEDED[name][1])
        lost = int(frame[missing].isna().any(axis=1).sum())
        raise InputError(
            f"{where} lacks {words} for {lost} of its {len(frame)} kernels, which the llm.c style needs.",
            f"Capture it again with `ncu --set full`, or with `--metrics {metrics}` added.",
        )
    if not (frame["duration_ns"] > 0).all():
        raise InputError(f"{where} holds kernels that took no time at all: it is damaged.", "Capture it again.")
    return frame


def _calls(frame: pd.DataFrame, layers: int) -> list[LlmcCall]:
    names = frame["name"].tolist()
    columns = [frame[name].to_numpy(float).tolist() for name in _NEEDED]
    calls = []
    for number, (pass_, (name, *values)) in enumerate(
        zip(_passes(frame), zip(names, *columns, strict=True), strict=True)
    ):
        time, read, write, l2_read, l2_write, tensor, instructions = values
        multiplier = {FORWARD: layers, BACKWARD: layers, INIT: 0}.get(pass_, 1)
        times = max(multiplier, 1)  # init keeps its own amounts
        calls.append(
            LlmcCall(
                number=number,
                pass_=pass_,
                multiplier=multiplier,
                name=kernel_name(name),
                time_ns=time * times,
                bandwidth=(read + write) / time * 1e9,
                tensor=tensor,
                dram_read_bytes=read * times,
                dram_write_bytes=write * times,
                l2_read_bytes=l2_read * times,
                l2_write_bytes=l2_write * times,
                instructions=instructions * times,
            )
        )
    return calls


def _passes(frame: pd.DataFrame) -> list[str]:
    """The pass of each kernel: by its place where all know theirs, else by name."""
    places = [(str(p), bool(_BLOCK.search(str(m)))) for p, m in zip(frame["pass"], frame["module"], strict=True)]
    if frame["pass"].notna().all() and any(in_block for _, in_block in places):
        return _passes_by_place(places)
    return _passes_by_name(frame["name"].tolist())


def _passes_by_place(places: list[tuple[str, bool]]) -> list[str]:
    """The pass of each kernel from (pass, whether in a block): what precedes the blocks in the forward embeds.

    What follows them there, and precedes them in the backward, is the classifier, the loss included.
    """
    blocks = {p: [i for i, (q, in_block) in enumerate(places) if in_block and q == p] for p in ("forward", "backward")}
    passes = []
    for number, (pass_, _) in enumerate(places):
        block, inside = blocks.get(pass_), BACKWARD if pass_ == "backward" else FORWARD
        if not block:
            passes.append(OPTIMIZER if pass_ == "optimizer" else CLASSIFIER)
        elif block[0] <= number <= block[-1]:
            passes.append(inside)
        else:
            passes.append(ENCODER if (number < block[0]) == (inside == FORWARD) else CLASSIFIER)
    return passes


def _passes_by_name(names: list[str]) -> list[str]:
    """The pass of each kernel, by the five tests in their order."""
    last = max((i for i, name in enumerate(names) if "fused_classifier" in name), default=None)
    if last is None:
        raise InputError(
            "No kernel has fused_classifier in its name, so this is not a training step of llm.c, and its kernels have "
            "no ranges of pass and module.",
            "Leave --style out, or give a report of llm.c's profile_gpt2cu or of perfkit run --profiler ncu.",
        )
    classifier = range(last + _CLASSIFIER_SPAN[0], last + _CLASSIFIER_SPAN[1])
    passes, phase = [], FORWARD
    for number, name in enumerate(names):
        if "encoder" in name:
            passes.append(ENCODER)
            phase = INIT if phase == BACKWARD else phase
        elif number in classifier:
            passes.append(CLASSIFIER)
            phase = BACKWARD
        elif any(part in name for part in _OPTIMIZER):
            passes.append(OPTIMIZER)
        else:
            passes.append(phase)
    return passes


def kernel_name(name: str) -> str:
    """The name before its arguments, without return type and template parameters; generated names collapse."""
    bare = name.split("(")[0]
    words = bare.split(" ")
    bare = (words[1] if len(words) > 1 else bare).split("<")[0]
    return next((prefix for prefix in _COLLAPSED if bare.startswith(prefix)), bare) or name


def _kinds(calls: list[LlmcCall], total: float) -> list[Kind]:
    time: dict[str, float] = {}
    count: dict[str, int] = {}
    for call in calls:
        time[call.name] = time.get(call.name, 0.0) + call.time_ns
        count[call.name] = count.get(call.name, 0) + call.multiplier
    order = sorted(time, key=lambda name: -time[name])
    return [Kind(name, time[name], _share(time[name], total), count[name]) for name in order]
