"""What Python imports first in a program under `perfkit capture`: it waits for torch, and is otherwise not there.

The folder of this file stands first on PYTHONPATH, where children of the program inherit it. Nothing is imported here
that Python has not loaded already.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _TorchFinder:
    """Lets torch be found as ever, and arms perfkit when it has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    """torch's own loader, and what follows it."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _perfkit()
            from perfkit.capture.agent import arming

            arming.arm(os.environ["PERFKIT_CAPTURE"])
        except Exception as error:  # the program goes on, whatever happens to its profiler
            print(f"perfkit: this program is not recorded: {type(error).__name__}: {error}", file=sys.stderr)


def _perfkit():
    """Import the perfkit that this file is of, and make none of the packages beside it importable."""
    from importlib.util import module_from_spec, spec_from_file_location

    if "perfkit" in sys.modules:
        return
    folder = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    spec = spec_from_file_location("perfkit", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = module_from_spec(spec)
    sys.modules["perfkit"] = module
    spec.loader.exec_module(module)


def _say_started():
    """Leave a file that says that a Python process found perfkit."""
    path = os.path.join(os.path.dirname(os.environ["PERFKIT_CAPTURE"]), "started")
    try:
        open(path, "a").close()
    except OSError:  # without it the program goes on
        return


def _chain():
    """Import the sitecustomize that Python would have found without this one, where there is one."""
    from importlib.machinery import PathFinder

    if PathFinder.find_spec("sitecustomize") is not None:
        sys.modules.pop("sitecustomize", None)
        __import__("sitecustomize")


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
if os.environ.get("PERFKIT_CAPTURE"):
    sys.meta_path.insert(0, _TorchFinder())
    _say_started()
_chain()
