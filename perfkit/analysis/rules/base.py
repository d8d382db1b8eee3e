"""Rules, the cases that they judge, and their answers.

A rule yields a `Finding` for each fault that it sees, or an `Unjudged` where the profile does not hold what it would
need. Its texts are the only ones: the report, `perfkit explain` and docs/findings.md all print them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from perfkit.analysis import source_lines
from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.results import BackendReport, Finding, Group, Reason, Unjudged
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.roof import Booleans, Integers, Judged, Reals
from perfkit.analysis.words import percent
from perfkit.hardware.ceilings import Ceilings
from perfkit.intervals import Union
from perfkit.numbers import first_rows, numbered, unique

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.run_folder import Power, Settings

ON_A_GPU, ON_A_CPU, ON_BOTH = "GPU", "CPU", "CPU and GPU"
WITH_COUNTERS = "GPU, with counters of Nsight Compute"
_DEVICES = {ON_A_GPU: "cuda", ON_A_CPU: "cpu"}
WORTH = 0.02  # of the step: a finding that saves less is left out


@dataclass(frozen=True)
class Circumstances:
    """Facts of the run folder besides the table; empty for a profile outside of a run.
    `compiler` is what Dynamo counted: `graphs`, `graph_breaks` (reason → count), `recompilations` (`function`,
    `reason`, `ns`); None where no compiler ran, or nobody asked it.
    """

    settings: Settings | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    compiler: Mapping[str, Any] | None = None
    steps_run: int = 0  # all steps of the backend's process: correctness, warm-up, timed, profiled
    fresh_bytes: float | None = None  # of the pages that a timed step got from the kernel
    system_ns: float | None = None  # CPU time of a timed step in the kernel, over all threads
    replays: bool = False  # the timed steps replay CUDA graphs, the profiled ones do not
    power: Power | None = None  # of the GPU during timed steps


@dataclass(frozen=True)
class Case:
    """One backend's table and report, as a rule sees it. `frame` holds the rows that count, `judged` their roofs."""

    report: BackendReport
    frame: pd.DataFrame
    judged: Judged
    facts: Mapping[str, Any]
    ceilings: Ceilings | None
    steps: int
    about: Circumstances
    claims: list[tuple[Finding, Booleans]] = field(default_factory=list)  # findings about rows, and which
    saved: list[Reals] = field(default_factory=list)  # of each claim what it saves on each row, ns
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _codes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # of each row, and the words they mean

    def explained(self, rows: Booleans) -> float:
        """Return the saving of the shown findings so far on `rows`, ns a step: on each row the largest."""
        shown = [saved for (finding, _), saved in zip(self.claims, self.saved, strict=True) if finding.share >= WORTH]
        return self.per_step(np.max([saved[rows] for saved in shown], axis=0).sum()) if shown else 0.0

    def unclaimed(self, rows: Booleans) -> Booleans:
        """Return those of `rows` that no shown finding is about yet: a symptom does not repeat its cause."""
        for finding, theirs in self.claims:
            rows = rows & ~theirs if finding.share >= WORTH else rows
        return rows

    @property
    def step_ns(self) -> float:
        """The timed step, else the profiled one, else the kernel time."""
        account = self.report.accounting
        return (account.timed_step_ns or account.profiled_step_ns) if account else self.report.kernel_ns

    @property
    def a_step(self) -> str:
        """The words after a number in a sentence: " a step" if amounts are of a step."""
        return " a step" if self.report.per == "step" else ""

    def of_whole(self, ns: float) -> str:
        """A time of a profiled step as a share of the step, or of what else amounts are of: `9.1 % of the step`."""
        return f"{percent(self.share(ns))} of the {self.report.per}"

    @property
    def on_cpu(self) -> bool:
        """Return whether the kernels run on the host, where the profiler lengthens them."""
        return self.report.device == "cpu"

    @property
    def compiled(self) -> bool:
        """Return whether torch.compile is in use already."""
        return self.about.compiler is not None or bool((self.facts.get("compiled") or {}).get("regions"))

    @property
    def by_xla(self) -> bool:
        """Return whether XLA compiled the program: PyTorch's remedies do not apply then."""
        return "hlo_modules" in self.facts

    @property
    def loader_workers(self) -> bool:
        """Return whether batches come from a DataLoader with worker processes already."""
        return bool(self.facts.get("loader_workers"))

    def share(self, ns: float) -> float:
        """A time of a profiled step as a share of the step."""
        return self.of_step(self.unprofiled(ns) if self.on_cpu else ns)

    def of_step(self, ns: float) -> float:
        """A time without a profiler as a share of the step."""
        return ns / self.step_ns if self.step_ns else 0.0

    def between(self, ns: float) -> float:
        """Time on the host between kernels, without the profiler where the kernels' own time is."""
        return ns if self.on_cpu else self.unprofiled(ns)

    def unprofiled(self, ns: float) -> float:
        """Return a time on the host without the profiler: it shrinks as the whole step does."""
        account = self.report.accounting
        if account is None or not account.timed_step_ns or not account.profiled_step_ns:
            return ns
        return ns * min(1.0, account.timed_step_ns / account.profiled_step_ns)

    def per_step(self, amount: float) -> float:
        """An amount of the whole table, a step."""
        return float(amount) / max(self.steps, 1)

    def time(self, rows: Booleans) -> float:
        """Time of some rows, ns a step."""
        return self.per_step(np.nansum(self.judged.time[rows]))

    def freed(self, rows: Booleans | None) -> float:
        """The most that the step loses without `rows` of a GPU, ns: all but the time in which others run."""
        if rows is None or self.on_cpu or self.report.accounting is None:
            return float("inf")
        start, length = (self.frame[name].to_numpy(float, na_value=np.nan) for name in ("start_ns", "duration_ns"))
        if not np.isfinite(start).all():
            return float("inf")
        devices = self.frame["device"].astype(object).to_numpy()
        others = [(devices == one) & ~rows for one in dict.fromkeys(devices.tolist())]
        busy = max((Union(start[mine], (start + length)[mine]).length for mine in others), default=0.0)
        return max(self.step_ns - self.per_step(busy), 0.0)

    def is_in(self, column: str, values: Collection[str]) -> Booleans:
        """The rows whose `column` is one of `values`."""
        return self.passing(column, lambda word: word in values)

    def codes(self, column: str) -> tuple[Integers, Sequence[Any]]:
        """Return for each row the place of its value among the distinct ones of a column, −1 for absent; and these."""
        if column not in self._codes:
            self._codes[column] = self.frame[column].factorize()
        return self._codes[column]

    def passing(self, column: str, test: Callable[[Any], bool]) -> Booleans:
        """The rows whose value in `column` passes `test`, which is asked once for each value; not those without."""
        codes, words = self.codes(column)
        return np.array([*map(test, words), False], bool)[codes]  # the last is for −1, absent

    def operators(self) -> list[str]:
        """The operator that each row is: on a CPU its own name, on a GPU that of the operator that launched it."""
        if self.report.device != "cuda":
            return self.text("name")
        if "" not in self._texts:
            pairs = zip(self.text("operator"), self.text("name"), strict=True)
            self._texts[""] = [operator or name for operator, name in pairs]
        return self._texts[""]

    def text(self, column: str) -> list[str]:
        """A column of text, "" where it is absent; asked for often, so made once."""
        if column not in self._texts:
            codes, words = self.codes(column)
            self._texts[column] = np.array([*words, ""], dtype=object).take(codes, mode="wrap").tolist()
        return self._texts[column]

    def named(self, test: Callable[[str], bool]) -> Booleans:
        """The rows whose name passes `test`, which is asked once for each name."""
        return self.passing("name", test)

    @cached_property
    def short_names(self) -> np.ndarray[Any, np.dtype[np.object_]]:
        """The short name of each row, else its whole name."""
        found: np.ndarray[Any, np.dtype[np.object_]] = self._short.to_numpy(object)
        return found

    @cached_property
    def _short(self) -> Any:
        return self.frame["short_name"].fillna(self.frame["name"])

    @cached_property
    def _short_codes(self) -> tuple[Integers, Sequence[Any]]:
        code, words = self._short.factorize()
        return code, words

    @cached_property
    def shapes(self) -> np.ndarray[Any, np.dtype[np.object_]]:
        """The shapes of each row as text, "" where they are absent."""
        return np.array(self.text("shapes"), object)

    def named_short(self, name: str) -> Booleans:
        """The rows of one kernel by its short name, as groups have it."""
        return self.called((name,))

    def called(self, names: Collection[str]) -> Booleans:
        """The rows of kernels of these short names."""
        codes, words = self._short_codes
        return np.array([word in names for word in words], bool)[codes]

    def lines_of(self, rows: Booleans | None, measure: str) -> list[SourceLine]:
        """The source lines of some rows, by their time; without rows those with the most of `measure`."""
        if rows is None:
            return source_lines.by_measure(self.facts, measure)
        codes, lines = self.codes("line")
        used, own = numbered(codes[rows])
        first = first_rows(own, len(used))
        time = np.bincount(own, np.nan_to_num(self.judged.time[rows], posinf=0.0), len(used))
        order = np.argsort(first)
        names = [str(lines[i]) if i >= 0 else "" for i in used[order].tolist()]
        return source_lines.by_lines(self.facts, dict(zip(names, time[order].tolist(), strict=True)))

    def lines_of_kernels(self, kernels: Sequence[str]) -> list[SourceLine]:
        """The source lines of the rows of these kernels, by short name."""
        return self.lines_of(self.called(kernels), "") if kernels else []

    def main_kernels(self, rows: Booleans, most: int = 8) -> list[str]:
        """Short names of the kernels among `rows`, the longest first."""
        codes, words = self._short_codes
        codes = codes[rows]
        total = np.bincount(codes, np.nan_to_num(self.judged.time[rows]), len(words))
        used = [(words[i], total[i]) for i in unique(codes).tolist()]
        return [str(name) for name, _ in sorted(used, key=lambda one: (-one[1], one[0]))[:most]]


