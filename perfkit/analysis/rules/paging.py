"""Memory that is given back and taken again in every step, so that the kernel must clear its pages each time."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.words import percent

_LEAST = 4e6  # bytes a step: less is not tensors
_NOTABLE = 0.02  # of the step


def _pages(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    fresh, system_ns = case.about.fresh_bytes, case.about.system_ns
    if fresh is None or system_ns is None:
        yield rule.cannot("the profile does not have the pages that a step takes from the system")
        return
    threads = max(1.0, float((case.about.environment.get("threads") or {}).get("count") or 1))
    time = system_ns / threads
    if fresh < _LEAST or case.of_step(time) < _NOTABLE:
        return
    over = f", {units.text(time, 'ns')} on each of {threads:.0f} threads" if threads > 1 else ""
    yield rule.finding(
        case,
        f"The kernel clears {units.text(fresh, 'B')} of fresh pages in every step",
        f"A timed step spends {units.text(system_ns, 'ns')} of CPU time in the operating system's kernel{over}: "
        f"{percent(case.of_step(time))} of the step. It is hidden in the operators that write these pages first.",
        time,
        time,
        bounded=False,
    )


FRESH_PAGES = Rule(
    name="fresh-pages",
    summary="large tensors are given back to the system and taken again in every step",
    where=ON_A_CPU,
    what="The C library's allocator maps a tensor of more than 32 MB by itself and unmaps it when it is freed, and it "
    "gives the free end of its heap back. The next step gets fresh pages, which the system must clear one by one. That "
    "time belongs to no operator, and is spent inside the one that writes them first.",
    recognised=f"Minor page faults in a timed step for more than {units.text(_LEAST, 'B')}, while its CPU time in the "
    "kernel, shared out over the threads, is at least 2 % of the step. Both are counted without a profiler.",
    estimate="All CPU time in the kernel, as if the threads shared it evenly. Some of it may be other system calls. "
    "It is not a bound, and the report does not call it one: where the pages of a program were kept, up to four times "
    "as much was saved, for a virtual machine's host and caches have work with fresh pages too. Measure the remedy.",
    remedies=(
        "Let the allocator keep what is freed. In a run of perfkit: --allocator keep. With glibc, start the program "
        "with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456; jemalloc and tcmalloc "
        "(LD_PRELOAD) can keep it too.",
        "Or take less: gradients set to None and made again are such (zero_grad(set_to_none=False) keeps them), "
        "and temporaries that an in-place operator, a fused optimizer or torch.compile does without.",
    ),
    example="A Trainer of transformers with a Llama of 19 M parameters, captured: the kernel takes 258 ms of a step "
    "for fresh pages; with glibc's variables a step took 0.97 s instead of 1.62. GPT-2 124M at B = 4, T = 64: 1.2 GB "
    "of fresh pages a step, 15 % of its CPU time; logits of 51 MB and the gradient of the embedding (154 MB) are among "
    "them.",
    find=_pages,
    rank=12,
)
RULES = (FRESH_PAGES,)
