"""Imported by every Python that `unharmed.py` starts: at its end the process writes what it was left with.

The same file runs alone and under `perfkit capture`. Nothing here imports torch or replaces a function.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
import warnings
from types import FunctionType, MethodType
from typing import Any

PERFKIT = os.environ.get("UNHARMED_PERFKIT", "")


def counters() -> dict[str, dict[str, int]]:
    """Dynamo's counters; not those of caches, which perfkit's own reading of generated code passes by."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    groups = getattr(dynamo, "counters", {})
    return {
        group: {str(name): int(count) for name, count in sorted(values.items()) if "cache" not in str(name)}
        for group, values in sorted(groups.items())
        if values
    }


def left_behind() -> list[str]:
    """Return perfkit's functions that are left in torch, in Python's threads or in hooks."""
    found = [name for name in ("getprofile", "gettrace") if perfkits(getattr(sys, name)())]
    found += [name for name in ("excepthook", "displayhook") if perfkits(getattr(sys, name))]
    seen = set()
    for module_name, module in sorted(sys.modules.items()):
        if module is None or module_name.split(".")[0] not in ("torch", "threading", "signal", "os", "atexit"):
            continue
        for name, value in list(vars(module).items()):
            # By type: torch has objects that warn when they are asked for their class.
            if issubclass(type(value), type) and id(value) not in seen:
                seen.add(id(value))
                found += [f"{value.__name__}.{inner}" for inner, one in list(vars(value).items()) if perfkits(one)]
            elif issubclass(type(value), dict) and name.startswith("_global"):
                found += [f"{module_name}.{name}" for one in list(value.values()) if perfkits(one)]
            elif perfkits(value):
                found.append(f"{module_name}.{name}")
    return sorted(set(found))


def perfkits(value: Any) -> bool:
    """Return whether `value` is a function of perfkit."""
    function = value.__func__ if type(value) in (classmethod, staticmethod, MethodType) else value
    return type(function) is FunctionType and function.__code__.co_filename.startswith(PERFKIT)


def at_exit() -> None:
    """Write what the process was left with."""
    torch = sys.modules.get("torch")
    record = {
        "counters": counters(),
        "threads": sorted(f"{type(one).__name__} {one.daemon}" for one in threading.enumerate()),
        "filters": len(warnings.filters),
        "left": left,
        "hooks": [repr(sys.getprofile()), repr(sys.gettrace())],
        "torch": torch is not None,
    }
    path = os.path.join(os.environ["UNHARMED"], f"{os.getpid()}.json")
    with contextlib.suppress(OSError):
        with open(f"{path}.part", "w") as file:  # whole or not at all: a parent may kill the process meanwhile
            json.dump(record, file)
        os.replace(f"{path}.part", path)


def threads_ended() -> None:
    """Note what is left of perfkit when the main thread and every thread that Python waits for have ended."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    if recorded():
        left.extend(left_behind())


def recorded() -> bool:
    """Return whether perfkit has written a trace of this process's steps."""
    order = os.environ.get("PERFKIT_CAPTURE")
    return bool(order) and os.path.isfile(
        os.path.join(os.path.dirname(str(order)), f"process-{os.getpid()}", "trace.json")
    )


left: list[str] = []
if "UNHARMED" in os.environ:
    threading._register_atexit(threads_ended)  # type: ignore[attr-defined]  # before what perfkit does at exit
    atexit.register(at_exit)
