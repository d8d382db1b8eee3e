"""Finding workloads by name and path, and messages about names and files that are not workloads."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.errors import InputError, Unavailable, UsageError
from perfkit.workloads import find, loader, names

ROOT = Path(__file__).resolve().parents[2]

GOOD = """
from perfkit.workloads import Workload

class Mine(Workload):
    name, summary, presets = "mine", "a test's own", {"only": {"batch_size": 2}}
    def build(self, settings): ...
    def batch(self, settings, step): ...
"""


@pytest.fixture
def write(tmp_path):
    def file(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return file


def says(error, kind=InputError):
    return pytest.raises(kind, match=error)


def test_built_in_by_name():
    assert find("gpt2").name == "gpt2"
    assert loader.source_of(find("gpt2")) == "gpt2"


def test_names_list_what_is_in_the_folder():
    listed = {listing.name: listing for listing in names()}
    files = (ROOT / "workloads").glob("[!_]*.py")  # a file that begins with _ is a part of another
    assert listed.keys() == {path.stem for path in files}
    assert listed["gpt2"].presets == ("gpt2", "tiny", "medium", "large", "xl")
    assert listed["gpt2"].variants == ("explicit", "sdpa")
    assert listed["gpt2"].path == ROOT / "workloads" / "gpt2.py"
    assert listed["gpt2"].reason == ""


def test_names_without_torch_say_why(monkeypatch):
    monkeypatch.setattr(loader, "torch_installed", lambda: False)
    listed = {listing.name: listing for listing in names()}
    assert listed["gpt2"].reason == "PyTorch is not installed: pip install 'perfkit[run]'"
    assert listed["gpt2"].summary.startswith("GPT-2")
    with says(r"gpt2 cannot be loaded: PyTorch is not installed\. .*pip install 'perfkit\[run\]'", Unavailable):
        find("gpt2")


def test_the_package_and_a_wrong_name_need_no_torch():
    script = (
        "import sys, perfkit.workloads as w\n"
        "from perfkit.workloads import Settings, Workload, find, resolve_settings\n"
        "try: find('gpt3')\n"
        "except w.loader.PerfkitError: pass\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_a_user_s_file(write, monkeypatch, tmp_path):
    path = write(GOOD)
    workload = find(str(path))
    assert workload.name == "mine"
    assert loader.source_of(workload) == str(path)
    assert find(loader.source_of(workload)).name == "mine"
    monkeypatch.chdir(tmp_path)
    assert type(find("mine.py")) is type(find("./mine.py")) is type(workload)
    assert type(pickle.loads(pickle.dumps(workload))) is type(workload)


def test_a_class_that_is_only_a_base_does_not_count(write):
    base = GOOD.replace("class Mine", "class Base").replace("def batch", "def other")
    text = base + "\nclass Mine(Base):\n    def batch(self, settings, step): ...\n"
    assert type(find(str(write(text, "derived.py")))).__name__ == "Mine"


def test_an_unknown_name():
    with says(r"no workload called 'gpt3'\. Did you mean gpt2\? Known: .*gpt2", UsageError):
        find("gpt3")
    with says(r"no workload called 'zzz'\. Known: ", UsageError):
        find("zzz")
    with says("no workload called ''", UsageError):
        find("")


def test_a_name_that_is_also_a_file_here(write, monkeypatch, tmp_path):
    write(GOOD)
    monkeypatch.chdir(tmp_path)
    with says(r"give its path: \./mine\.py", UsageError):
        find("mine")


def test_a_path_that_leads_nowhere(tmp_path):
    with says("no file .*missing.py"):
        find(str(tmp_path / "missing.py"))
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "run.json").touch()
    with says("is a run folder, no workload"):
        loader.find(str(tmp_path / "made"))
    with says("is a folder. Give the workload's Python file"):
        find(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1\n", "defines no workload: it has no subclass of Workload"),
        ("from perfkit.workloads import Workload\n", "defines no workload: it has no subclass of Workload"),
        (GOOD.replace("def batch", "def other"), "defines no workload: its class Mine lacks batch"),
        (GOOD + GOOD.replace("Mine", "Other").replace("from", "#"), "defines several workloads: Mine, Other"),
        (GOOD.replace("name, summary, presets", "title, summary, presets"), "Mine sets no name"),
        (GOOD.replace('"batch_size"', '"size"'), "the preset only of Mine has no batch_size"),
        ("def broken(:\n", "line 1, is not valid Python"),
        ("import no_such_package\n", "No module named 'no_such_package'"),
    ],
    ids=["empty", "imported", "abstract", "several", "nameless", "sizeless", "syntax", "import"],
)
def test_files_that_define_no_workload(write, request, text, error):
    with says(error):
        find(str(write(text, f"{request.node.callspec.id}.py")))
