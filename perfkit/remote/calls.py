"""The calls to the other machine: one `ssh` each, over the shared connection."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import signal
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from perfkit.errors import RunFailed, Unavailable
from perfkit.remote import bootstrap, files
from perfkit.remote.ssh import Lost, RemoteHost

OLDEST = (3, 11)  # of the Pythons that perfkit runs on
_HERE = Path(__file__).resolve().parent
_SAID = "perfkit: "
NAME_ONE = "Install one there, or name one by --remote-python."


@dataclass(frozen=True)
class RemoteResult:
    """How a run ended there: perfkit's exit code (None: nobody knows), and the files that it left, and their bytes."""

    code: int | None
    files: int
    bytes: int


@dataclass(frozen=True)
class RemoteCalls:
    """perfkit's place on the other machine: its folder, the file that answers, and the Python that runs it."""

    host: RemoteHost
    folder: str
    python: str
    file: str

    @property
    def of(self) -> str:
        """The command before an action."""
        return shlex.join([self.python, f"{self.folder}/{self.file}"])

    def need(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return whether perfkit is there, and which files are missing."""
        with _file(json.dumps(wanted).encode()) as given:
            return self._ask("need", "", given)

    def receive(self, order: Mapping[str, Any], members: Mapping[str, Path]) -> None:
        """Send files, and an order."""
        with tempfile.TemporaryFile() as packed:
            files.pack(packed, order, members)
            packed.seek(0)
            self._ask("receive", "", packed)

    def prepare(self, run: str) -> list[str]:
        """Make the environment; what it lacks."""
        return list(self._ask("prepare", run)["lacking"])

    def install(self, run: str) -> None:
        """Install what the environment lacks. Raises `Unavailable` where that fails."""
        self._ask("install", run)

    def run(self, run: str, heard: bool) -> int:
        """Run to the end, with our streams; ssh's exit code. The first Ctrl-C interrupts the program, the second kills
        it."""
        return self.host.run(
            f"exec {self.of} run {run}",
            lambda presses: self.stop(run, signal.SIGINT if presses == 1 else signal.SIGKILL),
            heard,
        )

    def stop(self, run: str, number: int) -> None:
        """Signal the program."""
        self._ask(f"stop:{int(number)}", run)

    def fetch(self, run: str, into: Path) -> RemoteResult:
        """Bring the run folder back. Raises `Lost`, or `RunFailed` where it did not come whole."""
        with self.host.reading(f"exec {self.of} fetch {run}") as stream:
            answer = _answer(stream, self.host.name)
            ended = RemoteResult(answer["code"], answer["files"], answer["bytes"])
            try:
                with tarfile.open(fileobj=stream, mode="r|") as packed:
                    count = sum(_unpack(packed, member, into) for member in packed)
            except tarfile.TarError as error:
                raise Lost(f"The connection to {self.host.name} ended while the run came back: {error}.") from error
        if count != ended.files:
            raise Lost(f"The connection to {self.host.name} ended after {count} of {ended.files} files.")
        return ended

    def forget(self, run: str) -> None:
        """Remove the run there."""
        self._ask("forget", run)

    def _ask(self, action: str, argument: str = "", given: IO[bytes] | None = None) -> dict[str, Any]:
        with self.host.reading(f"exec {self.of} {action} {argument}", given) as stream:
            return _answer(stream, self.host.name)


def find(host: RemoteHost, given: str) -> RemoteCalls:
    """perfkit's place on `host`, with the Python `given`, or one of its PATH. Raises `Unavailable` where none fits."""
    text = Path(bootstrap.__file__).read_text()
    name = f"bootstrap-{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    script = (
        f"given={shlex.quote(given)}\nbootstrap={name}\n"
        f"bootstrap_text() {{\ncat <<'PERFKIT_END'\n{text}PERFKIT_END\n}}\n{(_HERE / 'probe.sh').read_text()}"
    )
    with _file(script.encode()) as given_script:
        printed = host.ask("exec sh -s", given_script).decode(errors="replace")
    said = [line.removeprefix(_SAID) for line in printed.splitlines() if line.startswith(_SAID)]
    if "end" not in said:
        raise Unavailable(f"{host.name} runs no command of a shell.", f"Try `ssh {host.name} 'exec sh -s'`.")
    facts = [line.split(" ", 1) for line in said if " " in line]
    failed = next((text for kind, text in facts if kind == "failed"), None)
    if failed is not None:
        raise Unavailable(f"perfkit has no place on {host.name}: {failed}.", "Set PERFKIT_CACHE there.")
    folder = next(text for kind, text in facts if kind == "folder")
    return RemoteCalls(
        host, folder, _chosen(host.name, [text for kind, text in facts if kind == "python"], given), name
    )


def _chosen(host: str, answer: list[str], given: str) -> str:
    """The first Python that fits and has torch; each of `answer` is its version, 1 or 0 for torch, and its path."""
    found = [(tuple(map(int, version.split("."))), torch == "1", path) for version, torch, path in
             (text.split(" ", 2) for text in answer)]  # fmt: skip
    fitting = [(torch, path) for version, torch, path in found if version >= OLDEST]
    if not found and given:
        raise Unavailable(f"{given} on {host} is not a Python that runs.", "Give its path there.")
    if not found:
        raise Unavailable(f"`ssh {host}` finds no Python on {host}.", NAME_ONE)
    if not fitting:
        version = ".".join(map(str, found[0][0]))
        raise Unavailable(
            f"Python {version} on {host} ({found[0][2]}) is too old: perfkit runs on 3.11 or newer.", NAME_ONE
        )
    path = next((path for torch, path in fitting if torch), None)
    if path is None:
        raise Unavailable(
            f"{fitting[0][1]} on {host} has no torch.",
            "Install torch there, or name a Python that has it by --remote-python.",
        )
    return path


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def _answer(stream: IO[bytes], host: str) -> dict[str, Any]:
    """Return the answer in a command's output. Raises `RunFailed` for a failure, `EOFError` without an answer."""
    for line in stream:
        if line.strip() == bootstrap.MARK.encode():
            answer: dict[str, Any] = json.loads(stream.readline())
            if "error" in answer:
                raise RunFailed(f"On {host}: {answer['error']}", answer["hint"])
            return answer
    raise EOFError


def _unpack(packed: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> int:
    """Write a file of the run folder; 1."""
    path, content = into / member.name, packed.extractfile(member)
    if content is None or ".." in path.parts or not path.is_relative_to(into):
        raise RunFailed(f"{member.name} is not a file of a run folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while data := content.read(1 << 20):
            file.write(data)
    return 1
