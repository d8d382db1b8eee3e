"""A whole run: the reference, then each backend checked, timed (interleaved) and profiled, into one run folder.

The parent process never runs a model. It drives one child process a backend, with --ranks a group of processes:

    load        on a GPU all processes start, and import what they need while the reference runs
    reference   eager in fp64, or in fp32 where that finds no room: outputs and gradients of the first step, losses of
                the first steps (in fp32 of the first one alone), into a scratch folder
    check       each backend against the reference; these steps are its warm-up too
    time        a few steps of each backend in turn, forwards and backwards (A B C, C B A, …), no profiler
    profile     each backend alone, under torch.profiler, and its trace read into the kernel table
    nsight      where asked for: each backend once more, in a new process that ncu or nsys watches

All files are made in a temporary folder next to the final one, which is renamed when the run is whole.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import perfkit
from perfkit.backends.parallel.ranks import carrier
from perfkit.capture import folders
from perfkit.errors import PerfkitError
from perfkit.hardware import identity, store
from perfkit.hardware.ceilings import Ceilings, to_json
from perfkit.hardware.cpu import read_cpu
from perfkit.run import counters, memory
from perfkit.run.backends import LOG, Progress, RunningBackend, guarded, together
from perfkit.run.child import Child
from perfkit.run.ranks.group import RankProcesses, processes
from perfkit.run.ranks.hosts import THREADS, threads
from perfkit.run.ranks.meeting import Meeting
from perfkit.run.ranks.rendezvous import Rendezvous
from perfkit.run.stages.nsight import add_nsight
from perfkit.run.stages.profiling import finish
from perfkit.run.stages.reference import REFERENCE, Reference, checked_steps, demonstrate, judge, run_reference
from perfkit.run.stages.timing import time_in_turns
from perfkit.run_folder import (
    TIMED_ALONE,
    TIMED_APART,
    BackendRun,
    Manifest,
    Settings,
    WorkloadFacts,
    World,
    write_manifest,
    write_whole,
)

RANKS_SHARE = (
    "The ranks share this CPU: the kernels of rank 0 are judged by what the threads of one rank reach alone, and "
    "memory bandwidth is shared by all."
)
ROOMY = 0.5  # of a GPU's memory, that all members together may take as they prepare
FULL = 0.6  # of a GPU's memory: where eager's first steps took this share, two backends hardly fit together


@dataclass
class Session:
    """One run of `settings` on `backends`: name → what `perfkit.backends.get` finds it by, its name or its file's path.

    `unavailable` maps the names of those that cannot run here to the reason.
    """

    settings: Settings
    backends: Mapping[str, str]
    out: Path
    unavailable: dict[str, str] = field(default_factory=dict)
    overwrite: bool = False
    progress: Progress = lambda who, text: None
    nsight: counters.NsightPlan | None = None
    meeting: Meeting | None = None  # where several hosts meet; this is the first one
    nsight_problems: list[PerfkitError] = field(default_factory=list)  # what `nsight` asked for and did not get
    _rendezvous: Rendezvous | None = None  # of the hosts, while the run lasts

    def run(self) -> Path:
        """Do everything; return the run folder. Raises `PerfkitError` when not even the reference could run."""
        folders.check_out(self.out, self.overwrite)
        if self.meeting is None:
            return self._run()
        with Rendezvous(self.meeting) as self._rendezvous:
            return self._run()

    def _run(self) -> Path:
        ceilings = self._ceilings()
        environment = identity.environment()
        with folders.made(self.out) as folder:
            write_whole(folder / "ceilings.json", to_json(ceilings))
            with tempfile.TemporaryDirectory(prefix=".scratch-", dir=folder) as scratch:
                facts, records = self._capture(folder, Path(scratch))
            manifest = Manifest(
                perfkit=perfkit.__version__,
                created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                command=["perfkit", *sys.argv[1:]],
                settings=self.settings,
                workload=facts,
                environment=environment,
                fingerprint=ceilings.fingerprint,
                world=self._world(records),
                backends=records,
                warnings=list(dict.fromkeys(map(_without_nsight, self.nsight_problems))),
            )
            write_manifest(folder, manifest)
        return self.out

    def _ceilings(self) -> Ceilings:
        """The device's; of a CPU that several ranks share those of one rank's threads, by which each is judged."""
        settings, device = self.settings, self.settings.device
        shared = settings.in_group and device == "cpu"
        ceilings = store.load_or_measure(
            device,
            progress=lambda text: self.progress("ceilings", str(text)),
            threads=min(int(threads(settings)[THREADS]), read_cpu().usable) if shared else None,
        )
        if shared and (kept := store.kept_ceilings(device)):
            ceilings.collectives = kept.collectives
        return ceilings

    def _world(self, records: Sequence[BackendRun]) -> World | None:
        settings = self.settings
        if not settings.in_group:
            return None
        hosts = dict.fromkeys(rank.host for record in records for rank in record.ranks)
        return World(
            ranks=settings.ranks,
            parallel=settings.parallel,
            backend=carrier(settings),
            hosts=list(hosts),
            threads=int(threads(settings)[THREADS]),
        )

    def _capture(self, folder: Path, scratch: Path) -> tuple[WorkloadFacts, list[BackendRun]]:
        members = [RunningBackend(self._record(name), folder / name) for name in self._order()]
        available = [m for m in members if m.record.status != "unavailable"]
        with self._loaded(available):
            reference = run_reference(self.settings, self._child, self.progress, folder / REFERENCE, scratch)
            self._run_groups(self._groups(available, reference.facts), members[0], reference, scratch)
        if self.nsight is not None:
            self.nsight_problems += add_nsight(self.nsight, members, self.settings, self._backend, self.progress)
        return reference.facts, [m.record for m in members]

    @contextlib.contextmanager
    def _loaded(self, members: Sequence[RunningBackend]) -> Iterator[None]:
        """On a GPU, start the members' processes, which import what they need while the reference runs.

        On a CPU they would slow it down. Those that were not needed in the end are let go.
        """
        if self.settings.device == "cpu" or self.settings.in_group:
            yield
            return
        with contextlib.ExitStack() as stack:
            for member in members:
                member.child = self._child(member.name, member.folder, self.settings)
                stack.push(member.child)
                member.child.begin("load", settings=self.settings, backend=self._backend(member))
            yield

    def _run_groups(
        self, groups: list[list[RunningBackend]], eager: RunningBackend, reference: Reference, scratch: Path
    ) -> None:
        """Prepare, check, time and profile the members of each group, which live together."""
        if len(groups) > 1:
            for member in (m for group in groups for m in group):
                member.let_go()  # memory is scarce
        while groups:
            group = groups.pop(0)
            with contextlib.ExitStack() as stack:
                kept: list[RunningBackend] = []
                for planned in self._waves(group, reference.share):
                    wave = [member for member in planned if not member.crowded]
                    self._start(stack, wave, scratch)
                    for member in wave:
                        if not self._crowded_out(member, group):
                            judge(member, eager, reference, self.settings.dtype)
                            kept.append(member)
                    if eager in wave and eager.alive and reference.standard is None:
                        guarded(eager, partial(_demonstrate, eager, reference))
                    if wave == [eager]:
                        self._make_room(eager, group[1:])
                time_in_turns([m for m in kept if m.alive and m.record.timed], self.settings, self.progress)
                for member in kept:
                    finish(member, self.settings)
                groups += [[self._again(m)] for m in group if self._crowded_out(m, group)]

    def _crowded_out(self, member: RunningBackend, group: Sequence[RunningBackend]) -> bool:
        """Return whether it found too little memory along with the others. Eager, by whose error they are judged, comes
        first.

        It is then tried again alone; on several hosts not, whose ranks are started once.
        """
        if self.meeting is not None:
            return False
        return member.crowded and len(group) > 1 and (member is not group[0] or bool(member.first))

    def _make_room(self, eager: RunningBackend, others: Sequence[RunningBackend]) -> None:
        """After eager's first steps: where they took most of a GPU, the others are too many, as each would find out
        after minutes of compiling. Eager itself goes where it is here to judge by only."""
        if self.settings.device != "cpu" and not self.settings.in_group and eager.alive:
            assert eager.child is not None
            full = eager.child.call("memory_share") > FULL
            for member in others:
                member.crowded = full
        if not eager.record.timed:
            eager.let_go()

    def _again(self, member: RunningBackend) -> RunningBackend:
        """Reset a member that found too little memory along with the others to its state before it started."""
        member.let_go()
        member.record, member.crowded = self._record(member.name), False
        member.record.warnings.append(TIMED_APART)
        return member

    def _order(self) -> list[str]:
        """Eager first, because the others are judged by its error; then as named, each once.

        Ranks are judged by eager in one process alone.
        """
        return list(dict.fromkeys([*([] if self.settings.in_group else [REFERENCE]), *self.backends]))

    def _record(self, name: str) -> BackendRun:
        record = BackendRun(name=name, timed=name in self.backends)
        if self.settings.ranks > 1 and self.settings.device == "cpu":
            record.warnings.append(RANKS_SHARE)
        if name in self.unavailable:
            record.status, record.reason, record.timed = "unavailable", self.unavailable[name], False
        return record

    def _child(self, name: str, folder: Path, settings: Settings) -> Child | RankProcesses:
        environment = {"CUDA_LAUNCH_BLOCKING": "1"} if self.settings.launch_blocking else {}
        say = partial(self.progress, name)
        index = list(self.backends).index(name) if name in self.backends else 0
        return processes(name, settings, folder / LOG, environment, say, self._rendezvous, index)

    def _groups(self, members: Sequence[RunningBackend], facts: WorkloadFacts) -> list[list[RunningBackend]]:
        """All in one group, alive together and interleaved, where memory allows; else each alone."""
        words = 4 if self.settings.training else 2  # parameters, gradients, two moments; outputs and activations on top
        need = len(members) * self.settings.ranks * (facts.parameters * 4.0 * words + 2e9) / self.settings.hosts
        available = memory.available_bytes()
        if available is None or need < 0.8 * available:
            return [list(members)]
        for member in members:
            member.record.warnings.append(TIMED_ALONE)
        return [[m] for m in members]

    def _waves(self, group: list[RunningBackend], share: float) -> list[list[RunningBackend]]:
        """Members that build, compile and take their first steps at the same time.

        Beside a GPU that is host work of separate processes. The first, by whose error the others are judged, goes
        before them, unless all find room by what the reference took (`share` of the memory). On a CPU they would slow
        each other down, and the times of preparation would mean nothing.
        """
        if self.settings.device == "cpu":
            return [[member] for member in group]
        if share * len(group) < ROOMY:
            return [group]
        return [wave for wave in (group[:1], group[1:]) if wave]

    def _backend(self, member: RunningBackend) -> str:
        return self.backends.get(member.name, member.name)

    def _start(self, stack: contextlib.ExitStack, members: Sequence[RunningBackend], scratch: Path) -> None:
        """Start the members' processes where they do not live, prepare them, and take their first steps."""
        for member in members:
            if member.child is not None:
                guarded(member, partial(_loaded, member.child))
            else:
                member.child = self._child(member.name, member.folder, self.settings)
            stack.push(member.child)
        prepared = {"settings": self.settings}
        together(members, "prepare", lambda m: {**prepared, "backend": self._backend(m)}, lambda m, _: None)
        first = {"steps": checked_steps(self.settings), "reference": str(scratch)}
        together(members, "first_steps", lambda _: first, self._keep_first)

    def _keep_first(self, member: RunningBackend, first: dict[str, Any]) -> None:
        member.first = first
        member.record.losses = first["found"].losses
        member.record.prepare_ns = first["prepare_ns"]
        member.record.first_step_ns = first["first_step_ns"]
        member.record.warnings += first["warnings"]


def _demonstrate(eager: RunningBackend, reference: Reference) -> None:
    assert eager.child is not None
    demonstrate(eager.child, reference.facts)


def _loaded(child: Child | RankProcesses) -> None:
    child.result()


def _without_nsight(problem: PerfkitError) -> str:
    return f"Nothing of Nsight's is in this report. {problem}"
