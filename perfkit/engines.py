"""The names that serving engines give the ranges of their iterations, and what an iteration served.

vLLM         execute_context_2(512)_generation_30(30)                      requests (tokens), prompts and further tokens
             execute_context_1(888_788544)_generation_0(0)                 a further sum of the tokens, not used
             execute_542_context_2(sq512sk512…)_generation_30(sq30sk9000…)  sq: tokens, sk: tokens that they attend to
SGLang       step[DECODE bs=32], step[EXTEND bs=15 toks=15360], step[MIXED bs=5]
             step[MIXED bs=5 c=2 g=3 c_sq=6144 … c_sk=7144 g_sq=3 … g_sk=6144]     with roofline_annotations: c prompts,
             g requests that generate, sq and sk as above; without them MIXED says neither
ATOM         prefill[bs=2 tok=14721 ctx=[7803, 6918]], eager_decode[bs=32 tok=32 ctx=…]
             decode[bs=117/128 tok=117 d=117]                                      117 requests in a graph of 128
             decode[bs=128 tok=384 p=2 d=126 spec=2 … sk=258048]                   2 prompts, tok: tokens of all
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
    Of a mixed iteration whose name gives only their sum, all requests are `unsplit`, and neither of the other two.
    """

    prompts: int
    generating: int
    prompt_tokens: int | None
    new_tokens: int | None
    context: int | None = None
    unsplit: int = 0

    @property
    def requests(self) -> int:
        """Return the number of requests, whether they read a prompt or generate."""
        return self.prompts + self.generating + self.unsplit

    @property
    def phase(self) -> str:
        """`prefill`, `decode`, `mixed`, or `idle` where nothing was served."""
        if self.unsplit:
            return MIXED
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
_ATOM = re.compile(r"(prefill|(?:eager_)?decode)\[bs=(\d+)(?:/\d+)? tok=(\d+)((?: \w+=(?:\[[\d, ]*\][.+\d]*|\d+))*)\]")
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
    return _sglang(name) or _atom(name)


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
            new = said.get("g_sq", tokens)
            return Iteration(0, requests, 0, requests if new is None else new, said.get("g_sk"))
        case "EXTEND" | "PREFILL":
            return Iteration(requests, 0, said.get("c_sq", tokens), 0, said.get("c_sk"))
        case "TARGET_VERIFY" | "DRAFT_EXTEND":  # their tokens are named as a prompt's are
            return Iteration(0, requests, 0, said.get("c_sq", tokens), said.get("c_sk"))
        case "MIXED" if {"c", "g"} <= set(said):
            context = said["c_sk"] + said["g_sk"] if {"c_sk", "g_sk"} <= set(said) else None
            return Iteration(said["c"], said["g"], said.get("c_sq"), said.get("g_sq"), context)
        case "MIXED":
            return Iteration(0, 0, None, None, unsplit=requests)
        case "IDLE":
            return Iteration(0, 0, 0, 0)
    return None


def _atom(name: str) -> Iteration | None:
    """An iteration of ATOM. `sk` is there where its detailed annotation is on."""
    found = _ATOM.fullmatch(name)
    if found is None:
        return None
    said = {key: int(value) for key, value in re.findall(r" (\w+)=(\d+)(?= |$)", found[4])}
    requests, tokens, context = int(found[2]), int(found[3]), said.get("sk")
    if found[1] == "prefill":
        return Iteration(requests, 0, tokens, 0, context)
    prompts = said.get("p", 0)  # short ones, which a graph of decode serves
    generating = said.get("d", requests - prompts)
    return Iteration(prompts, generating, None if prompts else 0, None if prompts else tokens, context)
