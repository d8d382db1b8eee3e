"""The head of a file, read once: from it formats know their files, and other kinds of file get their next step."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from perfkit.errors import InputError

SIZE = 1 << 20  # bytes of the head, packed and unpacked: a program may print much before the CSV of ncu
ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP, _TAR = (b"PK\x03\x04", b"PK\x05\x06"), b"ustar"
_MOST_SHRUNK, _UNSUSPICIOUS = 1000, 1 << 26
_SHAPED = 1 << 16  # bytes of JSON whose keys are looked at
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"[ \t\r\n]*(:)?|([{\[])|([}\]])', re.DOTALL)


_CATEGORIES = (
    "cpu_op|user_annotation|cuda_runtime|cuda_driver|kernel|gpu_memcpy|gpu_memset|gpu_user_annotation|python_function|"
    "cpu_instant_event|ac2g|fwdbwd|Kernel|Memcpy|Memset|Operator|operator|Runtime|xpu_runtime|mtia_runtime|"
    "privateuse1_runtime"
)
_OF_TORCH = re.compile(rf'"cat"[ \t\r\n]*:[ \t\r\n]*"(?:{_CATEGORIES})"'.encode())
_OWN_KEYS = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "record_shapes"}


@dataclass(frozen=True)
class Head:
    """The beginning of the file at `path`: `raw` as it is stored, `text` unpacked by what `packing` names."""

    path: Path
    raw: bytes
    text: bytes
    packing: str = ""

    @cached_property
    def is_json(self) -> bool:
        """Return whether it begins as a JSON object or list."""
        return self.plain[:1] in (b"{", b"[")

    @cached_property
    def plain(self) -> bytes:
        """The text without a byte order mark and blanks before it."""
        return self.text.removeprefix(codecs.BOM_UTF8).lstrip()

    @cached_property
    def keys(self) -> tuple[frozenset[str], frozenset[str]]:
        """The keys of the JSON object that it begins, and those of all objects inside."""
        outer, inner, depth = set[str](), set[str](), 0
        for key, colon, opens, closes in _TOKEN.findall(self.plain[:_SHAPED]):
            depth += bool(opens) - bool(closes)
            if colon:
                (outer if depth == 1 else inner).add(key.decode("utf-8", "replace"))
        return frozenset(outer), frozenset(inner)

    @cached_property
    def is_of_torch(self) -> bool:
        """Return whether it has the marks of a trace that torch.profiler wrote."""
        return bool(_OWN_KEYS & self.keys[0]) or _OF_TORCH.search(self.text) is not None


def head_of(path: Path) -> Head:
    """Return the head of the file at `path`; asked for again, it is not read again.

    Raises `InputError` for a file that is missing, empty or cannot be read.
    """
    try:
        status = path.stat()
    except OSError:  # opening it says why
        return _head_of.__wrapped__(path, 0, 0)
    return _head_of(path, status.st_mtime_ns, status.st_size)


def begins_as_archive(path: Path) -> bool:
    """Return whether the file at `path` begins as a zip or tar archive, packed or not."""
    if not path.is_file():
        return False
    with suppress(InputError):
        text = head_of(path).text
        return text.startswith(_ZIP) or text[257 : 257 + len(_TAR)] == _TAR
    return False


@lru_cache(maxsize=2)
def _head_of(path: Path, changed: int, size: int) -> Head:
    """The head of the file at `path`, which was last `changed` then and had that `size`."""
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not raw:
        raise InputError(f"{path} is empty.", "Capture it again.")
    packing = next((name for magic, (name, _) in _PACKINGS.items() if raw.startswith(magic)), "")
    if not packing:
        return Head(path, raw, raw)
    unpack = next(unpack for name, unpack in _PACKINGS.values() if name == packing)
    try:
        return Head(path, raw, unpack(raw), packing)
    except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
        return Head(path, raw, b"", packing)  # damaged, as who reads all of it will say


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The file at `path`, or a temporary one with its content where it is compressed by zstd.

    Raises `InputError` for damage, or content that grows beyond reason.
    """
    with path.open("rb") as file:
        packed = file.read(len(ZSTD)) == ZSTD
    if not packed:
        yield path
        return
    import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        made, most = Path(folder) / path.stem, max(_UNSUSPICIOUS, _MOST_SHRUNK * path.stat().st_size)
        try:
            with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as source, made.open("wb") as target:
                while part := source.read(SIZE):
                    target.write(part)
                    if target.tell() > most:
                        raise InputError(f"{path} grows more than {_MOST_SHRUNK} times when it is decompressed.")
        except OSError as error:
            raise InputError(
                f"{path} is damaged: its compressed content is broken or cut off.", "Copy it again."
            ) from error
        yield made


def _zstd(raw: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
        found = bytearray()
        try:
            while len(found) < SIZE and (part := stream.read(1 << 16)):
                found += part
        except OSError:  # the head of a file ends in the middle of a block
            if not found:
                raise
    return bytes(found[:SIZE])


_PACKINGS: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", lambda raw: zlib.decompressobj(wbits=31).decompress(raw, SIZE)),
    ZSTD: ("zstd", _zstd),
    b"BZh": ("bzip2", lambda raw: bz2.BZ2Decompressor().decompress(raw, SIZE)),
    b"\xfd7zXZ\0": ("xz", lambda raw: lzma.LZMADecompressor().decompress(raw, SIZE)),
}
