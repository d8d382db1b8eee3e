"""Sections of a backend that are files of their own, found by looking into this folder.

A module has `AFTER`, the name of the section in `perfkit.render.report.OF_BACKEND` that it follows, and
`sections(about)`, which yields `Section`s. One with the name of a field of `BackendReport` is imported and asked only
where that field holds something.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.analysis.results import BackendReport
    from perfkit.render.page import Section
    from perfkit.render.report import About

Make = Callable[["About"], Iterator["Section"]]


def found_after(backend: BackendReport) -> dict[str, list[Make]]:
    """The functions of the modules here that have something to show of `backend`, by the section that they follow."""
    by_name: dict[str, list[Make]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if getattr(backend, name, True):
            module = importlib.import_module(f"{__name__}.{name}")
            by_name.setdefault(module.AFTER, []).append(module.sections)
    return by_name
