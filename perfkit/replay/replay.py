"""A recorded operator as a benchmark: rebuilt, checked against fp64, timed here, next to the trace's own time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perfkit.bench import measure, results, setup
from perfkit.bench.benchmark import Benchmark
from perfkit.bench.results import Bench
from perfkit.bench.run import BenchOptions, last_cache
from perfkit.cost.model import Cost
from perfkit.errors import RunFailed, first_line
from perfkit.hardware.ceilings import Ceilings
from perfkit.kernels.families import cost_model
from perfkit.readers.kineto.measure.calls import call_of
from perfkit.replay import attention, contents, fills, fitting, generated, memory_needed, rebuilt, ways
from perfkit.replay.arguments import NotRebuilt, Rebuilt
from perfkit.replay.arguments import rebuilt as rebuilt_from
from perfkit.replay.rebuilt import Recipe, Values
from perfkit.replay.recorded import FoundOperator, OperatorCalls
from perfkit.statistics import Estimate, median, ratio_of_medians

_KEYS = {"cpu": "CPU", "cuda": "CUDA"}
# Largest errors by the coarsest precision of what goes in and comes out; PyTorch's ways may have `ROUNDING` times
# as large ones, as in `perfkit bench` of the catalog.
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "tf32": 5e-3, "fp16": 2e-3, "bf16": 2e-2, "fp8": 0.25}
_PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_TERMS = 1024  # summed up in each result: from here on the error allowed grows with the root of their number
EXACT = "exact"


@dataclass(frozen=True)
class Chosen:
    """The recorded calls that are run again, their recipe, and what is to be said of both."""

    calls: OperatorCalls
    recipe: Recipe
    stated: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RecordedBenchmark(Benchmark):
    """Benchmark of a recorded call: its arguments are those of the recipe."""

    values: Values

    def arguments(self, dtype: str, seed: int, sizes: Mapping[str, int], device: str) -> tuple[Any, ...]:
        """The arguments by name, on the device that they were made for."""
        return (self.values,)


def choose(found: FoundOperator, device: str, seed: int, available: float | None = None) -> Chosen:
    """The innermost recorded operator that can be rebuilt and runs on `device`. Raises `InputError` for none, and
    `RunFailed` for one whose check does not fit into the `available` bytes (None: unknown)."""
    return _first(found, lambda calls: _tried(planned(calls, found, device), device, seed, available))


def rebuildable(found: FoundOperator, device: str) -> Chosen:
    """The innermost recorded operator that can be rebuilt for `device`, without a trial. Raises `NotRebuilt`."""
    return _first(found, lambda calls: planned(calls, found, device))


def _first(found: FoundOperator, choose: Callable[[OperatorCalls], Chosen]) -> Chosen:
    """The first of the levels that can be chosen. Raises `NotRebuilt` for the innermost otherwise.

    Attention inside another operator of attention is passed over: the outer one has an fp64 reference and other ways.
    """
    reasons: list[NotRebuilt] = []
    whole = any(attention.is_attention(calls.operator) for calls in found.levels)
    for calls in found.levels:
        if whole and attention.is_inner(calls.operator):
            continue
        try:
            return choose(calls)
        except NotRebuilt as error:
            reasons.append(error)
    raise reasons[0]


def planned(calls: OperatorCalls, found: FoundOperator, device: str) -> Chosen:
    """Recorded calls with their recipe for `device`. Raises `NotRebuilt`."""
    if calls.operator.startswith("perfkit::"):
        from perfkit import kernels

        kernels.load()
    if generated.is_generated(calls.operator):
        made = generated.rebuilt(calls, found.trace, device)
        return Chosen(calls, made.recipe, tuple(made.stated))
    recipe, stated = _for_device(rebuilt_from(calls, found.list_dtype), device)
    if calls is not found.levels[0]:
        stated.append(f"{found.levels[0].operator} was called by {calls.operator}, which runs here in its place.")
    return Chosen(calls, recipe, tuple(stated))


def _tried(chosen: Chosen, device: str, seed: int, available: float | None) -> Chosen:
    """Return `chosen` if one call of it runs. Raises `NotRebuilt`, or `RunFailed` where the memory does not suffice."""
    name = chosen.calls.operator
    if "source" not in chosen.recipe:
        memory_needed.require(chosen.recipe, available)
    try:
        with torch.no_grad():
            rebuilt.outputs(chosen.recipe, rebuilt.Maker(device, seed).arguments(chosen.recipe))
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, MemoryError) as error:
        first = first_line(error)
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in first:
            raise RunFailed(f"{name} with these shapes does not fit into the memory of {device}.") from error
        hint = "Choose another with --kernel or --operator."
        raise NotRebuilt(f"{name} does not run here as it is recorded: {first[:200]}.", hint) from error
    return chosen


def _for_device(made: Rebuilt, device: str) -> tuple[Recipe, list[str]]:
    """The recipe, or for an operator that only another device has, one that computes the same; `NotRebuilt` else."""
    recipe, stated = made.recipe, list(made.stated)
    kind = device.partition(":")[0]
    name = recipe["operator"] + (f".{recipe['overload']}" if recipe["overload"] else "")
    if attention.is_attention(recipe["operator"]):
        if not _runs(name, kind):
            stated.append(f"{recipe['operator']} does not exist on {kind}: {attention.GENERAL} runs in its place.")
            return attention.general(recipe, own=True), stated
        recipe["reference"] = attention.general(recipe, own=False)
    if not _runs(name, kind):
        raise NotRebuilt(f"{name} does not exist on {kind}.", "Run it on the device that the trace is of.")
    return recipe, stated


def _runs(name: str, kind: str) -> bool:
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, _KEYS[kind]))


Wanted = tuple[Sequence[str], Sequence[str]]


def replay(
    found: FoundOperator, chosen: Chosen, options: BenchOptions, ceilings: Ceilings | None, wanted: Wanted,
    say: Callable[[str, str], None],
) -> Bench:  # fmt: skip
    """Check and time every way of the chosen call on the device of `options`; `wanted` are ways and languages."""
    benchmark, label, notes = _benchmark(found, chosen, options)
    planned = setup.BenchPlan(setup.chosen_ways(benchmark, *wanted), ({},))
    made = setup.run(benchmark, planned, [label], options, ceilings, say)
    made.notes += notes
    made.recorded = recorded(found, chosen, options.device)
    if made.recorded.comparable and made.recorded.ns:
        for row in made.points[0].rows:
            timing = row.warm or row.cold
            row.of_trace = ratio_of_medians(chosen.calls.ns, timing.samples) if timing else None
        made.recorded.zeros = _time_of(chosen.recipe, contents.zeros(benchmark.values), options, ceilings)
        masked = contents.masked(chosen.recipe["operator"], benchmark.values)
        made.recorded.masked = _time_of(chosen.recipe, masked, options, ceilings) if masked else None
    return made


def _time_of(recipe: Recipe, values: Values, options: BenchOptions, ceilings: Ceilings | None) -> Estimate:
    """The time of the call on other values, in ns, with warm caches.

    A GPU's clock follows the power, and the power the values. Gradients of a real step are small, many of them 0:
    between zeros and normal numbers. On an H100 products of bf16 took 0.86 to 0.97 of the time with zeros.
    """
    own = rebuilt.fresh(recipe, values)
    with torch.no_grad():
        call = rebuilt.call_of(recipe, own)
        clock = measure.clock_for(options.device, last_cache(ceilings))
        (samples,) = measure.in_turns(clock, [call], [measure.repetitions(clock, call)], measure.WARM, options.seconds)
    return median(samples)


def _benchmark(found: FoundOperator, chosen: Chosen, options: BenchOptions) -> tuple[RecordedBenchmark, str, list[str]]:
    """The benchmark, its precision, and notes."""
    recipe, calls = chosen.recipe, chosen.calls
    with torch.no_grad():
        maker = rebuilt.Maker(options.device, options.seed)
        values = maker.arguments(recipe)
        got = rebuilt.outputs(recipe, values)
        expected, unchecked = _expected(recipe, values, maker)
    names = tuple(name for name in got if name in expected)
    label = _precision(recipe, got, calls, options.device)
    cost = cost_model().cost(call_of(calls.key, found.list_dtype, "tf32" if label == "tf32" else "fp32"))
    terms = _terms(cost, got, values)
    benchmark = RecordedBenchmark(
        name=recipe["operator"].partition("::")[2],
        formula=f"{recipe['operator']}({', '.join(name for name, _, _ in recipe['arguments'])})",
        sizes=(),
        inputs=lambda *_: (),
        reference=lambda own: expected,
        cost=lambda arguments: cost if cost and cost.bytes else None,
        tolerance={label: TOLERANCE.get(label, 0.0)},
        defaults=lambda device: {},
        ways=ways.ways_of(recipe, options.device, names),
        in_place=bool(recipe["changed"]),
        growth=lambda sizes: max(1.0, math.sqrt(terms / _TERMS)),
        values=values,
    )
    return benchmark, label, [f"The results are not checked: {unchecked}."] if unchecked else []


def is_random(recipe: Recipe) -> bool:
    """Return whether the results of two calls differ: random numbers, dropout."""
    dropped = {name: value.get("value") for name, _, value in recipe["arguments"]}.get("dropout_p")
    if dropped is not None:
        return bool(dropped)
    return "source" not in recipe and bool(torch.Tag.nondeterministic_seeded in rebuilt.operator_of(recipe).tags)


def _expected(recipe: Recipe, values: Values, maker: rebuilt.Maker) -> tuple[Values, str]:
    """The results in fp64; none, and why, where they cannot be compared with fp64."""
    if "source" in recipe:
        return {}, "nothing in fp64 computes what a generated kernel does"
    if is_random(recipe):
        return {}, "they are random"
    if attention.is_inner(recipe["operator"]):
        return {}, "the inside of one backend's attention does not run in fp64"
    try:
        return rebuilt.expected(recipe, values, maker), ""
    except (RuntimeError, NotImplementedError) as error:
        return {}, f"PyTorch does not compute them in fp64 ({first_line(error, 100)})"


def _precision(recipe: Recipe, got: Values, calls: OperatorCalls, device: str) -> str:
    """The coarsest precision of what goes in and comes out; "exact" for whole numbers alone."""
    every = {t.dtype for t in got.values()} | {t.dtype for t in _tensors(recipe)}
    found = {_PRECISIONS.get(str(d).removeprefix("torch."), "fp8") for d in every if d.is_floating_point}
    if device != "cpu" and "fp32" in found and any("tf32" in name for name in calls.kernels):
        return "tf32"
    return max(found, key=TOLERANCE.__getitem__) if found else EXACT


def _tensors(recipe: Recipe) -> list[Any]:
    values = rebuilt.Maker("meta", 0).arguments(fitting.without_forward(recipe))
    return [t for value in values.values() for t in (value if isinstance(value, list) else [value])
            if isinstance(t, torch.Tensor) and t.dim()]  # fmt: skip


def _terms(cost: Cost | None, got: Values, values: Values) -> float:
    """Return how many terms each result is the sum of, about: of a product, else the inputs for each result."""
    out = max((t.numel() for t in got.values()), default=1) or 1
    if cost and cost.matrix_flop:
        return cost.matrix_flop / 2 / out
    sizes = [v.numel() for v in values.values() if isinstance(v, torch.Tensor)]
    return max(sizes, default=1) / out


def recorded(found: FoundOperator, chosen: Chosen, device: str) -> results.RecordedCalls:
    """The trace's own time of the chosen calls, and their arguments as they were rebuilt."""
    calls = chosen.calls
    here = torch.cuda.get_device_name(device) if device != "cpu" else ""
    return results.RecordedCalls(
        trace=found.trace.name,
        operator=calls.operator,
        device=found.device or ("a GPU that it does not name" if found.on_gpu else "a CPU that it does not name"),
        comparable=bool(here) and here == found.device,
        ns=median(calls.ns) if calls.ns else None,
        kernels=calls.kernels[:8],
        module=calls.module,
        pass_name=calls.pass_,
        others=calls.others,
        arguments=[described(name, value) for name, _, value in chosen.recipe["arguments"]],
        stated=list(chosen.stated),
    )


def described(name: str, value: Mapping[str, Any]) -> results.RecordedArgument:
    """Say what an argument is, and what fills it."""
    if "result" in value:
        return results.RecordedArgument(name, described(name, value["else"]).text, "by the forward operator")
    if "tensor" in value:
        return results.RecordedArgument(name, _tensor_words(value["tensor"]), fills.words_of(value["tensor"]))
    if "list" in value:
        shown = [_tensor_words(one["tensor"]) for one in value["list"][:3]]
        more = f", … {len(value['list'])} tensors" if len(value["list"]) > 3 else ""
        return results.RecordedArgument(name, ", ".join(shown) + more, fills.words_of(value["list"][0]["tensor"]))
    ((kind, content),) = value.items()
    return results.RecordedArgument(name, str(content) if kind != "device" else "this device", "")


def _tensor_words(tensor: Mapping[str, Any]) -> str:
    shape, strides = tensor["shape"], tensor["strides"]
    text = f"{tensor['dtype']}[{'×'.join(map(str, shape))}]"
    plain = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return text if strides is None or strides == plain else f"{text}, strides {tuple(strides)}"
