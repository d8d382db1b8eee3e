"""Lines of compiled code: those of the model, as the compiler noted them of each call in the code that it generated."""

from __future__ import annotations

import numpy as np

from perfkit.columns import Coded, Integers
from perfkit.readers.kineto.lines.join import Lined
from perfkit.readers.kineto.lines.line_times import frames_of
from perfkit.readers.kineto.lines.stacks import SourceFrame, is_library


def frames_of_rows(lined: Lined, launched: Integers, sources: Coded | None) -> Integers:
    """The frame of each row, −1 for none: of compiled code that of the model, else that of the host event which made
    the row. Frames that are new are added to `lined`.

    Where the model's line is a library's, the user's line that called the compiled code comes first, if it is known.
    """
    found = frames_of(lined, launched)
    if sources is None or not (sources.code >= 0).any():
        return found
    known = {frame: number for number, frame in enumerate(lined.frames)}
    number, library = [], []
    for word in sources.words:
        frame = _frame(word)
        if frame is not None and frame not in known:
            known[frame] = len(lined.frames)
            lined.frames.append(frame)
        number.append(known[frame] if frame is not None else -1)
        library.append(frame is not None and is_library(frame.file))
    of_source = np.array([*number, -1])[sources.code]
    later = np.array([*library, False])[sources.code] & (found >= 0)
    return np.where((of_source >= 0) & ~later, of_source, found)


def _frame(source: str) -> SourceFrame | None:
    file, line, function = ["", "", *source.rsplit("|", 2)][-3:]
    return SourceFrame(file, int(line), function, True) if file and line.isdigit() else None
