"""Cases of a parametrised test and examples of a property that only `make test-full` has."""

from __future__ import annotations

import os
from typing import Any

import pytest

FULL = "PERFKIT_TEST_FULL"  # the environment variable that `make test-full` sets


def rest(*values: Any) -> Any:
    """One case, or one set of arguments, of which `make test` runs a like one: it has the marker `full`."""
    return pytest.param(*values, marks=pytest.mark.full)


def examples(few: int, many: int) -> int:
    """Return the number of examples of a property to try: `few` in `make test`, `many` in `make test-full`."""
    return many if os.environ.get(FULL) else few
