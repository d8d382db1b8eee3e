"""Copies of a folder before and after a change: what is copied, what is linked, and the folder itself untouched."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.tries.trees import SideNames, copies, keep

PATCH = """\
--- a/train.py
+++ b/train.py
@@ -1 +1 @@
-x = 1
+x = 2
"""


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` as somebody."""
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a commit, an ignored folder of data, a file that is not added, and a link."""
    place = tmp_path / "project"
    (place / "data").mkdir(parents=True)
    (place / "package").mkdir()
    for name, text in (
        ("train.py", "x = 1\n"),
        ("package/a.py", "a\n"),
        ("data/all.bin", "data\n"),
        (".gitignore", "data\n"),
    ):
        (place / name).write_text(text)
    (place / "latest.py").symlink_to("train.py")
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    (place / "new.py").write_text("new\n")
    return place


def _content(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): p.read_text()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".git/" not in str(p)
    }


def test_a_patch_is_only_in_the_second_copy(project: Path) -> None:
    whole, state = _content(project), git(project, "status", "--porcelain")
    with copies(SideNames(patch=PATCH), project) as ((before, after), change):
        assert (before.cwd / "train.py").read_text() == "x = 1\n" and (after.cwd / "train.py").read_text() == "x = 2\n"
        assert (after.cwd / "latest.py").read_text() == "x = 2\n"  # a link within the folder is one within the copy
        assert (after.root / "data").is_symlink() and (after.root / "data" / "all.bin").read_text() == "data\n"
        assert (before.root / "new.py").is_file() and not (before.root / "new.py").is_symlink()
        assert change.files == ("train.py",) and "+x = 2" in change.text
        assert after.moved(str(project / "train.py")) == str(after.root / "train.py")
        assert after.moved(f"{project}2/train.py") == f"{project}2/train.py"
        kept = before.root
    assert not kept.exists()
    assert _content(project) == whole and git(project, "status", "--porcelain") == state


def test_a_kept_change_applies_again(project: Path) -> None:
    with copies(SideNames(patch=PATCH), project) as (_, change):
        text = change.text
    with copies(SideNames(patch=text), project) as (_, again):
        assert again == change


@pytest.mark.parametrize("counts", ["@@ -1 +1 @@", "@@ -1,7 +1,9 @@"])
def test_a_patch_is_kept_in_the_folder(counts: str, project: Path) -> None:
    """Also one whose counts of lines are wrong, as agents write them; one that no longer applies is a sentence."""
    patch = PATCH.replace("@@ -1 +1 @@", counts)
    with copies(SideNames(patch=patch), project) as (_, change):
        assert change.files == ("train.py",)
    keep(patch, project)
    assert (project / "train.py").read_text().startswith("x = 2\n")
    with pytest.raises(UsageError, match="does not apply"):
        keep(patch, project)


def test_the_last_commit_against_the_folder(project: Path) -> None:
    (project / "train.py").write_text("x = 3\n")
    (project / "package" / "added.py").write_text("b\n")
    git(project, "add", "package/added.py")
    with copies(SideNames(before="HEAD"), project) as ((before, after), change):
        assert (before.cwd / "train.py").read_text() == "x = 1\n" and (after.cwd / "train.py").read_text() == "x = 3\n"
        assert set(change.files) == {"train.py", "package/added.py"}
        assert (before.root / "data" / "all.bin").is_file()
    assert git(project, "worktree", "list").count("\n") == 1


def test_the_program_runs_in_the_same_folder_below(project: Path) -> None:
    patch = PATCH.replace("train.py", "a.py").replace("x = 1", "a").replace("x = 2", "b")
    with copies(SideNames(patch=patch), project / "package") as ((before, after), _):
        assert before.cwd == before.root / "package" and (after.cwd / "a.py").read_text() == "b\n"


def test_two_folders_without_git(tmp_path: Path) -> None:
    for name, text in (("v1", "x = 1\n"), ("v2", "x = 2\n")):
        (tmp_path / name / ".venv").mkdir(parents=True)
        (tmp_path / name / "train.py").write_text(text)
        (tmp_path / name / "large.bin").write_bytes(b"0" * (5 << 20))
    with copies(SideNames(str(tmp_path / "v1"), str(tmp_path / "v2")), tmp_path) as ((before, after), change):
        assert (before.cwd / "train.py").read_text() == "x = 1\n" and (after.cwd / "train.py").read_text() == "x = 2\n"
        assert (after.cwd / "large.bin").is_symlink() and (after.cwd / ".venv").is_symlink()
        assert "train.py" in change.files


OUTSIDE = PATCH.replace("a/train.py", "a/../out.py").replace("b/train.py", "b/../out.py")
LINKED = PATCH.replace("train.py", "data/all.bin").replace("x = 1", "data").replace("x = 2", "b")
WRONG: dict[str, tuple[Callable[[Path], SideNames], str]] = {
    "nothing": (lambda place: SideNames(before="HEAD", after="HEAD"), "Nothing differs"),
    "no-such": (lambda place: SideNames(before="no-such"), "neither a folder nor a revision"),
    "option": (lambda place: SideNames(before="--help"), "neither a folder nor a revision"),
    "old patch": (lambda place: SideNames(patch=PATCH.replace("x = 1", "y = 1")), "does not apply"),
    "no patch": (lambda place: SideNames(patch="hello\n"), "does not apply"),
    "outside": (lambda place: SideNames(patch=OUTSIDE), "does not apply"),
    "linked": (lambda place: SideNames(patch=LINKED), "does not apply"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_change(name: str, project: Path) -> None:
    asked, said = WRONG[name]
    whole = _content(project)
    with pytest.raises(UsageError, match=said), copies(asked(project), project):
        pass
    assert _content(project) == whole and not (project.parent / "out.py").exists()
