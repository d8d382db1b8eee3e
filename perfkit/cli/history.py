"""`perfkit history`: the log of tries."""

from __future__ import annotations

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of, put
from perfkit.render.output import of_page


def history(
    log: options.TryLog = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
) -> None:
    """Show the tries of a log, by machine and command: times of different machines are never compared."""
    from perfkit.hardware.cpu import read_cpu
    from perfkit.hardware.identity import fingerprint
    from perfkit.render.pages import tries as rendered
    from perfkit.tries import log as logs

    found = logs.read(log or logs.root(), fingerprint(read_cpu().usable))
    put(of_page(found, rendered.history_page(found), "history"), Destination(as_json=json_of(as_json, brief)))
