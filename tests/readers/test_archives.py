"""Archives of profiles: unpacked while they are read, and refused where they are harmful or hold no profile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.readers import archives
from tests.support.readers import mutations
from tests.support.readers.traces import event, write

MODES = {".tar": "w", ".tar.gz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


def _trace(folder: Path, name: str) -> Path:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 100, 103, correlation=1),
        event("kernel", "gemm", 110, 150, pid=0, tid=7, device=0, stream=7, correlation=1),
    ]
    return write(folder / name, events)


def _packed(folder: Path, ending: str, files: dict[str, bytes]) -> Path:
    path = folder / f"profiles{ending}"
    if ending == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, MODES[ending]) as packed:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("ending", [".zip", *MODES])
def test_profiles_in_an_archive(tmp_path: Path, ending: str) -> None:
    trace = _trace(tmp_path, "trace.json").read_bytes()
    path = _packed(tmp_path, ending, {"run/rank0.json": trace, "run/deep/rank1.json": trace, "README.md": b"text"})
    with archives.unpacked([path, tmp_path / "trace.json"]) as found:
        assert sorted(one.name for one in found) == ["rank0.json", "rank1.json", "trace.json"]
        assert found[0].read_bytes() == trace
        assert path.name in found[0].parts
    assert not found[0].exists()


def test_a_report_on_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _trace(tmp_path, "trace.json").read_bytes()
    path = _packed(tmp_path, ".zip", {"step.json": trace})
    with pytest.raises(SystemExit) as ended:
        main(["report", str(path), "--format", "none"])
    assert ended.value.code == 0 and "gemm" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["../outside.json", "/outside.json", "a/../../outside.json", "..\\outside.json", "C:x.json"]
)
@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_a_name_that_leads_outside(tmp_path: Path, ending: str, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = _packed(inner, ending, {name: b"{}"})
    with pytest.raises(InputError, match="outside of it"), archives.unpacked([path]):
        pass
    assert not (tmp_path / "outside.json").exists()


@pytest.mark.parametrize(
    ("ending", "least"), [(".zip", 1 << 23), (".tar.gz", 1 << 23), (".tar.bz2", 1 << 23), (".tar.xz", 1 << 24)]
)
def test_one_that_grows_without_reason(
    ending: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archives, "_UNSUSPICIOUS", 1 << 12)
    monkeypatch.setattr(archives, "_MOST_SHRUNK", 100)
    path = _packed(tmp_path, ending, {"zeros.json": bytes(least)})
    with pytest.raises(SystemExit) as ended:
        main(["report", str(path)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "grows more than 100 times" in " ".join(said.split()) and "Traceback" not in said


def test_one_with_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    path = _packed(tmp_path, ".tar", {f"{i}.json": b"{}" for i in range(4)})
    with pytest.raises(InputError, match="more than 3 files"), archives.unpacked([path]):
        pass


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_one_without_a_profile(tmp_path: Path, ending: str) -> None:
    path = _packed(tmp_path, ending, {"notes.txt": b"hello"})
    with pytest.raises(InputError, match=r"notes\.txt"), archives.unpacked([path]):
        pass


def test_links_are_left_out(tmp_path: Path) -> None:
    trace = _trace(tmp_path, "trace.json").read_bytes()
    path = tmp_path / "linked.tar"
    with tarfile.open(path, "w") as packed:
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        packed.addfile(link)
        info = tarfile.TarInfo("trace.json")
        info.size = len(trace)
        packed.addfile(info, io.BytesIO(trace))
    with archives.unpacked([path]) as found:
        assert [one.name for one in found] == ["trace.json"]


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_a_cut_archive_is_a_sentence(tmp_path: Path, ending: str) -> None:
    trace = _trace(tmp_path, "trace.json").read_bytes()
    whole = _packed(tmp_path, ending, {"a.json": trace * 3}).read_bytes()
    for share in (0.1, 0.5, 0.9):
        path = tmp_path / f"cut{ending}"
        path.write_bytes(whole[: int(len(whole) * share)])
        try:
            with archives.unpacked([path]) as found:
                assert found == [path] or all(one.is_file() for one in found)
        except InputError:
            continue


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("ending", [".zip", ".tar.gz", ".tar.xz"])
def test_damage_is_a_sentence(ending: str, count: int, tmp_path: Path) -> None:
    """Bytes changed anywhere: what is in it, or an `InputError`, nothing else; and nothing outside of the folder."""
    trace = _trace(tmp_path, "trace.json").read_bytes()
    path = _packed(tmp_path, ending, {"a.json": trace, "b.json": trace})
    before = sorted(tmp_path.iterdir())

    def unpack(path: Path) -> None:
        with archives.unpacked([path]) as found:
            assert all(one.is_file() for one in found)

    assert mutations.sentences(path, path.read_bytes(), count, 4, unpack)
    assert sorted(tmp_path.iterdir()) == before


def test_a_saved_model_is_no_archive_of_profiles(tmp_path: Path) -> None:
    path = _packed(tmp_path, ".zip", {"model/data.pkl": b"", "model/version": b"3"})
    assert not archives.is_archive(path)
