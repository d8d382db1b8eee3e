"""Two temporary copies of a folder, before and after a change; the user's own folder stays as it is.

Files that git knows or does not ignore are copied. Everything else (data, environments, builds, large files) is a link
to the user's own, so that a program finds it. Without git small files are copied, and large ones linked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import InputError, Unavailable, UsageError

_LARGE = 4 << 20  # bytes of a file that is linked, not copied
_SKIPPED = {".git", "__pycache__", ".perfkit", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
_MOST = 100_000  # files of a folder
SIDES = "Give --patch FILE, or name two folders with --before and --after."
_MOST_CHANGE = 1 << 20  # characters of a change that are kept


@dataclass(frozen=True)
class Tree:
    """One side: the copy's `root`, the folder in it that the program runs in, and the folder that it is a copy of."""

    label: str
    root: Path
    cwd: Path
    original: Path

    def moved(self, text: str) -> str:
        """`text` with a path into the original made one into the copy."""
        place = str(self.original)
        inside = text == place or text.startswith(place + os.sep)
        return f"{self.root}{text[len(place) :]}" if inside else text


@dataclass(frozen=True)
class SourceChange:
    """The difference between the sides: a diff, its files, and a digest of it."""

    text: str
    files: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class SideNames:
    """The sides as a person names them: folders or revisions of git, "" for the working folder; and a patch's text.

    `keep`: the patch is applied to the working folder as well where it is accepted.
    """

    before: str = ""
    after: str = ""
    patch: str = ""
    keep: bool = False


@contextlib.contextmanager
def copies(asked: SideNames, here: Path) -> Iterator[tuple[list[Tree], SourceChange]]:
    """Give both sides of a change to the program that runs in `here`, and the change.

    Raises `UsageError` where a side is missing, the patch does not apply, or nothing differs.
    """
    if shutil.which("git") is None:
        raise Unavailable("git is not installed, and `perfkit try` needs it to apply and show changes.", "Install git.")
    here = here.resolve()
    top = _top(here)
    root = top or here
    with tempfile.TemporaryDirectory(prefix="perfkit-try-") as place:
        scratch = Path(place).resolve()
        sides = [_side(label, name, root, here, scratch) for label, name in
                 (("before", asked.before), ("after", asked.after))]  # fmt: skip
        if asked.patch:
            _apply(asked.patch, sides[1])
        change = _change(scratch)
        if not change.files:
            raise UsageError("Nothing differs between the two sides.", "Give --patch FILE, or change a file first.")
        yield sides, change


def _side(label: str, name: str, root: Path, here: Path, scratch: Path) -> Tree:
    """Copy one side. A folder that is named is the one that the program runs in."""
    target = scratch / label
    named = Path(name).expanduser()
    if name and named.is_dir():
        original = named.resolve()
        _copy_folder(original, target)
        return Tree(label, target, target, original)
    if name:
        _copy_revision(name, root, target)
    else:
        _copy_folder(root, target)
    cwd = target / here.relative_to(root)
    if not cwd.is_dir():
        raise UsageError(f"{here} is not there {label} the change.", "Start in a folder that both sides have.")
    return Tree(label, target, cwd, root)


def _top(folder: Path) -> Path | None:
    """The top of the git repository that `folder` is in; None without one."""
    done = _git(folder, "rev-parse", "--show-toplevel")
    return Path(done.stdout.strip()).resolve() if done.returncode == 0 and done.stdout.strip() else None


def _copy_revision(revision: str, root: Path, target: Path) -> None:
    """The files of a revision, and what git does not know of the working folder; the repository stays untouched."""
    if _top(root) is None:
        raise UsageError(f"{revision} is not a folder, and {root} is not in a git repository.", SIDES)
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit.returncode:
        raise UsageError(f"{revision} is neither a folder nor a revision of {root}.", "`git log` shows revisions.")
    target.mkdir()
    index = {"GIT_INDEX_FILE": str(target.with_name(f"{target.name}.index"))}
    for words in (("read-tree", commit.stdout.strip()), ("checkout-index", "--all", f"--prefix={target}/")):
        done = _git(root, *words, environment=index)
        if done.returncode:
            raise InputError(f"git cannot give the files of {revision}: {_last(done.stderr)}")
    _copy_known(root, target, "--others", "--exclude-standard")
    known = _known(root, "--cached")
    _fill(root, target, known | {str(parent) for name in known for parent in Path(name).parents})


