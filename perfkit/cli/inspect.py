"""`perfkit inspect`: what the compiler made of a kernel or of a whole workload."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Json, json_of
from perfkit.cli.parts.shown import need_torch, progress
from perfkit.errors import UsageError
from perfkit.render.output import of_page
from perfkit.run_folder import is_run_folder, write_whole

if TYPE_CHECKING:
    from perfkit.inspection.results import Inspected
    from perfkit.render.page import Page

_kernel, _program, _output = map(options.panel, ("A kernel", "A workload", "Output"))
_WIDTH = 110


def inspect(
    what: Annotated[
        str,
        typer.Argument(
            help="A kernel (see `perfkit list kernels`), a workload, a run folder, a report of Nsight Compute, or a "
            "file of perfkit/profile.cuh."
        ),
    ],
    implementation: Annotated[
        list[str] | None, _kernel("Such as c:2 or triton (repeatable, or commas); default: all.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    arch: Annotated[str, _kernel("Architecture to compile CUDA and Triton kernels for; needs no GPU.")] = "sm_90",
    sizes: Annotated[str, _kernel("Sizes that determine the launches, such as B=4,T=1024,C=768.")] = "",
    kernels: options.OwnKernels = None,
    backend: Annotated[str, _program("Show the program of this backend: compile, thunder or thunder-llmc.")] = "",
    preset: Annotated[str | None, _program("Named dimensions.")] = None,
    config: Annotated[str, _program("hf: the folder of a model's config.json.")] = "",
    device: Annotated[str, _program("cpu, cuda or cuda:N.")] = "cpu",
    inference: Annotated[bool, _program("Forward only.", "--inference")] = False,
    listing: Annotated[bool, _output("Also print the code: assembler, PTX or program.", "--listing")] = False,
    limit: options.Limit = None,
    out: Annotated[
        Path | None,
        _output("Write the code into this file; of a report as HTML, shaded; of regions a page, or a trace (.json)."),
    ] = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
) -> None:
    """Show what compilers generated: for kernels in C, CUDA and Triton, and for workloads.

    C: instruction set and vector width. CUDA and Triton: registers, shared memory, spills and access width. Workloads:
    the code of Inductor, or the trace that Thunder executes. Reports of Nsight Compute: the instructions and
    source lines at which warps waited, and why. Files of perfkit/profile.cuh, and
    traces of Proton's scopes inside kernels: the time of a kernel's regions.
    """
    answer = json_of(as_json, brief)
    if Path(what).is_file() and Path(what).suffix != ".py":  # which holds a model
        from perfkit.cli.parts import code, regions

        shown = regions.show if regions.is_regions(Path(what)) else code.show
        shown(Path(what), out, limit, answer)
        return
    with progress() as say:
        if is_run_folder(Path(what)):
            found = list(_of_run(Path(what), backend))
        elif backend:
            asked = {"preset": preset, "config": config, "device": device, "dtype": dtype, "training": not inference}
            found = list(_of_workload(what, backend, asked, lambda t: say("inspect", t)))
        else:
            folders = [str(k) for k in kernels or ()]
            found = list(_of_kernel(what, implementation or [], dtype, arch, sizes, folders))
    if out:
        write_whole(out, "\n\n".join(f"{f'# {one.title}'}\n{one.listing}" for one in found) + "\n")
    _print(found, answer, listing, out)


def _of_run(folder: Path, backend: str) -> Iterator[Inspected]:
    from perfkit.inspection.generated import inspect_run

    yield inspect_run(folder, backend)


def _of_workload(what: str, backend: str, asked: dict[str, Any], say: Callable[[str], None]) -> Iterator[Inspected]:
    from perfkit.inspection.generated import inspect_backend
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(what)
    yield inspect_backend(chosen, resolve_settings(chosen, **asked), backend, say)


def _of_kernel(
    what: str, implementations: list[str], dtype: str, arch: str, sizes: str, folders: list[str]
) -> Iterator[Inspected]:
    need_torch("perfkit inspect")
    from perfkit.inspection import kernels
    from perfkit.workloads import loader

    if what in [w.name for w in loader.names()]:
        raise UsageError(f"{what} is a workload.", f"Name a backend: perfkit inspect {what} --backend compile.")
    wanted = [name for text in implementations for name in options.names(text)]
    yield from kernels.inspect_operation(what, wanted, dtype, arch, sizes, folders)


def _print(found: list[Inspected], answer: Json | None, listing: bool, out: Path | None) -> None:
    if answer:
        import msgspec

        shown = [msgspec.structs.replace(one, listing=one.listing if listing else "") for one in found]
        sys.stdout.write(answer.text(of_page(shown, _page(found), "inspect")))
        return
    from rich.console import Console
    from rich.text import Text

    from perfkit.render.cells import clean

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH)
    for one in found:
        console.print(Text(clean(one.title), style="bold"))
        for line in _lines(one.facts, min(console.width, _WIDTH)):
            console.print(line, soft_wrap=True)
        for note in one.notes:
            console.print(Text(f"  {clean(note, 600)}", style="yellow"))
        if listing:
            sys.stdout.write(one.listing + "\n")
        console.print()
    if out:
        console.print(f"Code: {out}", soft_wrap=True)


def _page(found: list[Inspected]) -> Page:
    """A table of facts for each kernel or program."""
    from perfkit.render.cells import table, words
    from perfkit.render.page import Page, Section

    tables = [
        table(
            one.title, words("fact", [name for name, _ in one.facts]), words("value", [value for _, value in one.facts])
        )
        for one in found
    ]
    notes = [f"{one.title}: {note}" for one in found for note in one.notes]
    return Page(title="What compilers generated", sections=[Section(table=made) for made in tables], warnings=notes)


def _lines(facts: list[tuple[str, str]], width: int) -> Iterator[str]:
    """Names in one column, what is said of them wrapped in the other."""
    from perfkit.render.cells import clean

    column = max((len(name) for name, _ in facts), default=0) + 4
    for name, value in facts:
        texts = textwrap.wrap(clean(value, 600), max(20, width - column), break_on_hyphens=False) or [""]
        yield f"  {name:<{column - 2}}{texts[0]}"
        yield from (" " * column + text for text in texts[1:])
