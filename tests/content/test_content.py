"""Content files: found next to the engine, loaded by path under a stable name, refused with a clear message."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from pathlib import Path

import pytest

from perfkit import content
from perfkit.errors import InputError, Unavailable

PLAIN = """
class Model:
    def __init__(self, width):
        self.width = width

def double(x):
    return 2 * x
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A root with content of its own in place of the repository's."""
    (tmp_path / "kernels" / "scale").mkdir(parents=True)
    (tmp_path / "workloads").mkdir()
    write(tmp_path / "kernels" / "scale", "scale.py", PLAIN)
    monkeypatch.setattr(content, "_ROOT", tmp_path)
    monkeypatch.setattr(content, "__path__", [str(tmp_path)])
    before = dict(sys.modules)
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith("perfkit.content.") and n not in before]:
        del sys.modules[name]
    for kind in content.KINDS:
        vars(content).pop(kind, None)


@pytest.mark.parametrize("kind", ["kernels", "workloads"])
def test_the_content_folders_are_the_repositorys(kind):
    assert content.content_dir(kind) == Path(__file__).resolve().parents[2] / kind


def test_a_missing_content_folder_is_a_sentence(checkout):
    with pytest.raises(InputError, match="no reports folder"):
        content.content_dir("reports")


def test_a_built_in_file_is_named_by_its_place_and_loaded_once(checkout):
    path = checkout / "kernels" / "scale" / "scale.py"
    module = content.load_content_module("kernels", path)
    assert module.__name__ == "perfkit.content.kernels.scale.scale"
    assert content.load_content_module("kernels", str(path)) is module
    assert sys.modules["perfkit.content.kernels.scale"].scale is module


def test_objects_of_content_modules_pickle(tmp_path):
    module = content.load_content_module("workloads", write(tmp_path, "model.py", PLAIN))
    again = pickle.loads(pickle.dumps(module.Model(7)))
    assert isinstance(again, module.Model)
    assert again.width == 7


def test_users_files_of_one_name_do_not_meet(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = content.load_content_module("workloads", write(tmp_path / "a", "my-model.py", "WIDTH = 1"))
    second = content.load_content_module("workloads", write(tmp_path / "b", "my-model.py", "WIDTH = 2"))
    assert (first.WIDTH, second.WIDTH) == (1, 2)
    assert first.__name__.startswith("perfkit.content.workloads.my_model_")


def test_a_users_file_imports_its_neighbour(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, "neighbour_of_model.py", "WIDTH = 3")
    path = write(tmp_path, "model.py", "from neighbour_of_model import WIDTH")
    module = content.load_content_module("workloads", path)
    assert module.WIDTH == 3


def _load_and_double(path: str) -> int:
    return content.load_content_module("workloads", path).double(21)


def test_a_spawned_process_loads_a_users_file_by_its_path(tmp_path):
    path = write(tmp_path, "model.py", PLAIN)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_load_and_double, (str(path),)) == 42


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def broken(:\n    pass\n", r"model\.py, line 1, is not valid Python"),
        ("x = 1\nx / 0\n", r"model\.py, line 2, failed while it was loaded: ZeroDivisionError: division by zero"),
        ("import no_such_package_anywhere\n", r"line 1, failed .* No module named 'no_such_package_anywhere'"),
        ("raise SystemExit(3)\n", r"line 1, failed while it was loaded: SystemExit: 3"),
        ("x = '\0'\n", r"model\.py.* null bytes"),
    ],
)
def test_a_file_that_fails_says_where_and_why(tmp_path, text, sentence):
    path = write(tmp_path, "model.py", text)
    before = set(sys.modules)
    with pytest.raises(InputError, match=sentence):
        content.load_content_module("workloads", path)
    assert set(sys.modules) <= before


def test_a_files_own_perfkit_error_passes_unchanged(tmp_path):
    path = write(tmp_path, "model.py", "from perfkit.errors import Unavailable\nraise Unavailable('No camera here.')\n")
    with pytest.raises(Unavailable, match="No camera here"):
        content.load_content_module("workloads", path)


def test_missing_files_folders_and_other_types(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        content.load_content_module("workloads", tmp_path / "absent.py")
    with pytest.raises(InputError, match="not a Python file"):
        content.load_content_module("workloads", tmp_path)
    with pytest.raises(InputError, match="not a Python file"):
        content.load_content_module("workloads", write(tmp_path, "model.txt", PLAIN))


@pytest.mark.slow
def test_torch_compile_traces_a_content_module(tmp_path):
    torch = pytest.importorskip("torch")
    module = content.load_content_module("workloads", write(tmp_path, "model.py", PLAIN))
    x = torch.arange(4.0)
    assert torch.equal(torch.compile(module.double, backend="aot_eager")(x), 2 * x)
