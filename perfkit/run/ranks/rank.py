"""One rank of a backend: the child's side. torchrun starts as many of these as there are ranks.

    python -m perfkit.run.ranks.rank

Each connects to the session (`group`) and says who it is; then it serves commands as any worker does.
Rank 0, which runs on the session's host, sends the place to the ranks of other hosts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from multiprocessing.connection import Client, Connection
from pathlib import Path

ADDRESS, KEY, LOGS = "PERFKIT_SESSION", "PERFKIT_SESSION_KEY", "PERFKIT_RANK_LOGS"  # in the environment
_AT = "perfkit/session"  # in the store that all ranks share


def main() -> None:
    """Serve the session until it hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the session's to handle
    rank, host = int(os.environ["RANK"]), socket.gethostname()
    _own_log(rank)
    address, key = _session(rank)
    name, _, port = address.rpartition(":")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe = Client((name, int(port)), authkey=bytes.fromhex(key))
        pipe.send((rank, host, os.getpid()))
        _serve(pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the teardown of torch and of the process group


def _serve(pipe: Connection) -> None:
    from perfkit.run.serving import serve

    serve(pipe)


def _session(rank: int) -> tuple[str, str]:
    """Address and key of the session."""
    from torch import distributed

    store, *_ = next(distributed.rendezvous("env://"))
    store = distributed.PrefixStore("perfkit", store)
    if rank == 0:
        store.set(_AT, f"{os.environ[ADDRESS]} {os.environ[KEY]}")
    address, _, key = store.get(_AT).decode().partition(" ")
    return address, key


def _own_log(rank: int) -> None:
    """Print to a file of this rank's own, where the run folder is on this host."""
    folder = os.environ.get(LOGS, "")
    if folder and Path(folder).is_dir():
        log = os.open(Path(folder) / f"rank{rank}.log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)


if __name__ == "__main__":
    main()
