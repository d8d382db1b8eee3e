"""Rights of a client of the server: the folders that it may read, and the programs that it may run."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import UsageError

_OWN_PLACE = ("--out", "--on", "--remote-python", "--data", "--kernels", "--config", "--patch", "--before", "--after",
              "--log")  # fmt: skip  # options that name another place
_LONGEST = 1000  # characters of a path


@dataclass(frozen=True)
class Access:
    """The folders whose files may be read, and patterns of the command lines that may run (none by default)."""

    folders: tuple[Path, ...]
    commands: tuple[str, ...] = ()

    @classmethod
    def of(cls, folders: Sequence[Path], commands: Sequence[str]) -> Access:
        """Access to `folders`. Raises `UsageError` for one that is missing."""
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(f"{folder} is not a folder.", "Name the folders with profiles: perfkit mcp FOLDER …")
        return cls(tuple(folder.resolve() for folder in folders), tuple(commands))

    def path(self, text: str) -> Path:
        """Return the file or folder that `text` names, in one of the folders or relative to the first that has it.

        Raises `UsageError` for what is outside of them (links are followed first), and for what is missing.
        """
        if not text.strip() or "\0" in text or len(text) > _LONGEST:
            raise UsageError(f"A path has 1 to {_LONGEST} characters, and no zero byte.", "Call list_profiles.")
        places = [Path(text)] if Path(text).is_absolute() else [folder / text for folder in self.folders]
        for place in places:
            found = _resolved(place, text)
            if not any(found == folder or folder in found.parents for folder in self.folders):
                raise UsageError(
                    f"{text!r} is outside of the folders that this server may read.", "Call list_profiles."
                )
            if found.exists():
                return found
        raise UsageError(f"{text!r} does not exist.", "Call list_profiles.")

    def command(self, words: Sequence[str]) -> list[str]:
        """Return `words` where they may run.

        Raises `UsageError` for a command line that no pattern allows, and for options that name places elsewhere.
        """
        if any("\0" in word for word in words):
            raise UsageError("A command line holds no zero byte.")
        line = shlex.join(words)
        if not any(fnmatch.fnmatchcase(line, pattern) for pattern in self.commands):
            allowed = f"It allows: {', '.join(self.commands)}." if self.commands else "It allows none."
            raise UsageError(f"This server may not run `{line}`. {allowed}", "Start it with --allow-run PATTERN.")
        elsewhere = [word for word in words if word.partition("=")[0] in _OWN_PLACE]
        if elsewhere and words[:1] == ["perfkit"] and "--" not in words[: words.index(elsewhere[0])]:
            raise UsageError(
                f"{elsewhere[0]} names a place of its own.", "The server chooses where results are written."
            )
        return list(words)


def _resolved(place: Path, text: str) -> Path:
    """The place that all links lead to. Raises `UsageError` where the system knows no such path."""
    try:
        found = place.resolve()
        found.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{text!r} cannot be a path here.", "Call list_profiles.") from error
    return found