R = TypeVar("R", bound="Texts")
UNRANKED = 50  # of a rule that says nothing: after the causes of waiting, before single kernels
OF_KERNELS = 60  # from here on: rules that need no step around the kernels


@dataclass(frozen=True)
class Texts:
    """The texts of a rule: `what` the fault is, how it is `recognised`, what the `estimate` assumes.

    Rules are asked by their `rank`, causes before symptoms: those that come later leave out what one has claimed.
    """

    name: str
    summary: str
    where: str
    what: str
    recognised: str
    estimate: str
    remedies: tuple[str, ...]
    example: str
    rank: int = field(default=UNRANKED, kw_only=True)

    @property
    def remedy(self) -> str:
        """The remedies as one paragraph."""
        return " ".join(self.remedies)

    def cannot(self, why: str) -> Unjudged:
        """That this rule cannot judge the profile, and why."""
        return Unjudged(self.name, why)


def collected(package: str, kind: type[R]) -> tuple[R, ...]:
    """The rules in the files of a package that have `RULES`, by rank, then in the order of their files."""
    folder = importlib.import_module(package).__path__
    names = sorted(one.name for one in pkgutil.iter_modules(folder))
    modules = (importlib.import_module(f"{package}.{name}") for name in names)
    rules = [rule for module in modules for rule in getattr(module, "RULES", ()) if isinstance(rule, kind)]
    return tuple(sorted(rules, key=lambda rule: rule.rank))


