"""Sending, receiving, and the environment there, without another machine."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfkit.errors import Unavailable, UsageError
from perfkit.remote import bootstrap, environment, files
from perfkit.run_folder import MANIFEST


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_of_a_checkout_all_is_sent_but_what_git_ignores(tmp_path):
    fill(tmp_path, "a.py", "sub/b.py", "new.py", "data/x", "runs/r/x", "old/run.json", "old/eager/x", ".venv/x", "gone")
    (tmp_path / ".gitignore").write_text("data/\n")
    fill(tmp_path / "module", "own.py")
    for place in (tmp_path / "module", tmp_path):
        git(place, "init", "-q")
    git(tmp_path, "add", "a.py", "sub", ".gitignore", "gone")
    (tmp_path / "gone").unlink()
    (tmp_path / "link").symlink_to("a.py")
    assert sorted(files.working(tmp_path)) == [".gitignore", "a.py", "link", "module/own.py", "new.py", "sub/b.py"]
    assert sorted(files.working(tmp_path / "data")) == ["x"]  # ignored, and yet where somebody works


def test_of_another_folder_all_is_sent_but_what_can_be_made_again(tmp_path):
    names = [
        "a.py",
        "sub/b.txt",
        "sub/__pycache__/b.pyc",
        "venv/x",
        "runs/r/x",
        "c.pyc",
        f"first/{MANIFEST}",
        "first/x",
    ]
    fill(tmp_path, *names)
    (tmp_path / "linked").symlink_to("sub")
    assert sorted(files.working(tmp_path)) == ["a.py", "linked", "sub/b.txt"]


def test_a_folder_of_data_is_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 10)
    with pytest.raises(UsageError, match=r"holds 0\.0 GB in 2 files to send\. Let git ignore the data"):
        files.working(fill(tmp_path, "large-a", "large-b"))


def test_the_engine_is_laid_out_as_a_wheel_is():
    sent = files.engine()
    assert {"perfkit/cli/run.py", "perfkit/content/workloads/mlp.py", "perfkit/remote/probe.sh"} <= set(sent)
    assert not any("__pycache__" in name for name in sent)
    assert files.digest(sent) == files.digest(files.engine())
    assert {"msgspec", "pandas", "psutil"} <= {text.partition(">=")[0] for text in files.requirements()}
    assert not any("torch" in text for text in files.requirements())


def send(here: Path, root: Path) -> list[str]:
    """Send `here` as a session does; the files that were lacking."""
    wanted = files.working(here)
    lacking = bootstrap.need(root, {"work": "w/p", "engine": "e", "files": wanted})
    order = {"run": "r", "work": "w/p", "engine": "e", "files": list(wanted), "token": "t"}
    members = {f"files/{path}": here / path for path in lacking["files"]}
    if not lacking["engine"]:
        members["engine/perfkit/x.py"] = Path(__file__)
    stream = io.BytesIO()
    files.pack(stream, order, members)
    stream.seek(0)
    bootstrap.receive(root, stream)
    return sorted(lacking["files"])


def tree(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): bootstrap.fingerprint(p)
        for p in folder.rglob("*")
        if bootstrap.fingerprint(p)
    }


def test_only_what_changed_is_sent_and_what_a_program_made_stays(tmp_path):
    here, root = fill(tmp_path / "here", "a.py", "sub/b.py", "thing/x", "tool"), tmp_path / "root"
    (here / "tool").chmod(0o755)
    (here / "link").symlink_to("sub")
    assert send(here, root) == ["a.py", "link", "sub/b.py", "thing/x", "tool"]
    work = root / "work" / "w" / "p"
    assert tree(work) == files.working(here) and (root / "engine" / "e" / "perfkit" / "x.py").is_file()
    assert send(here, root) == []
    fill(work, "checkpoint.pt")
    (here / "a.py").write_text("changed")
    (here / "sub" / "b.py").unlink()
    (here / "thing" / "x").unlink()
    (here / "thing").rmdir()
    fill(here, "thing")  # a file where a folder was
    (here / "link").unlink()
    fill(here, "link/inside")  # and a folder where a link was
    assert send(here, root) == ["a.py", "link/inside", "thing"]
    assert tree(work) == {**files.working(here), "checkpoint.pt": bootstrap.fingerprint(work / "checkpoint.pt")}


def test_nothing_is_written_outside(tmp_path):
    for name in ("files/../../x", "files//x", "engine/a/../../../x"):
        stream = io.BytesIO()
        order = {"run": "r", "work": "w/p", "engine": "e", "files": [], "token": ""}
        files.pack(stream, order, {name: Path(__file__)})
        stream.seek(0)
        with pytest.raises(bootstrap.Refusal, match="lies outside"):
            bootstrap.receive(tmp_path / "root", stream)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def wheel(folder: Path, name: str, version: str) -> None:
    """The smallest wheel that pip installs."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as packed:
        packed.writestr(f"{name}.py", f"version = '{version}'\n")
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")


def test_the_environment_sees_what_python_sees_and_takes_what_is_lacking(tmp_path, monkeypatch):
    place = environment.folder(tmp_path)
    assert environment.folder(tmp_path) == place
    assert environment.lacking(place, ["numpy>=1.26", "numpy>=999", "perfkit_test_part>=1.2"]) == [
        "numpy>=999",
        "perfkit_test_part>=1.2",
    ]
    bounded = ["numpy<999,>=1.26", "numpy>=1.26,<999", "numpy<1.26,>=1.0", "numpy >= 1.26, < 2"]
    assert environment.lacking(place, bounded) == ["numpy<1.26,>=1.0", "numpy >= 1.26, < 2"]
    wheel(tmp_path, "perfkit_test_part", "1.3")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environment.install(place, ["perfkit_test_part>=1.2"])
    assert environment.lacking(place, ["perfkit_test_part>=1.2"]) == []
    ask = [environment.python(place), "-c", "import numpy, perfkit_test_part as p; print(p.version)"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "1.3\n"
    with pytest.raises(Unavailable, match=r"perfkit_test_part>=9 cannot be installed there: ERROR: .*Install it there"):
        environment.install(place, ["perfkit_test_part>=9"])


def test_the_program_runs_in_the_chosen_python_itself(tmp_path):
    place = environment.folder(tmp_path)
    variables = environment.variables(place, tmp_path / "engine")
    ask = ["python", "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(ask, env=variables, capture_output=True, text=True, check=True).stdout.strip() == sys.prefix
    assert variables["PYTHONPATH"].startswith(str(tmp_path / "engine"))