def _copy_folder(folder: Path, target: Path) -> None:
    """Return the files that a folder holds now."""
    target.mkdir()
    in_git = _top(folder) == folder
    if in_git:
        _copy_known(folder, target, "--cached", "--others", "--exclude-standard")
    _fill(folder, target, copied=not in_git)


def _copy_known(folder: Path, target: Path, *which: str) -> None:
    """Copy the files that git lists, but large ones."""
    for name in _known(folder, *which):
        source = folder / name
        if source.is_file() and not source.is_symlink() and source.stat().st_size <= _LARGE:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def _known(root: Path, *which: str) -> set[str]:
    """Return the files that git lists."""
    return {name for name in _git(root, "ls-files", "-z", *which).stdout.split("\0") if name}


def _fill(folder: Path, target: Path, without: Collection[str] = (), copied: bool = False) -> None:
    """Link what `target` lacks: a folder whole where it has nothing of it. Small files are `copied` where asked for."""
    places, count = [Path()], 0
    while places:
        below = places.pop()
        for entry in os.scandir(folder / below):
            count += 1
            if count > _MOST:
                raise UsageError(f"{folder} holds more than {_MOST:,} files.", "Start in the folder of the program.")
            name = below / entry.name
            place = target / name
            if entry.name in _SKIPPED or (str(name) in without and not place.is_dir()):
                continue
            if entry.is_dir(follow_symlinks=False) and (place.is_dir() or (copied and _is_source(entry))):
                place.mkdir(exist_ok=True)
                places.append(name)
            elif not os.path.lexists(place):
                _link(Path(entry.path), place, folder, copied)


def _is_source(entry: os.DirEntry[str]) -> bool:
    """Return whether a folder may hold sources: no environment of Python, and not hidden."""
    return not entry.name.startswith(".") and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _link(source: Path, place: Path, folder: Path, copied: bool) -> None:
    """Put one file or folder there; a link within the folder stays one within the copy."""
    if source.is_symlink() and not os.path.isabs(os.readlink(source)) and source.resolve().is_relative_to(folder):
        place.symlink_to(os.readlink(source))
    elif copied and source.is_file() and not source.is_symlink() and source.stat().st_size <= _LARGE:
        shutil.copy2(source, place)
    else:
        place.symlink_to(source.resolve())


def keep(patch: str, here: Path) -> None:
    """Apply a patch to the folder that the program runs in, `here`, itself. Raises `UsageError` where it cannot be."""
    here = here.resolve()
    root = _top(here) or here
    _apply(patch, Tree("here", root, here, root))


def _apply(patch: str, side: Tree) -> None:
    """Apply a patch that was made at the top, or in the folder of the program; wrong counts of lines are forgiven."""
    below, said = side.cwd.relative_to(side.root), ""
    places = [[], [f"--directory={below}"]] if str(below) != "." else [[]]
    for more in [*places, *([*place, "--recount"] for place in places)]:
        done = _git(side.root, "apply", "--whitespace=nowarn", *more, "-", text=patch)
        if done.returncode == 0:
            return
        said = said or next((line for line in done.stderr.splitlines() if line.startswith("error")), done.stderr)
    raise UsageError(f"The patch does not apply: {_last(said)}.", "Make it with `git diff` in this folder.")


def _change(scratch: Path) -> SourceChange:
    """The difference of the two copies below `scratch`, as a diff that `git apply` takes."""
    words = ("diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
    text = _git(scratch, *words, "--src-prefix=", "--dst-prefix=", "before", "after").stdout
    names = _git(scratch, *words, "--name-only", "-z", "before", "after").stdout.split("\0")
    files = dict.fromkeys(name.partition("/")[2] for name in names if "/" in name)
    return SourceChange(text[:_MOST_CHANGE], tuple(files), hashlib.sha256(text.encode()).hexdigest()[:12])


def _git(
    folder: Path, *words: str, text: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run git in `folder`: it does not look for a repository above a copy."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    apart = {"GIT_CEILING_DIRECTORIES": str(folder.parent)} if words[0] in ("apply", "diff") else {}
    return subprocess.run(
        ["git", "-c", "core.quotePath=false", *words], cwd=folder, input=text, capture_output=True, text=True,
        errors="replace", env={**given, "LC_ALL": "C", **apart, **(environment or {})}, check=False,
    )  # fmt: skip


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "it says nothing").strip().removeprefix("error: ").rstrip(".")
