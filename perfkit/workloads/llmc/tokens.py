"""llm.c's token data: [0] 20240520, [1] 1, [2] number of tokens; then uint16 tokens. Older files are raw int32.

Of Llama 3: [0] 20240801, [1] 7, [2] number of tokens; then uint32 tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfkit.errors import InputError
from perfkit.workloads.llmc import header as files

_FORMS = {  # by what the header says: its magic number, its versions, and how a token is stored
    files.KINDS[files.TOKENS]: (files.TOKENS, {1: "uint16"}, "<u2"),
    files.KINDS[files.WIDE_TOKENS]: (files.WIDE_TOKENS, {7: "uint32"}, "<u4"),
}
LIMIT = 1 << 16  # a token is a uint16


def read_tokens(path: Path, vocabulary: int) -> np.ndarray:
    """The tokens of an llm.c token file (mapped, not read), in any of its forms.

    Raises `InputError` when the file is something else, truncated, or holds a token ≥ `vocabulary`.
    """
    kind = files.kind_of(path)
    if kind in _FORMS:
        magic, versions, dtype = _FORMS[kind]
        header = files.read_header(path, magic)
        files.check_version(path, header, versions)
        if header[2] < 0:
            raise InputError(f"{path} is damaged: its header promises {header[2]} tokens.")
        files.check_size(path, files.BYTES + np.dtype(dtype).itemsize * int(header[2]))
        tokens = files.mapped(path, dtype, files.BYTES)
    elif kind:
        raise InputError(f"{path} is {kind}, not token data.", "Give a token file, a text, or synthetic.")
    elif path.stat().st_size % 4:
        raise _no_token_file(path)
    else:
        tokens = files.mapped(path, "<i4", 0)
        if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 24):
            raise _no_token_file(path)  # no vocabulary is that large: these are other bytes
    if tokens.size and tokens.max() >= vocabulary:
        raise InputError(
            f"{path} holds the token {tokens.max()}, but the model's vocabulary has {vocabulary}.",
            "Use a preset with the vocabulary that the file was made with.",
        )
    return tokens


def write_tokens(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` as token data of version 1.

    Raises `InputError` for a token that does not fit a uint16, `RunFailed` when the file cannot be written.
    """
    values = np.asarray(tokens)
    if values.size and not 0 <= values.min() <= values.max() < LIMIT:
        raise InputError(f"llm.c's token data holds tokens below {LIMIT}; there is one of {values.max()}.")
    header = files.make_header(files.TOKENS, 1, len(values))
    files.write(path, header, lambda file: file.write(values.astype("<u2").tobytes()))


def _no_token_file(path: Path) -> InputError:
    return InputError(
        f"{path} is not a token file: it has neither llm.c's header ({files.TOKENS}) nor raw int32 tokens.",
        "Give an llm.c token file, a text file, or synthetic.",
    )
