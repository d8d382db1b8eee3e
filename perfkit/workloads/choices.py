"""One wording for a name that is not among the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from perfkit.errors import UsageError


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for `name`, which is none of `known`: it names the nearest of them, and all.

    `what` is the thing's name in the sentence, such as "preset of gpt2".
    """
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    question = f" Did you mean {near[0]}?" if near else ""
    listing = f"Known: {', '.join(choices)}." if choices else "There are none to choose from."
    return UsageError(f"There is no {what} called {name!r}.{question}", listing)
