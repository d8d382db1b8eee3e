"""Options that several commands share: those of `Settings`, made from its declarations, and what they mean."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perfkit import settings
from perfkit.errors import Unavailable, UsageError
from perfkit.settings import MEASURE, WORK

ELSEWHERE = "On another machine"
NCU = "Nsight Compute"
LIST = "One or several, separated by commas."

NONE: Mapping[str, str] = {}

Given = dict[str, Any]  # fields of `Settings` with what was given; None: the workload's own


def panel(title: str) -> Callable[..., Any]:
    """Return a function that makes an option of this panel of the help, of its text, its flags and other settings."""

    def option(text: str, *flags: str, **more: Any) -> Any:
        """Return the option."""
        return typer.Option(*flags, help=text, rich_help_panel=title, **more)

    return option


_work, _measured, _elsewhere, _ncu = map(panel, (WORK, MEASURE, ELSEWHERE, NCU))

SkipUnavailable = Annotated[bool, _measured("Continue without backends that cannot run here.", "--skip-unavailable")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Brief = Annotated[
    bool | None,
    typer.Option("--brief/--brief-text", help="Print at most 4 KB of JSON, or text: verdict and largest findings."),
]
Limit = Annotated[int | None, typer.Option(help="Rows of each table in the terminal; 0 for all.")]
OwnKernels = Annotated[list[Path] | None, typer.Option(help="A folder of your own kernels (repeatable).")]
Launches = Annotated[int, _measured("Launches, each with a fresh process for every side.")]
Early = Annotated[
    bool, _measured("Stop after 8 or 12 launches where the verdicts stand by then.", "--early/--no-early")
]
TimeLimit = Annotated[float, _measured("Start no further launch after this many seconds.")]
TryLog = Annotated[
    Path | None, typer.Option("--log", help="Folder of the log; default: PERFKIT_TRIES, else .perfkit/tries.")
]
Resolution = Annotated[str, typer.Option(help='The change that "no difference shown" would have detected.')]


def use_costs(path: Path | None) -> None:
    """Register the costs in a file of the user's, here and in every process of the command.

    Raises `InputError` where it cannot be run.
    """
    if path is not None:
        from perfkit.cost import own

        own.load(str(path.resolve()))
        os.environ[own.FILE] = str(path.resolve())


Costs = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        help="A Python file of your own that registers costs (perfkit.register_cost); it is run.",
    ),
]
HostNumber = Annotated[int, _work("The number of this host; the report is made on 0.", "--node-rank")]
Endpoint = Annotated[str, _work("HOST:PORT of host 0, where hosts meet.", "--rdzv-endpoint")]
Prompt = Annotated[str, _work("Tokens of the prompt for --generate; --data says which.")]
On = Annotated[
    str,
    _elsewhere(
        "Work on this machine, over ssh, with the files of this folder; the report is made here.",
        "--on",
        metavar="USER@HOST",
    ),
]
RemotePython = Annotated[str, _elsewhere("The Python to use there, or its environment's folder.")]
Lines = Annotated[
    bool | None,
    typer.Option(
        "--lines/--no-lines",
        help="Record source lines, in a step of their own after the others; by default where that costs under 2 s.",
    ),
]
CounterSet = Annotated[str, _ncu("metrics (only what the report needs), basic, detailed, full or roofline.", "--set")]
ClockControl = Annotated[str, _ncu("none (normal clocks), or base (fixed base clocks: slower, repeatable).")]
CacheControl = Annotated[
    str, _ncu("all (flush caches before each replay: repeatable), or none (keep what the last replay left).")
]
NoReport = Annotated[bool, typer.Option("--no-report", hidden=True, help="Only record: `perfkit report` reports.")]


def from_settings(
    names: Sequence[str], lists: Sequence[str] = (), panels: Mapping[str, str] = NONE, helps: Mapping[str, str] = NONE
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: the parameter `given` of a command becomes an option for each of these fields of `Settings`.

    Those in `lists` take several values; `panels` and `helps` hold what is not as declared.
    """
    known = settings.fields()
    made = {name: _parameter(known[name], name in lists, panels.get(name), helps.get(name)) for name in names}
    of_field = {parameter.name: name for name, parameter in made.items()}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        """Return the command with the options in the place of its parameter `given`."""
        signature = inspect.signature(command, eval_str=True)
        others = list(signature.parameters.values())
        at = next(i for i, one in enumerate(others) if one.name == "given")
        parameters = [*others[:at], *made.values(), *others[at + 1 :]]

        @functools.wraps(command)
        def wrapped(**values: Any) -> int:
            return command(given=given_of(values), **values)

        def given_of(values: dict[str, Any]) -> Given:
            """Take the fields of `Settings` out of the values that were typed."""
            given = {of_field[name]: values.pop(name) for name in list(values) if name in of_field}
            return {name: _value(name, value, lists) for name, value in given.items()}

        wrapped.given_of = given_of  # type: ignore[attr-defined]
        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
        return wrapped

    return decorate


