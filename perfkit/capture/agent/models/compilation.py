"""Notes of the code that torch.compile generates in a program: which modules its kernels serve, their work.

Inductor is told to do without its cache of graphs, which says nothing of their kernels, and on a CPU to name its
kernels to profilers. Neither changes what they compute.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from perfkit.capture.agent.models.outermost import Models
from perfkit.capture.agent.patches import Patches
from perfkit.inductor.dynamo import Compilations

GENERATED = "generated.txt"


class Compilation:
    """Notes what Inductor generates from the first graph on, until `close`."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._open = contextlib.ExitStack()
        self._recording: Any = None  # an inductor.recording.Recording, once something is compiled
        self._options: dict[str, Any] = {}
        self._compilations = Compilations()

    def install(self, patches: Patches) -> None:
        """Wait for a graph that Inductor compiles, where this torch has the hook for it."""
        wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
        if wrapper is not None:
            patches.wrap(wrapper, "__call__", self._compiled)

    def close(self) -> None:
        """Note nothing more; Inductor's functions are as they were."""
        self._open.close()

    def _compiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(wrapper: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self._begin(graph)
            except Exception as error:  # a private structure that changed must never break the program's compilation
                if self._recording is not None:
                    self._recording.warn(f"A compiled graph is not described: {type(error).__name__}: {error}.")
            own = wrapper.config
            try:
                wrapper.config = {**own, **self._options}
                return original(wrapper, graph, *args, **kwargs)
            finally:
                wrapper.config = own

        return __call__

    def _begin(self, graph: Any) -> None:
        if self._recording is None:
            self._start()
        known = self._models.paths()
        for module in _traced(graph, known):
            self._models.add(module)
        from perfkit.profile_names import ROOT

        self._recording.sites.paths = {key: path or ROOT for key, path in self._models.paths().items()}
        self._models.wrappers_are_models = True

    def _start(self) -> None:
        from torch._inductor import config

        from perfkit.inductor.recording import CPU_OPTIONS, Recording, recording

        self._recording = Recording()
        known = config.get_config_copy()
        self._options = {name.replace("-", "_"): value for name, value in CPU_OPTIONS.items() if name in known}
        self._open.enter_context(recording(self._recording))

    def content(self) -> dict[str, Any]:
        """Call sites, work of kernels, and what Dynamo counted, as plain data; nothing where nothing was compiled."""
        counted = self._compilations.facts()
        if self._recording is None:  # by another compiler than Inductor
            return {"compiler": counted, "warnings": self._compilations.warnings()} if counted["graphs"] else {}
        from perfkit.inductor.work import work_of

        return {
            "call_sites": self._recording.graphs(),
            "kernels": {name: work_of(kernel) for name, kernel in self._recording.known().items()},
            "warnings": [*self._recording.said(), *self._compilations.warnings()],
            "compiler": counted,
        }

    def write(self, folder: Path) -> None:
        """Write the generated code into `folder`, where there is any."""
        if self._recording is not None and self._recording.code:
            from perfkit.inductor.recording import BETWEEN

            folder.mkdir(parents=True, exist_ok=True)
            (folder / GENERATED).write_text(BETWEEN.join(self._recording.code))


def _traced(graph: Any, known: Mapping[int, str]) -> list[torch.nn.Module]:
    """Modules that Dynamo went through to make `graph` and that are in no known model: those that a compiled function
    calls. A graph names them by their identity."""
    wanted = set()
    for node in graph.graph.nodes:
        for key in node.meta.get("nn_module_stack") or ():
            number = str(key).partition("@")[0]
            if number.isdigit() and int(number) not in known:
                wanted.add(int(number))
    if not wanted:
        return []
    return [one for one in gc.get_objects() if id(one) in wanted and issubclass(type(one), torch.nn.Module)]
