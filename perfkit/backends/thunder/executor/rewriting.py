"""Changes of whole traces that thunder-llmc makes, where a claim of one symbol cannot: a transform of Thunder's.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

from typing import Any

from thunder.core.trace import TraceTag
from thunder.core.transforms import Transform

from perfkit.backends.thunder.executor import fp8, losses, none_gradients, transposed


class Rewriting(Transform):
    """Products take what is transposed for them as it is, and losses what the head's product made; gradients that
    nobody gave count as zero without being made."""

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        """Rewrite losses and transposed operands."""
        return prologue_trace, transposed.joined(losses.claimed(computation_trace)), epilogue_trace

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        """Let the backward trace take absent gradients, and the forward trace cast a tensor to fp8 once."""
        tag = TraceTag.BACKWARD  # type: ignore[attr-defined]  # an enumeration that mypy does not see through
        return (none_gradients.tolerated if tag in computation_trace.tags else fp8.shared)(computation_trace)
