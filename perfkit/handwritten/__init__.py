"""Parts of a training step written by hand: an arena of tensors, kernels into given tensors, marks.

A workload may bring such a step with its model (`Workload.by_hand`), and the backend `llmc` runs it: no autograd,
each tensor allocated once, every kernel named. Matrix products are PyTorch's libraries'; the rest are operations of the
kernel catalog. What steps of language models share is in `perfkit.handwritten.language`.

It may bring a token's pass as well (`RawDecode`), with which the backend generates.
"""

from __future__ import annotations

from perfkit.handwritten.arena import Arena
from perfkit.handwritten.calls import Kernels, at
from perfkit.handwritten.decode import RawDecode
from perfkit.handwritten.graphs import Graphs
from perfkit.handwritten.step import RawStep

__all__ = ["Arena", "Graphs", "Kernels", "RawDecode", "RawStep", "at"]
