"""How several hosts go through one run together; torchrun, which starts the ranks of one backend, meets within it.

    host 0       listens at the meeting's port as long as the run lasts (`Rendezvous`)
    the others   connect, and start what begins (`begun`)

Each side notices when the other one is gone. They exchange lines over TCP. Host 0 sends `perfkit VERSION`,
`begin INDEX` for each backend, and `end`; the others `host NUMBER`, and `failed INDEX` when their ranks of a backend
ended by a failure.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator

import perfkit
from perfkit.errors import RunFailed
from perfkit.run.ranks.meeting import Meeting

WAIT_S = 3600.0  # for host 0, whose job may start much later
_ANSWER_S = 30.0  # for the first line of what listens there
_AGAIN_S = 1.0
_END = "end"


class Rendezvous:
    """Host 0's side: it announces to the other hosts which backend begins.

    Use as a context manager; leaving it ends the run for the others. Raises `RunFailed` when the port is taken.
    """

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        try:
            self._listener = socket.create_server(("", meeting.port))
        except OSError as error:
            raise RunFailed(
                f"This host cannot listen at port {meeting.port}: {error.strerror}.", "Choose another --rdzv-endpoint."
            ) from error
        self._lock = threading.Lock()
        self._sent = [f"perfkit {perfkit.__version__}"]  # all lines so far: a host that comes late gets them as well
        self._guests: list[socket.socket] = []
        self._left = ""  # the host that is gone
        self._failed: dict[int, str] = {}  # by backend: the host whose ranks failed
        threading.Thread(target=self._accept, daemon=True).start()

    def begin(self, index: int) -> None:
        """Let the other hosts start their ranks of the backend number `index`."""
        self._tell(f"begin {index}")

    def trouble(self, index: int) -> str:
        """Why another host's ranks of the backend number `index` will not come; "" where nothing is known."""
        if index in self._failed:
            return f"{self._failed[index]}'s ranks ended by a failure"
        return f"{self._left} left the run" if self._left else ""

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._tell(_END)
        with self._lock:
            _hang_up(self._listener)
            for guest in self._guests:
                _hang_up(guest)

    def _tell(self, line: str) -> None:
        with self._lock:
            self._sent.append(line)
            for guest in self._guests:
                _send(guest, line)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                guest, _ = self._listener.accept()
                with self._lock:
                    for line in self._sent:
                        _send(guest, line)
                    self._guests.append(guest)
                threading.Thread(target=self._hear, args=(guest,), daemon=True).start()

    def _hear(self, guest: socket.socket) -> None:
        """Read the lines of one host until it hangs up. A peer that does not say which host it is, is a stranger."""
        name = ""
        for line in _lines(guest):
            word, _, value = line.partition(" ")
            if word == "host":
                name = f"Host {value}"
            elif name and word == "failed" and value.isdecimal():
                self._failed[int(value)] = name
        self._left = name or self._left


def begun(meeting: Meeting, failures: Callable[[], list[int]]) -> Iterator[int]:
    """On a host other than the first: the number of each backend that begins, until the run ends.

    `failures` is asked every second for the backends whose ranks have failed here since. Raises `RunFailed` when host 0
    is not found within an hour, is not a perfkit of this version, or goes before the end.
    """
    connection = _connected(meeting)
    heard: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(connection, heard), daemon=True).start()
    try:
        _check(_next(heard, _ANSWER_S), meeting)
        _send(connection, f"host {meeting.number}")
        while (line := _next(heard, _AGAIN_S)) != _END:
            for index in failures():
                _send(connection, f"failed {index}")
            if line is None:
                raise RunFailed("Host 0 left the run.", "Its own output says why.")
            if line.startswith("begin "):
                yield int(line.partition(" ")[2])
    finally:
        _hang_up(connection)


def _connected(meeting: Meeting) -> socket.socket:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            connection = socket.create_connection((meeting.host, meeting.port), timeout=_ANSWER_S)
        except OSError as error:
            if time.monotonic() > until:
                raise RunFailed(
                    f"Host 0 was not found at {meeting.host}:{meeting.port} within {WAIT_S:.0f} s: "
                    f"{error.strerror or error}.",
                    "Does perfkit run there with --node-rank 0, and can this host reach that port?",
                ) from error
            time.sleep(_AGAIN_S)
        else:
            connection.settimeout(None)
            return connection


def _check(greeting: str | None, meeting: Meeting) -> None:
    word, _, version = (greeting or "").partition(" ")
    if word != "perfkit":
        raise RunFailed(
            f"What listens at {meeting.host}:{meeting.port} is not perfkit.",
            "Choose a free port of host 0 as --rdzv-endpoint.",
        )
    if version != perfkit.__version__:
        raise RunFailed(f"Host 0 has perfkit {version}, this host {perfkit.__version__}.", "Install the same on both.")


def _lines(connection: socket.socket) -> Iterator[str]:
    """Give the lines of the other side until it hangs up."""
    with contextlib.suppress(OSError), connection.makefile(encoding="utf-8", errors="replace") as lines:
        yield from map(str.strip, lines)


def _listen(connection: socket.socket, heard: queue.Queue[str | None]) -> None:
    for line in _lines(connection):
        heard.put(line)
    heard.put(None)


def _next(heard: queue.Queue[str | None], seconds: float) -> str | None:
    """The next line: "" when none comes in time, None at the end."""
    try:
        return heard.get(timeout=seconds)
    except queue.Empty:
        return ""


def _send(connection: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):  # it is gone: who reads from it notices
        connection.sendall(f"{line}\n".encode())


def _hang_up(connection: socket.socket) -> None:
    """Close it, also for a thread that waits for its next line."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
