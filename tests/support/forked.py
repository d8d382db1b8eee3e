"""Ask `tests.support.forking` for a process; also the `perfkit` of a shell. This module imports next to nothing."""

import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any

NUMBER = struct.Struct("q")
MOST_FILES = 16


def ask(path: str, request: dict[str, Any], files: Sequence[int]) -> socket.socket:
    """Send a request and open files to the server `path`; the connection on which it answers."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    text = json.dumps(request).encode()
    socket.send_fds(connection, [NUMBER.pack(len(text))], files)
    connection.sendall(text)
    return connection


def asked(connection: socket.socket) -> tuple[Any, list[int]]:
    """The request on a connection, and its open files."""
    head, files, _, _ = socket.recv_fds(connection, NUMBER.size, MOST_FILES)
    left, parts = NUMBER.unpack(head)[0], []
    while left and (part := connection.recv(left)):
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), files


def tell(connection: socket.socket, number: int) -> None:
    """Send a number."""
    connection.sendall(NUMBER.pack(number))


def number(connection: socket.socket) -> int:
    """Return the next number that the server sends; it sends none when it was ended. Raises `TimeoutError`,
    `EOFError`."""
    found = connection.recv(NUMBER.size)
    if len(found) < NUMBER.size:
        raise EOFError("the server that forks processes for tests has gone")
    value: int = NUMBER.unpack(found)[0]
    return value


def code_of(path: str, kind: str, argv: Sequence[str]) -> int:
    """The exit code of a process like this one that the server `path` forks; negative for a signal."""
    request = {"kind": kind, "argv": [*argv], "cwd": os.getcwd(), "env": dict(os.environ)}
    connection = ask(path, request, [0, 1, 2])
    number(connection)
    return os.waitstatus_to_exitcode(number(connection))


def main() -> None:
    """`python forked.py SOCKET ARGS`: `perfkit ARGS` here."""
    code = code_of(sys.argv[1], "cli", sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
