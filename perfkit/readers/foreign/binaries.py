"""Files by their first bytes: archives, models, pickles, and what other tools write."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfkit.readers.foreign import Foreign
from perfkit.readers.sniff import Head

UNPACK = "Unpack it, and give the profile inside, or the folder with the profiles of all ranks."
MODEL = "Give a profile of a step of the model: `perfkit capture -- COMMAND` records one."
TORCH = "Record one with torch.profiler (`perfkit capture -- COMMAND` does), and give its trace."
SNAPSHOT = "Unpack it: `perfkit report` reads the pickle that torch.cuda.memory._dump_snapshot wrote."
_ONNX = re.compile(rb"\x08[\x01-\x20](?:\x12|\x1a|\x22|\x3a|\x42)")
_MARSHALLED = (b"{(", b"{)", b"{\xa8", b"{\xa9", b"\xfb(", b"\xfb)", b"\xfb\xa8", b"\xfb\xa9")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PACKETS = 3
RUN = "Profile a run of it: `perfkit capture --tool ncu -- PROGRAM`."
_SAVED = "a saved PyTorch object (`torch.save`: weights or a checkpoint)"
_SQLITE = "Export to sqlite instead: `nsys export --type sqlite REPORT.nsys-rep`."


def _starts(*magic: bytes, at: int = 0) -> Callable[[Head], bool]:
    """Asks whether one of `magic` is at the byte `at`."""
    return lambda head: head.text[at:].startswith(magic)


def _pickled(*words: bytes) -> Callable[[Head], bool]:
    """Asks whether it is a pickle that holds one of `words`, or any where none is given."""
    return lambda head: _PICKLE.match(head.text) is not None and (not words or any(w in head.text for w in words))


_of_allocator = _pickled(b"device_traces", b"segments")


def _zipped(*names: bytes) -> Callable[[Head], bool]:
    return lambda head: head.text.startswith(b"PK\x03\x04") and any(name in head.text for name in names)


def _near_the_start(mark: bytes) -> Callable[[Head], bool]:
    return lambda head: mark in head.text[:64]


def is_marshalled(head: Head) -> bool:
    """Return whether it is Python's marshal of a dictionary, which begins as a JSON object does."""
    return head.text.startswith(_MARSHALLED)


def _is_perfetto(head: Head) -> bool:
    """Return whether it is a protobuf whose first fields are all number 1, the packets of a Perfetto trace."""
    at, text = 0, head.text
    for _ in range(_PACKETS):
        if text[at : at + 1] != b"\n":
            return False
        length, shift, at = 0, 0, at + 1
        while at < len(text) and shift < 35:
            length |= (text[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if text[at - 1] < 0x80:
                break
        at += length
        if at >= len(text):
            return at == len(text) and b"\0" in text[:4096]
    return True


KINDS = (
    Foreign(_SAVED, MODEL, _zipped(b"/data.pkl", b"/version")),
    Foreign("a NumPy archive", "Give a profile.", _zipped(b".npy")),
    Foreign("a zip archive", UNPACK, _starts(b"PK\x03\x04", b"PK\x05\x06")),
    Foreign("a tar archive", UNPACK, lambda head: head.text[257:262] == b"ustar"),
    Foreign("a tar archive", UNPACK, lambda head: head.packing != "" and head.text[:512] == bytes(512)),
    Foreign("a 7z, RAR or LZ4 archive", UNPACK, _starts(b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x04\x22\x4d\x18")),
    Foreign("a memory snapshot of PyTorch", SNAPSHOT, lambda head: bool(head.packing) and _of_allocator(head)),
    Foreign(
        "the flight recorder of torch.distributed: collectives without kernels",
        "`torchfrtrace` reads it. Give perfkit the ranks' torch.profiler traces.",
        _pickled(b"pg_config", b"pg_status"),
    ),
    Foreign(
        _SAVED,
        MODEL,
        _pickled(b"torch._utils", b"\x8a\nl\xfc\x9c"),
    ),
    Foreign("a Python pickle, which may run code and is never opened", f"Give a profile. {TORCH}", _pickled()),
    Foreign("a profile of Python's cProfile", f"`python -m pstats FILE` shows it. {TORCH}", is_marshalled),
    Foreign("a memory profile of memray", f"`memray flamegraph FILE` shows it. {TORCH}", _starts(b"memray")),
    Foreign("a recording of Linux perf", f"`perf report -i FILE` shows it. {TORCH}", _starts(b"PERFILE2")),
    Foreign(
        "an unfinished recording of Nsight Systems",
        "`nsys import FILE` makes a .nsys-rep of it; export that: `nsys export --type sqlite REPORT.nsys-rep`.",
        lambda head: head.path.suffix == ".qdstrm",
    ),
    Foreign(
        "a log of TensorBoard",
        "Open it with `tensorboard --logdir FOLDER`.",
        _near_the_start(b"brain.Event:"),
    ),
    Foreign("a model in ONNX", MODEL, lambda head: _ONNX.match(head.text) is not None),
    Foreign(
        "weights in safetensors",
        MODEL,
        _starts(b'\0\0\0\0{"', at=4),
    ),
    Foreign("a model in TensorFlow Lite", MODEL, _starts(b"TFL3", at=4)),
    Foreign("an engine of TensorRT", MODEL, _starts(b"ptrt", b"ftrt")),
    Foreign("weights in GGUF", MODEL, _starts(b"GGUF")),
    Foreign("a NumPy array", "Give a profile.", _starts(b"\x93NUMPY")),
    Foreign(
        "an HDF5 file",
        _SQLITE,
        _starts(b"\x89HDF\r\n"),
    ),
    Foreign("an Arrow file", _SQLITE, _starts(b"ARROW1")),
    Foreign(
        "a program or GPU binary (ELF)",
        RUN,
        _starts(b"\x7fELF"),
    ),
    Foreign("a trace of Perfetto (protobuf)", f"Open it in ui.perfetto.dev. {TORCH}", _is_perfetto),
    Foreign("regions of a kernel (perfkit/profile.cuh)", "`perfkit inspect FILE` shows them.", _starts(b"PKREGION")),
    Foreign("an image", "Give the profile that it shows.", _starts(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")),
    Foreign("a PDF document", "Give the profile that it shows.", _starts(b"%PDF")),
)
