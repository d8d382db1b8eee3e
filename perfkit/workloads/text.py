"""Text from a file or a folder of files, as a list of documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfkit import units
from perfkit.errors import InputError

SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".md", ".py", ".rst", ".sh", ".tex", ".toml", ".txt")


@dataclass(frozen=True)
class Text:
    """Documents, and in a few words where they come from: "docs/ (14 files, 61 kB"."""

    documents: tuple[str, ...]
    origin: str
    nbytes: int


def read(path: Path) -> Text:
    """The text of a file, or of all text files below a folder, in the order of their paths.

    Hidden files and folders are left out. Raises `InputError` when the file is missing, the folder has no text file,
    or a file is not text in UTF-8.
    """
    if not path.exists():
        raise InputError(
            f"--data {path}: no such file or folder.",
            "Give synthetic, a text file, a folder of text files, or an llm.c token file (.bin).",
        )
    if path.is_file():
        document = _read_file(path)
        size = len(document.encode())
        return Text((document,), f"{path.name} ({units.text(size, 'B')}", size)
    files = _text_files(path)
    if not files:
        raise InputError(
            f"--data {path}: the folder holds no text file.", f"Text files end in one of {' '.join(SUFFIXES)}."
        )
    documents = tuple(_read_file(file) for file in files)
    size = sum(len(document.encode()) for document in documents)
    count = f"{len(files)} file{'s' * (len(files) > 1)}"
    return Text(documents, f"{path.resolve().name}/ ({count}, {units.text(size, 'B')}", size)


def _text_files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    visible = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return sorted(visible, key=lambda path: path.relative_to(folder).parts)


def _read_file(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text: byte {error.start} is not UTF-8.") from error
    if "\0" in text:
        raise InputError(f"{path} is not text: it holds a zero byte.")
    return text