@dataclass(frozen=True)
class Rule(Texts):
    """A named rule. `find` answers for a case; `explain`, of a rule over counters, for one kernel group, and `find`
    then makes findings of its reasons. `needs` names what a rule is about: a field of the report or of its
    circumstances, or a fact.
    """

    find: Callable[[Rule, Case], Iterable[Finding | Unjudged]]
    explain: Callable[[Rule, Group, Counters], Reason | None] | None = None
    needs: str = ""

    def is_about(self, case: Case) -> bool:
        """Return whether it is asked: of its device, where the profile has what it `needs`."""
        if self.where in _DEVICES and case.report.device != _DEVICES[self.where]:
            return False
        return (
            not self.needs
            or any(getattr(part, self.needs, None) for part in (case.report, case.about))
            or bool(case.facts.get(self.needs))
        )

    def finding(
        self,
        case: Case,
        title: str,
        evidence: str,
        time_ns: float,
        saving_ns: float,
        rows: Booleans | None = None,
        count: float = 0.0,
        kernels: Sequence[str] = (),
        remedy: str = "",
        bounded: bool = True,
        saves: Reals | None = None,
        measure: str = "",
        lines: Sequence[SourceLine] = (),
    ) -> Finding:
        """A finding of this rule, about `rows` where it is about kernels; times are ns a step.

        What kernels on a CPU save (`rows`, or `kernels` by name) shrinks from the profiled step to the timed one.
        Nothing saves more than the step, or than what the GPU does for other rows leaves. Its source lines are `lines`,
        else those of its rows, else those with the most of `measure` (`analysis.source_lines`) or of its rule's, else
        those of its kernels.
        """
        about = measure or source_lines.measure_of(self.name)
        saved_ns = saving_ns
        if case.on_cpu and (rows is not None or kernels):
            saving_ns = case.unprofiled(saving_ns)
        saving_ns = max(0.0, min(saving_ns, case.step_ns or saving_ns, case.freed(rows)))
        kernels = kernels if rows is None else case.main_kernels(rows)
        count = count if rows is None else case.per_step(rows.sum())
        found = Finding(
            name=self.name, title=title, evidence=evidence, remedy=remedy or self.remedy, time_ns=time_ns,
            saving_ns=saving_ns, share=case.of_step(saving_ns), kernels=list(kernels), count=count,
            bounded=bounded,
            lines=list(lines) or case.lines_of(rows, about) or ([] if about else case.lines_of_kernels(kernels)),
        )  # fmt: skip
        if rows is not None:
            case.claims.append((found, rows))
            time = np.where(rows, np.nan_to_num(case.judged.time), 0.0)
            even = time * min(1.0, saved_ns * case.steps / time.sum()) if time.any() else time
            case.saved.append(even if saves is None else saves)
        return found

    def reason(self, label: str, text: str, saving_ns: float | None, remedy: str = "", **more: Any) -> Reason:
        """Why a kernel group takes its time, by this rule; without a `remedy` of its own it has the rule's."""
        return Reason(name=self.name, label=label, text=text, remedy=remedy or self.remedy, saving_ns=saving_ns, **more)
