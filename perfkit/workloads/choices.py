"""One wording for a name that is not among the known ones, and one for an option's value that is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from perfkit.errors import UsageError


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a `name` that is not in `known`: it names the nearest choice, and all of them.

    `what` is the thing's name in the sentence, such as "preset of gpt2".
    """
    choices = list(known)
    question = f" {_nearest(name, choices)}".rstrip()
    listing = f"Known: {', '.join(choices)}." if choices else "There is nothing to choose from."
    return UsageError(f"There is no {what} called {name!r}.{question}", listing)


def not_one_of(option: str, value: str, known: Iterable[str]) -> UsageError:
    """Return the error for an option's `value` that is not in `known`: it names all choices, and the nearest."""
    choices = list(known)
    return UsageError(f"{option} is one of {', '.join(choices)}; not {value!r}.", _nearest(value, choices))


def _nearest(name: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else ""
