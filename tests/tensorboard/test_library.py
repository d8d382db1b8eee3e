"""Work in threads: made once, kept within a limit, failures reported."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from perfkit.errors import InputError, PerfkitError
from perfkit.tensorboard.library import Library, Task


def made(library: Library, key: str, size: int = 1) -> Any:
    return library.ask(key, lambda task: (key.upper(), size)).result.result(timeout=30)


def test_a_result_is_made_once_however_many_ask() -> None:
    library, calls, go = Library(), [], threading.Event()

    def make(task: Task) -> tuple[str, int]:
        calls.append(task)
        task.stage = "reading"
        go.wait(30)
        return "made", 1

    tasks = [library.ask("key", make) for _ in range(5)]
    assert not tasks[0].result.done() and tasks[0].seconds >= 0
    go.set()
    assert [task.result.result(timeout=30) for task in tasks] == ["made"] * 5
    assert len(calls) == 1


def test_the_least_recently_used_goes_first() -> None:
    library = Library(limit=10)
    for key in ("a", "b", "a", "c"):  # a is used again before c needs room
        made(library, key, 4)
    again: list[str] = []
    for key in ("a", "b"):
        library.ask(key, lambda task, key=key: (again.append(key), 4)).result.result(timeout=30)  # type: ignore[misc]
    assert again == ["b"]
    assert library.kept() <= 10


def test_what_is_larger_than_the_limit_is_kept_until_the_next() -> None:
    library = Library(limit=10)
    assert made(library, "large", 100) == "LARGE"
    assert library.kept() == 100
    made(library, "small", 1)
    assert library.kept() == 1


def test_failures_are_told_and_a_defect_is_no_endless_wait() -> None:
    library = Library()

    def fails(error: BaseException) -> PerfkitError:
        def make(task: Task) -> tuple[None, int]:
            raise error

        found = library.ask(repr(error), make).result.exception(timeout=30)
        assert isinstance(found, PerfkitError)
        return found

    assert fails(InputError("It is damaged.", "Capture it again.")).hint == "Capture it again."
    assert "not enough memory" in fails(MemoryError()).message
    assert fails(ZeroDivisionError("x")).message == "perfkit failed on it: ZeroDivisionError: x"


def test_a_maker_uses_another_result_even_when_no_thread_is_free() -> None:
    library = Library(workers=1)

    def outer(task: Task) -> tuple[str, int]:
        return library.obtain("inner", lambda inner: ("inner", 1), task) + " in outer", 1

    assert library.ask("outer", outer).result.result(timeout=30) == "inner in outer"
    with pytest.raises(InputError):
        library.obtain("bad", _raise, library.ask("outer", outer))


def _raise(task: Task) -> tuple[None, int]:
    raise InputError("It is damaged.")
