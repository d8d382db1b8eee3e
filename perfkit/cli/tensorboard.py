"""`perfkit tensorboard`: look at a run in TensorBoard."""

from __future__ import annotations

import sys
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from perfkit.errors import InputError, PerfkitError, Unavailable
from perfkit.tensorboard.logdir import Logdir

# This machine only: the pages show file names and code of whoever made the run.
HOST = "127.0.0.1"
EVENT_FILES = "events.out.tfevents.*"  # scalars alone are worth showing, as of a training log


def tensorboard(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of runs and profiles.")],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: the first free one from 6006; 0: any free one.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show a run in TensorBoard: the views of perfkit, and scalars per step. Ctrl-C stops it.

    The folder may also contain traces of torch.profiler, reports of Nsight Compute and exports of Nsight Systems. Only
    this machine can connect.
    """
    check(run)
    try:
        url = launch(run, port)
        url += "#perfkit" if Logdir(str(run)).any() else ""
        print(f"TensorBoard shows {run} at {url}", flush=True)
        print("Press Ctrl-C to stop.", flush=True)
        if open_page:
            webbrowser.open(url)
        threading.Event().wait()
    except KeyboardInterrupt:
        print("\nTensorBoard stopped.", file=sys.stderr)


def check(run: Path) -> None:
    """Raise `InputError` unless `run` holds something to show, `Unavailable` where TensorBoard is missing."""
    if not run.is_dir():
        raise InputError(f"{run} is not a folder.", "Give the folder that `perfkit run` printed.")
    if not Logdir(str(run)).any() and not any(run.rglob(EVENT_FILES)):
        raise InputError(
            f"{run} is neither a run folder nor a profile, and holds neither.",
            "Give the folder that `perfkit run` printed.",
        )
    if find_spec("tensorboard") is None:
        raise Unavailable("TensorBoard is not installed.", "Run: pip install tensorboard")


def launch(run: Path, port: int | None) -> str:
    """Start TensorBoard's server in a thread of this process and return its address.

    Raises `PerfkitError` when the port is taken.
    """
    from tensorboard import program

    board = program.TensorBoard()
    # The fast loader is a second process, which a run's few events do not need.
    arguments = ["perfkit tensorboard", "--logdir", str(run.resolve()), "--host", HOST, "--load_fast", "false"]
    board.configure(argv=[*arguments, "--port", str(port)] if port is not None else arguments)
    try:
        return str(board.launch())
    except program.TensorBoardPortInUseError as error:
        taken = f"Port {port} is in use." if port else "The ports from 6006 on are in use."
        raise PerfkitError(taken, "Choose another with --port; --port 0 takes any that is free.") from error
    except program.TensorBoardServerException as error:
        raise PerfkitError(f"TensorBoard could not start: {' '.join(str(error).split())}") from error