def _parameter(field: settings.Field, several: bool, panel: str | None, text: str | None) -> inspect.Parameter:
    """The command's parameter for a field of `Settings`."""
    said = field.declared
    name = said.name or field.name
    kind, default, flags = _TYPED.get(field.name) or (field.type, field.default, said.flags)
    text = text or said.help
    if several:
        kind, default, text = str, "", f"{text} {LIST}"
    elif default is None and kind in (str, int):
        kind = kind | None
    elif kind is bool and not flags:
        flags = (f"--{name.replace('_', '-')}",)
    option = typer.Option(*flags, help=text, rich_help_panel=panel or said.panel)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


# Fields that are typed as something else: its type, default and flags.
_TYPED: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "dimensions": (list[str] | None, None, ()),
    "training": (bool, False, ()),
    "executors": (str, "", ()),
    "kernel_dirs": (list[Path] | None, None, ()),
}


def _value(name: str, value: Any, lists: Sequence[str]) -> Any:
    """Convert what was typed to the value of the field; a list stays text."""
    if name in lists:
        return value
    meaning: dict[str, Callable[[Any], Any]] = {
        "dimensions": lambda given: dimensions(given or []),
        "training": lambda inference: not inference,
        "executors": executors,
        "kernel_dirs": lambda folders: tuple(map(str, folders or ())),
    }
    return meaning[name](value) if name in meaning else value


def dimensions(given: list[str]) -> dict[str, str]:
    """Name → value of `NAME=VALUE`; raises `UsageError` for anything else."""
    pairs = [text.partition("=") for text in given]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise UsageError(f"--dim {name}{sign}{value} is not of the form NAME=VALUE.", "Write --dim layers=4.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def prompt_length(prompt: str, generate: int, sequence_length: int | None) -> int | None:
    """Return T by `--prompt` or `--sequence-length`. Raises `UsageError` where the options do not fit together."""
    if not prompt:
        return sequence_length
    if not generate:
        raise UsageError("--prompt is for a step that generates tokens.", "Give --generate 128 as well.")
    if sequence_length is not None:
        raise UsageError("--prompt and --sequence-length are the same here.", "Leave one of them out.")
    if not prompt.isdecimal():
        raise UsageError(
            f"--prompt {prompt} is not a number of tokens.",
            "Give a number; --data FILE says what text or tokens the prompts are cut from.",
        )
    return int(prompt)


def whole_numbers(option: str, text: str) -> list[int]:
    """The numbers of a list, each once. Raises `UsageError` for anything else."""
    given = list(dict.fromkeys(names(text)))
    for one in given:
        if not one.isdecimal() or not int(one):
            raise UsageError(f"{option} must be a whole number of at least 1; it is {one}.")
    return [int(one) for one in given]


def alone(given: dict[str, Any]) -> None:
    """Raise `UsageError` for the first option that is given with several batch sizes."""
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} does not go with several batch sizes.", "Give one size.")


def names(text: str) -> list[str]:
    """The names in a list separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def share(text: str, option: str) -> float:
    """Return `3%` or `0.03` as a share. Raises `UsageError` for anything else, and unless it is from 0 to below 1."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{option} {text} is not a share.", f"Write {option} 1%.")
    return value


def executors(text: str) -> tuple[str, ...]:
    """Thunder's executors by priority; () for its own list, which is `default` as well."""
    return () if text.strip() == "default" else tuple(names(text))


def named(given: list[str]) -> dict[str, str]:
    """Backend name → what it was given as: its name, or a file. Raises `UsageError` for none, or an odd name."""
    from perfkit import backends

    if not given:
        raise UsageError("No backend was named.", "Give --backend eager, or several separated by commas.")
    named = {backends.get(text).name: text for text in given}
    for name, text in named.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UsageError(f"{text} calls its backend {name!r}.", "Name it with letters, digits, dots and dashes.")
    return named


def unavailable_of(named: dict[str, str], settings: Any, skip: bool) -> dict[str, str]:
    """The reason of each backend that cannot run here, by name; raises `Unavailable` for the first unless `skip`."""
    from perfkit import backends

    reasons = {name: reason for name, text in named.items() if (reason := backends.get(text).unavailable(settings))}
    if not reasons or skip:
        return reasons
    from perfkit.analysis.words import listed

    first = next(iter(reasons.values()))
    which = [name for name, reason in reasons.items() if reason == first]
    backend, it = ("Backend", "it") if len(which) == 1 else ("Backends", "them")
    raise Unavailable(
        f"{backend} {listed(which)} cannot run here: {first}", f"--skip-unavailable goes on without {it}."
    )
