"""One wording for a name that is not among the known ones, and one for an option's value that is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from perfkit.errors import UsageError


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for `name`, which is none of `known`: it names the nearest of them, and all.

    `what` is the thing's name in the sentence, such as "preset of gpt2".
    """
    choices = list(known)
    question = f" {_nearest(name, choices)}".rstrip()
    listing = f"Known: {', '.join(choices)}." if choices else "There are none to choose from."
    return UsageError(f"There is no {what} called {name!r}.{question}", listing)


def not_one_of(option: str, value: str, known: Iterable[str]) -> UsageError:
    """The error for an option's `value` that is none of `known`: it names all, and the nearest of them."""
    choices = list(known)
    return UsageError(f"{option} is one of {', '.join(choices)}; not {value!r}.", _nearest(value, choices))


def _nearest(name: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else ""
