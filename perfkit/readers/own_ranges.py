"""The names that perfkit gives its own ranges, as every reader finds them in a profile."""

from __future__ import annotations

from perfkit.ranges import APART as APART
from perfkit.ranges import GRAPH as GRAPH
from perfkit.ranges import LINE as LINE
from perfkit.ranges import MODULE as MODULE
from perfkit.ranges import PASS as PASS
from perfkit.ranges import PREFIX as PREFIX
from perfkit.ranges import ROOT as ROOT
from perfkit.ranges import STEP as STEP
from perfkit.ranges import Line as Line
from perfkit.ranges import from_trace as from_trace
from perfkit.ranges import line_of as line_of

FORWARD_PASSES = ("forward", "evaluation", "prefill", "decode")  # in which the model itself runs
APART_PASSES = ("between", "loading")  # in which it does not: parts of a step by themselves, as modules are
