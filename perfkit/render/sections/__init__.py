"""Sections of a backend that are files of their own, found by looking into this folder.

A module has `AFTER`, the name of the section in `perfkit.render.report.OF_BACKEND` that it follows, and
`sections(about)`, which yields `Section`s.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.render.page import Section
    from perfkit.render.report import About

Make = Callable[["About"], Iterator["Section"]]


@functools.cache
def found_after() -> dict[str, list[Make]]:
    """The functions of the modules here, by the section that they follow."""
    by_name: dict[str, list[Make]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        by_name.setdefault(module.AFTER, []).append(module.sections)
    return by_name
