"""The languages that implementations are written in: the device each runs on, and how one is built and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.kernels import composed, cuda, triton
from perfkit.kernels.c import binding, toolchain
from perfkit.kernels.c.binding import BoundCKernel
from perfkit.kernels.declare import COMPOSED, CUBLASLT, Family, Implementation, Operation


@dataclass(frozen=True)
class Language:
    """`unavailable` says in a sentence why it cannot run here; `launcher` builds and binds one implementation.

    `test_device` names a second device on which it runs slowly, for tests: used only when the language is asked for.
    """

    devices: tuple[str, ...]
    unavailable: Callable[[], str | None]
    launcher: Callable[[Operation, Implementation, str], BoundCKernel]
    test_device: Callable[[], str | None] = lambda: None


def _no_cublaslt() -> str | None:
    from perfkit.kernels import cublaslt  # which needs torch

    return cublaslt.unavailable()


LANGUAGES: dict[str, Language] = {
    COMPOSED: Language(("cpu", "cuda"), lambda: None, composed.launcher),
    "c": Language(("cpu",), toolchain.unavailable, binding.launcher),
    "cuda": Language(("cuda",), cuda.unavailable, cuda.launcher),
    "triton": Language(("cuda",), triton.unavailable, triton.launcher, triton.test_device),
    CUBLASLT: Language(("cuda",), _no_cublaslt, composed.launcher),  # Python too, around that library's products
}


def language(implementation: Implementation) -> Language:
    """The language of `implementation`. Raises `InputError` for one that perfkit does not know."""
    if implementation.language not in LANGUAGES:
        raise InputError(
            f"{implementation.source} is written in {implementation.language!r}, which perfkit does not know.",
            f"Kernels are written in: {', '.join(LANGUAGES)}.",
        )
    return LANGUAGES[implementation.language]


def candidates(operation: Operation, device: str, dtype: str, name: str | None = None) -> list[Implementation]:
    """The implementations for a device and precision, naive first; of the language `name` when it is given.

    Languages that cannot run here are left out while another can. An implementation composed of other kernels counts
    for every language: its kernels are chosen at each call.
    """
    written = sorted({i.language: language(i) for i in operation.implementations}.items())
    if name is None:
        suited = {key for key, language in written if device in language.devices}
        runs = {key for key in suited if LANGUAGES[key].unavailable() is None} if len(suited) > 1 else suited
    else:
        asked = [(k, language) for k, language in written if k in (name, COMPOSED)]
        suited = {k for k, language in asked if device in (*language.devices, language.test_device())}
        runs = suited
    found = [i for i in operation.implementations if dtype in i.dtypes and i.language in (runs or suited)]
    order = list(LANGUAGES)
    return sorted(found, key=lambda i: (i.version, order.index(i.language)))


def device_unavailable(families: Iterable[Family], device: str) -> str | None:
    """One sentence why no kernel runs on `device` ("cpu", "cuda", …) here, or None."""
    libraries = COMPOSED, CUBLASLT  # which have products, and nothing else
    written = {i.language for f in families for o in f.operations for i in o.implementations}
    known = {name: LANGUAGES[name] for name in written if name in LANGUAGES and name not in libraries}
    suited = sorted(name for name, language in known.items() if device in language.devices)
    if not suited:
        return f"The kernel catalog has no versions for {device}."
    reasons = [LANGUAGES[name].unavailable() for name in suited]
    return None if None in reasons else reasons[0]
