"""The command line: one short module a command, found here; `main` turns errors into sentences and exit codes.

Exit codes: 0 done; 1 a check or run failed; 2 bad usage or input; 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys

import typer

import perfkit
from perfkit.errors import PerfkitError

INTERRUPTED = 130

# In the order of `perfkit --help`. A command is the function of its name in the module of its name; a module with an
# `app` holds a group of commands.
COMMANDS = (
    "run", "capture", "report", "compare", "try", "history", "explain", "list", "doctor", "ceilings", "tensorboard",
    "trace", "export", "bench", "sweep", "scale", "eval", "data", "baseline", "inspect", "mcp", "skill",
)  # fmt: skip
_ELSEWHERE = {"list": ("listing", "list_"), "try": ("trying", "try_"), "eval": ("evaluate", "eval_")}
_SETTINGS = {name: {"allow_interspersed_args": False} for name in ("capture", "try")}
_HELP = "Where a PyTorch step spends its time, how far each part is from what this machine can do, and what helps."
_OBJECTS = 200_000  # more of them at once before cycles are looked for: imports make many objects, and keep them


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perfkit {perfkit.__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def application(first: str = "") -> typer.Typer:
    """The command line with all commands; with the command `first` alone where that is one: a process runs one, and
    importing and building the others takes longer than 0.05 s."""
    app = typer.Typer(
        name="perfkit",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in [first] if first in COMMANDS else COMMANDS:
        place, function = _ELSEWHERE.get(name, (name, name))
        module = importlib.import_module(f"perfkit.cli.{place}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name, context_settings=_SETTINGS.get(name))(getattr(module, function))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; a person's mistake is a sentence on stderr, never a traceback."""
    gc.set_threshold(max(_OBJECTS, gc.get_threshold()[0]))
    code = _run(arguments)
    gc.freeze()  # Python ends without searching for cycles, which takes longer than a small trace takes to read
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = application(arguments[0] if arguments else "")(args=arguments, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # now, so that a reader who went away is noticed here and not at exit
        if code == INTERRUPTED:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except PerfkitError as error:
        return _say(str(error), error.exit_code)
    except typer.TyperException as error:
        message = error.format_message()  # "" where a command without arguments showed its help
        ended = message.rstrip().endswith((".", "!", "?"))
        return _say(f"{message}{'' if ended else '.'} See `perfkit --help`.", 2) if message.strip() else 2
    except (KeyboardInterrupt, typer.Abort):
        return _say("Interrupted: what was unfinished is removed, what existed is untouched.", INTERRUPTED)
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as error:  # so rich and typer end a program whose reader went away
        if isinstance(error.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except OSError as error:
        return _say(_system_sentence(error), 1)


def _reader_gone() -> int:
    """The reader of our output went away (`perfkit list | head`): no error, and no complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _say(sentence: str, code: int) -> int:
    from perfkit.cli.parts import shown

    shown.complain(sentence)
    return code


def _system_sentence(error: OSError) -> str:
    where = f" at {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"The disk is full{where}. Free space, or choose another place with --out."
    return f"The system refused{where}: {error.strerror or error}."
