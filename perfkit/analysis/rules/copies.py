"""Rules about what moves between host and GPU, and between GPUs, while nothing else runs."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.rules.idle import waiting
from perfkit.analysis.step_results import COLLECTIVE, COPY, Exposed
from perfkit.analysis.words import number


def _collectives(rule: Rule, case: Case) -> Iterator[Finding]:
    if case.on_cpu:  # the rows only ask for them; the program's thread waits between operators
        yield from waiting(rule, case, "another rank", "Collectives on CPUs hold up the step")
        return
    for one in case.report.exposed:
        if one.kind == COLLECTIVE:
            many = "collective{} takes" if one.count == 1 else "collectives{} take"
            title = f"{number(one.count)} {many.format(case.a_step)} {units.text(one.time_ns, 'ns')}"
            yield from _uncovered(rule, case, one, title, ".")


def _copies(rule: Rule, case: Case) -> Iterator[Finding]:
    rates = {transfer.name: transfer.bandwidth for transfer in case.report.transfers}
    for copy in case.report.exposed:
        way = copy.name.split()[1].lower() if copy.kind == COPY and " " in copy.name else ""
        if rule.name == f"copies-{way}":
            rate = rates.get(copy.name)
            many = "copy{} takes" if copy.count == 1 else "copies{} take"
            counted = f"{number(copy.count)} {many.format(case.a_step)}"
            title = f"{copy.name}: {counted} {units.text(copy.time_ns, 'ns')}"
            yield from _uncovered(rule, case, copy, title, f"; they move {units.text(rate, 'B/s')}." if rate else ".")


def _uncovered(rule: Rule, case: Case, one: Exposed, title: str, more: str) -> Iterator[Finding]:
    if one.exposed_ns is not None:
        rows = case.named(lambda name: name == one.name)
        devices = case.frame["device"][rows].nunique()
        where = "CPU" if case.on_cpu else "GPU"
        summed = f", summed over {devices} GPUs," if devices > 1 else ""
        evidence = f"For {units.text(one.exposed_ns, 'ns')} of it{summed} the {where} runs nothing else{more}"
        saving, bound = _without_profiler(case, one)
        saving = min(saving, case.freed(rows)) if devices > 1 else saving
        yield rule.finding(
            case, title, evidence + bound, one.time_ns, saving, count=one.count, kernels=[one.name]
        )  # fmt: skip


def _without_profiler(case: Case, one: Exposed) -> tuple[float, str]:
    """Return the most that ending it saves, and a sentence if that is less than what is exposed in the profiled step: a
    profiler makes ranks wait for each other longer, and the step keeps its other kernels."""
    account, exposed = case.report.accounting, one.exposed_ns or 0.0
    if account is None or account.timed_step_ns is None or one.kind != COLLECTIVE:
        return exposed, ""
    left = max(account.timed_step_ns - (account.kernel_ns - exposed), 0.0)
    if left >= exposed:
        return exposed, ""
    profiled = units.text(account.profiled_step_ns, "ns")
    return left, (
        f" That is in a profiled step of {profiled}; without the profiler the step takes {units.text(left, 'ns')} "
        "beyond its other kernels, which bounds this."
    )


RULES = (
    Rule(
        "collectives", "communication between ranks that no computation covers", ON_BOTH,
        "While NCCL or gloo sends gradients or parameters, nothing else runs on the rank's device.",
        "The time of collectives in which no other kernel runs on their device; on a CPU the time in which the "
        "program's thread waits for one.",
        "All of that time, at most what a step without the profiler takes beyond its other kernels: a collective also "
        "waits for the slowest rank, which overlap does not end.",
        ("Overlap them with computation (bucketed or asynchronous gradients, prefetching), send less (bf16, gradient "
         "accumulation), or balance the ranks: a collective also waits for the slowest.",),
        "An all-reduce of all gradients after the backward pass instead of bucket by bucket during it.",
        _collectives, rank=62,
    ),
    *(
        Rule(
            f"copies-{way}", f"copies {words} that no kernel covers", ON_A_GPU,
            f"Copies {words} take time in which the GPU does nothing else.",
            "The time of such copies in which no kernel runs on the device.",
            "All of that time.", (remedy,), example, _copies, rank=62,
        )
        for way, words, remedy, example in (
            ("htod", "from host to GPU",
             "Copy earlier and next to the kernels: pinned memory (pin_memory=True) and non_blocking=True; keep on the "
             "GPU what every step needs.", "`batch.to('cuda')` of pageable memory at the start of a step."),
            ("dtoh", "from GPU to host",
             "Read back less, or less often; pinned memory and non_blocking=True keep the host from waiting.",
             "`predictions.cpu()` in every step."),
            ("dtod", "on the GPU", "Avoid the copy: write into place, or keep one layout.",
             "`torch.cat` of what one kernel could have written into one tensor."),
        )
    ),
)  # fmt: skip
