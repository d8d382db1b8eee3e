"""The languages that implementations are written in: the device each runs on, and how one is built and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.kernels.c import binding, toolchain
from perfkit.kernels.c.binding import Launch
from perfkit.kernels.declare import Family, Implementation, Operation


@dataclass(frozen=True)
class Language:
    """`unavailable` says in a sentence why it cannot run here; `launcher` builds and binds one implementation."""

    device: str
    unavailable: Callable[[], str | None]
    launcher: Callable[[Operation, Implementation, str], Launch]


LANGUAGES: dict[str, Language] = {
    "c": Language("cpu", toolchain.unavailable, binding.launcher),
}


def language(implementation: Implementation) -> Language:
    """The language of `implementation`. Raises `InputError` for one that perfkit does not know."""
    if implementation.language not in LANGUAGES:
        raise InputError(
            f"{implementation.source} is written in {implementation.language!r}, which perfkit does not know.",
            f"Kernels are written in: {', '.join(LANGUAGES)}.",
        )
    return LANGUAGES[implementation.language]


def candidates(operation: Operation, device: str, dtype: str) -> list[Implementation]:
    """The implementations for a device and precision, naive first."""
    found = [i for i in operation.implementations if dtype in i.dtypes and language(i).device == device]
    return sorted(found, key=lambda i: i.version)


def device_unavailable(families: Iterable[Family], device: str) -> str | None:
    """One sentence why no kernel runs on `device` ("cpu", "cuda", …) here, or None."""
    written = {i.language for f in families for o in f.operations for i in o.implementations}
    suited = sorted(name for name in written if name in LANGUAGES and LANGUAGES[name].device == device)
    if not suited:
        return f"The kernel catalog has no versions for {device}."
    reasons = [LANGUAGES[name].unavailable() for name in suited]
    return None if None in reasons else reasons[0]
