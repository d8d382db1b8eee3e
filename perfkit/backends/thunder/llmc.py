"""Thunder with hand-written kernels: the executor `perfkit_llmc` stands before the others and claims what it can.

What must run on a kernel is not a list in this file: it follows from the model. Every symbol of the trace as it was
captured, before any executor saw it, that the executor's checkers accept is expected once forward and, where its
gradient is needed, once backward; `problems` names each kernel that the executed traces call less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit import kernels
from perfkit.backends import parallel
from perfkit.backends.interface import Backend
from perfkit.backends.optimizers import FUSED, fuse
from perfkit.backends.thunder import support
from perfkit.backends.thunder.backend import ThunderProgram, Traces, executed_symbols
from perfkit.backends.thunder.distributed import TRACED
from perfkit.kernels.languages import candidates
from perfkit.run_folder import Settings, Symbol
from perfkit.settings import HELD_IN

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Batch, Workload


class LlmcProgram(ThunderProgram):
    """A model compiled by Thunder with perfkit's kernels, which knows which of them it must run.

    An AdamW that the workload leaves to PyTorch's choice steps fused, and on a GPU steps are replayed as CUDA graphs:
    the report says both.
    """

    replays = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        *_, self._executors, _ = arguments
        self._fused = fuse(self.optimizer)

    def warnings(self) -> list[str]:
        """Add notes on the optimizer's form and the choice of attention."""
        from perfkit.backends.thunder.executor import attention

        return [*super().warnings(), *([FUSED] if self._fused else []), *attention.notes()]

    def evaluated(self, batch: Batch) -> tuple[Any, Any]:
        """Return outputs and loss of one batch, whose outputs need no gradient of zeros."""
        from perfkit.backends.thunder.executor.none_gradients import expect_none

        outputs, loss = super().evaluated(batch)
        expect_none(loss)
        return outputs, loss

    def calling(self, layers: Sequence[Any]) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Return a function that runs each layer as Thunder's program of it, by the executors of the model."""
        thunder = support.load()
        compiled = [thunder.jit(layer, executors=self._executors) for layer in layers]
        return super().calling(compiled)

    def symbols(self) -> list[Symbol]:
        """First the expected symbols, by the name that the model calls, then everything else that ran."""
        if self.traces is None:
            return []
        ran = called_kernels(self.traces)
        hand_written = [
            Symbol(name=name, kernel=f"perfkit::{kernel}", trace=direction, count=ran[direction, kernel], expected=True)
            for direction, name, kernel in expected_kernels(self.traces)
        ]
        listed = {(s.trace, s.kernel) for s in hand_written}
        others = [_by_operator(symbol) for symbol in super().symbols()]
        return hand_written + [s for s in others if (s.trace, s.kernel) not in listed]

    def problems(self) -> list[str]:
        """A sentence for each kernel that the executed traces call less often than the model's symbols ask for."""
        if self.traces is None:
            return ["The program has not run yet, so nothing is known of its kernels."]
        ran = called_kernels(self.traces)
        found = []
        for (direction, name, kernel), count in expected_kernels(self.traces).items():
            if ran[direction, kernel] < count:
                expected = f"{name} should run {count} × on perfkit::{kernel} in the {direction} trace"
                found.append(f"{expected}; it ran {ran[direction, kernel]} ×.")
        return found


def _by_operator(symbol: Symbol) -> Symbol:
    """A kernel's own symbol with the operator that it calls; any other as it is."""
    from perfkit.backends.thunder.executor.executor import NAME
    from perfkit.backends.thunder.executor.shapes import META

    is_kernel = symbol.kernel == NAME and symbol.name in META
    return msgspec.structs.replace(symbol, kernel=f"perfkit::{symbol.name}") if is_kernel else symbol


def called_kernels(traces: Traces) -> Counter[tuple[str, str]]:
    """How often each of the executor's kernels is called, by (direction, kernel)."""
    from perfkit.backends.thunder.executor.executor import NAME

    found: Counter[tuple[str, str]] = Counter()
    for direction, trace in traces.executed.items():
        for symbol in executed_symbols(direction, trace):
            if symbol.kernel == NAME:
                found[direction, symbol.name] += symbol.count
    return found


