"""The other machine, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote.machine import Machine, started


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, shared_cache: object) -> Iterator[Machine]:
    made = started(tmp_path_factory.mktemp("afar"))
    yield made
    made.stop()
