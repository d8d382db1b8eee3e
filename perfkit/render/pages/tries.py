"""Pages of `perfkit try` and `perfkit history`."""

from __future__ import annotations

import shlex

from perfkit import units
from perfkit.render.cells import Table, clean, figures, table, words
from perfkit.render.page import Item, Page, Section
from perfkit.render.pages import compare
from perfkit.tries.log import History, Logged, TryHistory
from perfkit.tries.results import ACCEPT, CANNOT_TELL, REJECT, Try

_TONES = {ACCEPT: "good", REJECT: "bad", CANNOT_TELL: "fair"}


def page(done: Try) -> Page:
    """The page of one try: decision, results, and both sides."""
    checked, comparison = done.checked, done.comparison
    results = f"Results: {checked.status}{f' ({checked.how})' if checked.how else ''}"
    if checked.error is not None:
        results += f"; the largest difference is {checked.error:.2g} of {checked.allowed:.2g} allowed"
    files = f"{', '.join(done.files[:5])}{' …' if len(done.files) > 5 else ''}"
    said = [results, f"Changed: {files}{', in the folder too' if done.kept else ''}"]
    if comparison and done.stopped:
        said.append(f"Measured: {comparison.how}; {done.stopped}; {done.steps_are}")
    sections = [Section(items=[Item(clean(sentence, 600)) for sentence in said])]
    sections += [section for section in compare.page_of(comparison).sections if section.table] if comparison else []
    return Page(
        title=f"Try {done.id}: {clean(shlex.join(done.command), 200)}",
        settings=[clean(done.machine_is), f"torch {done.torch or 'unknown'}"],
        verdict=[f"{done.decision}: {clean(done.reason, 500)}"],
        bad=done.decision == REJECT,
        sections=sections,
        warnings=[clean(note, 400) for note in [*done.notes, *(comparison.notes if comparison else [])]],
    )


def history_page(history: History) -> Page:
    """The log: a table for each machine and command, because only those may be compared."""
    count = sum(len(group.tries) for group in history.groups)
    machines = len({group.machine for group in history.groups})
    return Page(
        title=f"{count:,} {'try' if count == 1 else 'tries'}",
        settings=[clean(history.log, 300)],
        verdict=[f"Of {machines} machines: times of one are not comparable with those of another."] * (machines > 1),
        sections=[Section(table=_table(group)) for group in history.groups],
        warnings=[f"{history.damaged} lines of the log are damaged, and left out."] * bool(history.damaged),
    )


def _table(group: TryHistory) -> Table:
    tries = group.tries
    where = "this machine" if group.here else f"machine {group.machine}"
    return table(
        f"{clean(shlex.join(group.command), 60)} on {where} ({clean(group.machine_is, 50)})",
        words("try", [one.id for one in tries]),
        words("decision", [one.decision for one in tries], [_TONES.get(one.decision, "") for one in tries]),
        words("results", [one.results for one in tries], priority=2),
        figures("before", [one.before_ns for one in tries], "ns", priority=1),
        figures("after", [one.after_ns for one in tries], "ns", priority=1),
        words("÷ before (95 % interval)", [_ratio(one) for one in tries]),
        words("change", [one.change for one in tries], priority=1),
        words("files", [", ".join(one.files) for one in tries], least=12, priority=3),
    )


def _ratio(one: Logged) -> str:
    return units.ABSENT if one.ratio is None else "{:.3f} ({:.3f} to {:.3f})".format(*one.ratio)
