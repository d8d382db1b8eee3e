"""NVIDIA's run-time compiler, called through ctypes. It needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import RunFailed, Unavailable
from perfkit.hardware.identity import torch_cuda

_SUCCESS = 0


@dataclass(frozen=True)
class CompiledCuda:
    """`names` maps each name expression to the symbol in `cubin`; `log` is what compiler and assembler said.

    `ptx` is the text that the assembler made `cubin` of.
    """

    cubin: bytes
    names: Mapping[str, str]
    log: str
    ptx: str = ""


@functools.cache
def library() -> ctypes.CDLL:
    """libnvrtc: of NVIDIA's Python package, else of the system. Raises `Unavailable` when none of them loads."""
    for candidate in _candidates():
        try:
            # It opens its builtins by their bare name, which is found when they are open already.
            for builtins in Path(candidate).parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise Unavailable(
        "NVRTC, which compiles CUDA kernels, is not on this machine.", "Install it: pip install nvidia-cuda-nvrtc."
    )


def _candidates() -> Iterator[str]:
    """Possible paths of libnvrtc, best first: packages (the release of PyTorch's CUDA before others), then the
    system's."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    packaged = [file for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
    wanted = (torch_cuda() or "").removeprefix("CUDA ").partition(".")[0]  # "13"; "" where PyTorch has none
    yield from map(str, sorted(packaged, key=lambda f: (f.suffix == f".{wanted}", f.suffix, str(f)), reverse=True))
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    yield from map(str, sorted(Path(home).glob("lib64/libnvrtc.so*")))
    found = ctypes.util.find_library("nvrtc")
    if found:
        yield found


def version() -> tuple[int, int]:
    """The version of the library that is used."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_source(
    source: str, name: str, headers: Mapping[str, str], options: Sequence[str], expressions: Sequence[str]
) -> CompiledCuda:
    """Compile `source`, called `name` in messages, for the kernels that the name expressions name.

    `headers` are the texts that `#include <…>` finds, by name. Raises `RunFailed` with the compiler's log.
    """
    program = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(headers))(*[text.encode() for text in headers.values()])
    names = (ctypes.c_char_p * len(headers))(*[key.encode() for key in headers])
    _call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names)
    try:
        for expression in expressions:
            _call("nvrtcAddNameExpression", program, expression.encode())
        arguments = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = library().nvrtcCompileProgram(program, len(options), arguments)
        log = _text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode(errors="replace").strip("\0\n")
        if status != _SUCCESS:
            lines = "\n".join(log.splitlines()[:30]) or _message(status)
            raise RunFailed(f"NVRTC could not compile {name}:\n{lines}\n", "Correct the source.")
        cubin = _text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        ptx = _text(program, "nvrtcGetPTXSize", "nvrtcGetPTX").decode(errors="replace").strip("\0")
        return CompiledCuda(cubin, {e: _lowered(program, e) for e in expressions}, log, ptx)
    finally:
        library().nvrtcDestroyProgram(ctypes.byref(program))


def _lowered(program: ctypes.c_void_p, expression: str) -> str:
    name = ctypes.c_char_p()
    _call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(name))
    return (name.value or b"").decode()


def _text(program: ctypes.c_void_p, size_function: str, function: str) -> bytes:
    size = ctypes.c_size_t()
    _call(size_function, program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(function, program, buffer)
    return buffer.raw


def _call(function: str, *arguments: object) -> None:
    status = getattr(library(), function)(*arguments)
    if status != _SUCCESS:
        raise RunFailed(f"NVRTC's {function} failed: {_message(status)}.", "Reinstall nvidia-cuda-nvrtc.")


def _message(status: int) -> str:
    function = library().nvrtcGetErrorString
    function.restype = ctypes.c_char_p
    return (function(status) or b"unknown error").decode()
