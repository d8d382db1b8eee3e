"""The files of perfkit that a command enters, and the functions through which its path goes.

    python tools/entered.py report trace.json.gz --format none
    python tools/entered.py --why report trace.json.gz --format none

A file is entered where one of its functions is called, and only imported where nothing but its body runs. A stop is a
function that gets the command's path, or a list or record that holds it. --why lists each file with the function that
is called first, its caller, and the number of functions called.
"""

from __future__ import annotations

import inspect
import os
import runpy
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1] / "perfkit"


class Entered:
    """What a profile function sees of perfkit: the files that ran, the first caller of each function, the stops."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.ran: set[str] = set()
        self.callers: dict[CodeType, str] = {}
        self.stops: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{ROOT}{os.sep}"):
            return
        self.ran.add(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a module or class
            self.callers.setdefault(code, self._caller(frame))
            if self.path and code not in self.stops and self._carries(frame):
                self.stops.add(code)

    def _caller(self, frame: FrameType) -> str:
        above = frame.f_back
        while above and not above.f_code.co_filename.startswith(str(ROOT)):
            above = above.f_back
        return f"{named(above.f_code.co_filename)}:{above.f_code.co_qualname}" if above else ""

    def _carries(self, frame: FrameType) -> bool:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        return any(self._is(frame.f_locals.get(name)) for name in code.co_varnames[:count])

    def _is(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return any(isinstance(one, str | Path) and self._is(one) for one in value[:8])
        value = getattr(value, "path", value)
        return isinstance(value, str | Path) and Path(value) == self.path


def named(file: str) -> str:
    """The path of a file below perfkit/."""
    return str(Path(file).relative_to(ROOT))


def main() -> None:
    """Run the command and print the figures on stderr."""
    why = sys.argv[1:2] == ["--why"]
    sys.argv[0:2] = ["perfkit"] if why else ["perfkit", *sys.argv[1:2]]
    seen = Entered(next((Path(one) for one in sys.argv[1:] if Path(one).exists()), None))
    sys.path.insert(0, str(ROOT.parent))
    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        runpy.run_module("perfkit", run_name="__main__")
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    functions = Counter(code.co_filename for code in seen.callers)
    if why:
        firsts = {code.co_filename: (code, by) for code, by in reversed(seen.callers.items())}
        for file in sorted(seen.ran):
            code, by = firsts.get(file, (None, ""))
            print(f"{functions[file]:4} {named(file):50} {f'{code.co_qualname} by {by}' if code else 'only imported'}",
                  file=sys.stderr)  # fmt: skip
    files = {code.co_filename for code in seen.stops}
    print(f"{len(functions)} files entered, {len(seen.ran) - len(functions)} only imported; "
          f"the path makes {len(seen.stops)} stops in {len(files)} files", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