def expected_kernels(traces: Traces) -> Counter[tuple[str, str, str]]:
    """How often each kernel must run, by (direction, symbol, kernel), from the captured trace and the checkers."""
    from perfkit.backends.thunder.executor.executor import KERNELS, executor

    found: Counter[tuple[str, str, str]] = Counter()
    for bound, gradient_needed in _live(traces.computation[0]):
        if executor.can_execute(bound) and bound.sym.name in KERNELS:
            forward, backward = KERNELS[bound.sym.name]
            found["forward", bound.sym.name, forward] += 1
            if gradient_needed and traces.backward:
                found["backward", bound.sym.name, backward] += 1
    return found


def _live(trace: Any) -> Iterator[tuple[Any, bool]]:
    """The symbols of a captured trace whose results are used, each with whether a gradient flows through it.

    A gradient flows where an argument depends on a parameter that asks for one, outside torch.no_grad. Symbols inside a
    recomputed region (torch.utils.checkpoint) count as if they stood in the trace.
    """
    from thunder.core.proxies import ProxyTag

    tag = ProxyTag.DETACHED_AUTOGRAD_GRAPH  # type: ignore[attr-defined]  # set of a result under torch.no_grad
    symbols = list(_flat(trace.bound_symbols))
    asks = {proxy.name for b in symbols for proxy in b.flat_proxy_args if getattr(proxy, "requires_grad", False)}
    flows: list[bool] = []
    for bound in symbols:
        detached = any(tag in proxy.tags for proxy in bound.flat_proxy_outs)
        flow = not detached and any(proxy.name in asks for proxy in bound.flat_proxy_args)
        flows.append(flow)
        if flow:
            asks.update(proxy.name for proxy in bound.flat_proxy_outs)
    used: set[str] = set()
    kept = []
    for bound, flow in zip(reversed(symbols), reversed(flows), strict=True):
        if bound.sym.name == "python_return" or any(proxy.name in used for proxy in bound.flat_proxy_outs):
            used.update(proxy.name for proxy in bound.flat_proxy_args)
            kept.append((bound, flow))
    return reversed(kept)


def _flat(symbols: Any) -> Iterator[Any]:
    for bound in symbols:
        if bound.sym.id == "activation_checkpoint":
            yield from _flat(bound.subsymbols)
        else:
            yield bound


class ThunderLlmc(Backend):
    """Thunder with `perfkit_llmc` before the executors of `settings.executors`, or before Thunder's default ones."""

    name = "thunder-llmc"
    summary = "Thunder with perfkit's hand-written kernels for attention, norms, activations and cross entropy"

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Return why Thunder or the kernels cannot run here, or None."""
        device = "cpu" if settings is None else settings.device
        alone = parallel.cannot(self.name, settings, tuple(TRACED))
        return alone or kernels.unavailable(device) or _dtype_missing(settings) or support.unavailable(settings)

    def load(self, settings: Settings) -> None:
        """Import Thunder and load the kernels."""
        support.load()
        kernels.load(settings.kernel_dirs)

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> LlmcProgram:
        """The model under `thunder.jit` with perfkit's executor first.

        Raises `UsageError` for an unknown executor in `settings`.
        """
        thunder = support.load()
        kernels.load(settings.kernel_dirs)
        from perfkit.backends.thunder.executor.executor import executor, use_catalog
        from perfkit.backends.thunder.executor.rewriting import Rewriting

        use_catalog(settings.kernel_dirs)
        named = support.executors(settings.executors)
        first = [executor, *(e for e in named or thunder.get_default_executors() if e is not executor)]
        return LlmcProgram(workload, model, settings, first, [Rewriting()])


def _dtype_missing(settings: Settings | None) -> str | None:
    """Why no kernel of the catalog runs in the precision of `settings`, or None: of tf32 in fp32, of fp8 in bf16."""
    if settings is None:
        return None
    device, dtype = settings.device.split(":")[0], HELD_IN.get(settings.dtype, settings.dtype)
    operations = [o for family in kernels.catalog(settings.kernel_dirs) for o in family.operations]
    if any(candidates(operation, device, dtype) for operation in operations):
        return None
    return f"None of the hand-written kernels exists in {settings.dtype} on {device}."
