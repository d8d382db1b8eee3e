"""The names that perfkit gives its own ranges, as every reader finds them in a profile."""

from __future__ import annotations

from perfkit.ranges import GRAPH, LINE, MODULE, PASS, ROOT, STEP, Line, from_trace, line_of

__all__ = ["FORWARD_PASSES", "GRAPH", "LINE", "MODULE", "PASS", "ROOT", "STEP", "Line", "from_trace", "line_of"]

FORWARD_PASSES = ("forward", "prefill", "decode")  # in which the model itself runs
