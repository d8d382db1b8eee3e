"""The check of generated tokens: the reference writes its own into a folder, and a backend is compared with them.

The reference decodes greedily without a cache, in higher precision. A backend generates freely, then follows the
reference's tokens: so its logits are compared position by position whatever it chose, and its tokens up to the first
that rounding could turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfkit import correctness
from perfkit.backends.generation import Generation, token_check
from perfkit.backends.interface import AutogradProgram
from perfkit.run_folder import Check

if TYPE_CHECKING:
    from perfkit.workloads.interface import Batch

TOKENS, LOGITS = "tokens.npy", "logits.npy"

Result = tuple[dict[str, float | None], list[Check]]


def write(generation: Generation, program: AutogradProgram, batch: Batch, folder: Path) -> Result:
    """Write the tokens of greedy decoding without a cache, and their logits."""
    tokens, logits = generation.without_cache(program.call, batch)
    np.save(folder / TOKENS, tokens.cpu().numpy())
    correctness.write_reference(folder, {correctness.OUTPUTS: logits})
    np.save(folder / LOGITS, logits.cpu().double().numpy())
    return {}, []


def compare(generation: Generation, program: AutogradProgram, batch: Batch, folder: Path) -> Result:
    """The error of the logits against those that were written, and the check of the tokens."""
    import torch

    tokens, _ = program.forward(batch)
    expected = torch.from_numpy(np.load(folder / TOKENS))
    generation.follow = expected.to(batch[0].device)
    logits, _ = program.forward(batch)
    generation.follow = None
    generation.take()
    assert isinstance(tokens, torch.Tensor)
    assert isinstance(logits, torch.Tensor)
    errors = correctness.errors_against(folder, {correctness.OUTPUTS: logits})
    return errors, [token_check(tokens, logits, expected, torch.from_numpy(np.load(folder / LOGITS)))]
