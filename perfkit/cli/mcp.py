"""`perfkit mcp`: a server for code agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.errors import Unavailable


def mcp(
    folders: Annotated[list[Path], typer.Argument(help="Folders whose profiles and runs the client may read.")],
    allow_run: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-run",
            help="Pattern of command lines that the client may run, such as 'perfkit run gpt2 *'; repeat for several. "
            "Without it nothing runs.",
        ),
    ] = None,
) -> None:
    """Serve perfkit's reports to a code agent, by the Model Context Protocol over stdin and stdout.

    Answers have at most 4 KB of JSON. Only files in the given folders are read. Needs `pip install 'perfkit[agents]'`.
    """
    from importlib.util import find_spec

    from perfkit.agents.access import Access

    if find_spec("mcp") is None:
        raise Unavailable("The package mcp is not installed.", "Install it: pip install 'perfkit[agents]'.")
    access = Access.of(folders, allow_run or [])
    from perfkit.agents.server import make_server

    make_server(access).run("stdio")
