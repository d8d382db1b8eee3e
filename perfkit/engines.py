"""The names that serving engines give the ranges of their iterations, and what an iteration served.

vLLM         execute_context_2(512)_generation_30(30)                      requests (tokens), prompts and further tokens
             execute_context_1(888_788544)_generation_0(0)                 a further sum of the tokens, not used
             execute_542_context_2(sq512sk512…)_generation_30(sq30sk9000…)  sq: tokens, sk: tokens that they attend to
SGLang       step[DECODE bs=32], step[EXTEND bs=15 toks=15360]
TensorRT-LLM [Executor] _forward_step 12: 2 ctx reqs, 512 ctx tokens, 30 gen reqs
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

PREFILL, DECODE, MIXED, IDLE = "prefill", "decode", "mixed", "idle"
PHASES = (PREFILL, MIXED, DECODE, IDLE)


class Iteration(NamedTuple):
    """Requests that an iteration of an engine served, and their tokens; None where the name does not say.

    `prompt_tokens` are read in it, `new_tokens` are fed in for requests that generate, one a request except for
    speculation. `context` is the sum over requests of the tokens that a token attends to (the KV cache that is read).
    """

    prompts: int
    generating: int
    prompt_tokens: int | None
    new_tokens: int | None
    context: int | None = None

    @property
    def phase(self) -> str:
        """`prefill`, `decode`, `mixed`, or `idle` where nothing was served."""
        if self.prompts:
            return MIXED if self.generating else PREFILL
        return DECODE if self.generating else IDLE

    @property
    def details(self) -> int:
        """Return the number of its known numbers."""
        return sum(value is not None for value in self)


_COUNTED = re.compile(r"execute_context_(\d+)\((\d+)(?:_\d+)?\)_generation_(\d+)\((\d+)(?:_\d+)?\)")
_SUMMED = re.compile(r"execute_\d+_context_(\d+)\(sq(\d+)sk(\d+)\w*\)_generation_(\d+)\(sq(\d+)sk(\d+)\w*\)")
_SGLANG = re.compile(r"step\[(\w+)((?: \w+=\d+)*)\]")
_TENSORRT = re.compile(r"\[Executor\] _forward_step(?: \d+)?: (\d+) ctx reqs, (?:(\d+) ctx tokens, )?(\d+) gen reqs")
_LONGEST = 200  # characters of a name that is looked at


@lru_cache(maxsize=65536)
def iteration_of(name: str) -> Iteration | None:
    """Return what the range called `name` served; None for a range that is not an iteration of an engine."""
    if len(name) > _LONGEST:
        return None
    if found := _COUNTED.fullmatch(name):
        prompts, tokens, generating, new = map(int, found.groups())
        return Iteration(prompts, generating, tokens, new)
    if found := _SUMMED.fullmatch(name):
        prompts, tokens, read, generating, new, attended = map(int, found.groups())
        return Iteration(prompts, generating, tokens, new, read + attended)
    if found := _TENSORRT.fullmatch(name):
        prompts, generating = int(found[1]), int(found[3])
        return Iteration(prompts, generating, int(found[2]) if found[2] else _none(prompts), _none(generating))
    return _sglang(name)


def _none(requests: int) -> int | None:
    """The tokens of `requests` of which only the number is known: none of none."""
    return None if requests else 0


def _sglang(name: str) -> Iteration | None:
    """An iteration of SGLang, by its forward mode."""
    found = _SGLANG.fullmatch(name)
    if found is None:
        return None
    said = {key: int(value) for key, value in (pair.split("=") for pair in found[2].split())}
    requests, tokens = said.get("bs", 0), said.get("toks")
    match found[1]:
        case "DECODE":
            return Iteration(0, requests, 0, tokens if tokens is not None else requests)
        case "EXTEND" | "PREFILL":
            return Iteration(requests, 0, tokens, 0)
        case "TARGET_VERIFY" | "DRAFT_EXTEND":
            return Iteration(0, requests, 0, tokens)
        case "IDLE":
            return Iteration(0, 0, 0, 0)
    return None  # MIXED does not say which of its requests are prompts
