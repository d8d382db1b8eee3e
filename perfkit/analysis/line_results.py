"""Source lines in the results of an analysis: of a finding, and what each takes a step."""

from __future__ import annotations

import msgspec


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of source code that a finding is about, and its share of what the finding is about, 0 to 1.

    `line` is 0 where it is somewhere in the function; without `exact` it is the function's first line, or where
    `compiled` the line that calls the compiled code.
    """

    file: str
    line: int
    function: str
    exact: bool = True
    compiled: bool = False
    share: float
    code: str = ""  # the text of the line, where it is known
    library: str = ""  # the function of a library in which the line spends most


class LineTime(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one line of source code, a step; times in ns.

    `host_ns` is the time of the step's own thread, of which `python_ns` lies between operators; `kernel_ns` that of the
    kernels that it launches, of a forward line those of its backward too; `idle_ns` that in which a GPU was idle.
    """

    file: str
    line: int
    function: str
    exact: bool = True
    compiled: bool = False
    code: str = ""
    library: str = ""
    host_ns: float
    python_ns: float
    kernel_ns: float
    kernels: float
    waits: float  # for a value or for a device
    wait_ns: float
    idle_ns: float | None = None
    bytes: float | None = None  # allocated
