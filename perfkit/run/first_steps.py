"""The first steps of a backend: their results become the reference, or are compared with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perfkit import correctness
from perfkit.backends.generation import Generation
from perfkit.backends.interface import AutogradProgram, Program
from perfkit.backends.parallel.ranks import Ranks
from perfkit.run import tokens
from perfkit.run.ranks import files
from perfkit.run.updates import Updates
from perfkit.run_folder import Settings
from perfkit.workloads import batch_formats

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload

    Step = Callable[[], tuple[Outputs, torch.Tensor | None]]


class Checking:
    """Holds a program against the reference in a folder, or writes it there."""

    def __init__(
        self, program: Program, workload: Workload, settings: Settings, ranks: Ranks, progress: Callable[[str], None]
    ) -> None:
        self.program, self.workload, self.settings, self.ranks = program, workload, settings, ranks
        self._progress = progress

    def steps(self, step: Step, steps: int, folder: Path, write: bool) -> dict[str, Any]:
        """Run `step` so often. Returns what was found, the time of the first step, and warnings."""
        losses: list[float] = []
        errors: dict[str, float | None] = {}
        first_ns = 0.0
        follows = self.settings.training and not write and not self.workload.has("step")
        updates = Updates(self.program, self.workload, self.settings) if follows else None
        for index in range(steps):
            self._progress(f"{'first steps' if write else 'correctness'} · step {index + 1} of {steps}")
            self.program.outputs_wanted = index == 0
            if updates:
                updates.before()
            started = time.perf_counter_ns()
            outputs, loss = step()
            if loss is not None:
                losses.append(self.ranks.mean(float(loss)))
            if index == 0:
                first_ns = float(time.perf_counter_ns() - started)
                errors = self._of_first(outputs, losses, folder, write)
            del outputs, loss
            if updates:
                updates.after(index + 1, compare=index in (0, steps - 1))
        if updates:
            updates.close()
        found = correctness.FirstSteps(
            losses=losses,
            errors=errors,
            updates=updates.errors if updates else {},
            updates_in=self.program.updates_in,
            parts=[] if write else self.program.checks(),
            problems=self.program.problems(),
        )
        warnings = updates.warnings if updates else [] if write else self._unchecked()
        return {"found": found, "first_step_ns": first_ns, "warnings": warnings}

    def tokens(self, generation: Generation, batch: Batch, folder: Path, write: bool) -> dict[str, Any]:
        """Run one step of a workload that generates tokens, then the same tokens with their logits; compare both."""
        self._progress("first tokens" if write else "correctness")
        started = time.perf_counter_ns()
        check = tokens.write if write else tokens.compare
        errors, checks = check(generation, cast(AutogradProgram, self.program), batch, folder)
        first_ns = float(time.perf_counter_ns() - started)
        found = correctness.FirstSteps(errors=errors, parts=checks, problems=self.program.problems())
        return {"found": found, "first_step_ns": first_ns, "warnings": []}

    def _of_first(
        self, outputs: Outputs, losses: Sequence[float], folder: Path, write: bool
    ) -> dict[str, float | None]:
        """Write the results of the first step, or measure their errors."""
        results = self._results(outputs, losses)
        if write:
            correctness.write_reference(folder, results)
            return {}
        with files.seen(folder, self.ranks) as near:
            errors = correctness.errors_against(near, results, self.ranks.rank, self.ranks.size)
        # Results that other ranks have and this one has not: their errors are NaN.
        return errors | dict.fromkeys(map(_gradient_of, self.program.elsewhere), math.nan)

    def _results(self, outputs: Outputs, losses: Sequence[float]) -> dict[str, torch.Tensor]:
        import torch

        results = batch_formats.by_name(outputs, correctness.OUTPUTS)
        if losses:
            results["loss"] = torch.tensor(losses[-1], dtype=torch.float64)
        if self.settings.training:
            results.update({_gradient_of(name): g for name, g in self.program.gradients().items()})
        return results

    def _unchecked(self) -> list[str]:
        """A step of the workload's own may change parameters by more than its optimizer: a schedule, a clipping."""
        own = self.settings.training and self.workload.has("step")
        return ["The step is the workload's own: what its optimizer changes was not checked by itself."] if own else []


def _gradient_of(name: str) -> str:
    return f"gradient of {name}"
