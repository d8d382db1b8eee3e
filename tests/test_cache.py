"""The cache's locks: what several processes need is made once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from perfkit.cache import locked


def test_what_several_need_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    path, made = tmp_path / "kernels" / "one.so", []

    def need() -> None:
        with locked(path):
            if not path.is_file():
                time.sleep(0.05)
                made.append(1)
                path.parent.mkdir(exist_ok=True)
                path.touch()

    threads = [threading.Thread(target=need) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_a_cache_that_cannot_be_written_takes_no_lock_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("PERFKIT_CACHE", str(blocker))
    with locked(blocker / "kernels" / "one.so"):
        entered = True
    assert entered
