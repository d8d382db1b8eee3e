"""Building: the compiler and its absence, broken sources, the cache among processes."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perfkit.kernels
from perfkit.errors import RunFailed, Unavailable, UsageError
from perfkit.kernels import find
from perfkit.kernels.c import binding, build, toolchain
from tests.support import forks

GOOD = "#include <perfkit/vector.h>\nint answer(void) { return 42; }\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def write(folder: Path, text: str) -> Path:
    source = folder / "answer.c"
    source.write_text(text)
    return source


def test_without_a_compiler_one_sentence_says_how_to_get_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Unavailable) as caught:
        build.library(find("gelu_forward").folder / "gelu.c", "fp32")
    assert caught.value.message == "No C compiler was found on this machine (looked for cc, gcc and clang)."
    for system in ("apt install gcc", "dnf install gcc", "xcode-select --install"):
        assert system in caught.value.hint
    assert str(caught.value) == perfkit.kernels.unavailable("cpu")


def test_loading_without_a_compiler_is_refused() -> None:
    program = "import perfkit.kernels as k\ntry: k.load()\nexcept Exception as e: print(type(e).__name__, e)"
    environment = {**os.environ, "PATH": ""}
    environment.pop("CC", None)
    done = forks.run([sys.executable, "-c", program], env=environment)
    assert done.stdout.startswith("Unavailable No C compiler was found on this machine"), done.stderr


def test_a_wrong_cc_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(Unavailable, match=r"CC names no-such-compiler, which does not start.*Correct or unset CC"):
        toolchain.compiler()


def test_cc_is_used_with_its_arguments(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{shutil.which('cc')} -DANSWER=42")
    source = write(tmp_path, "int answer(void) { return ANSWER; }\n")
    assert build.library(source, "fp32").is_file()


def test_a_broken_source_gives_the_compilers_first_lines(cache: Path, tmp_path: Path) -> None:
    source = write(tmp_path, "#include <perfkit/vector.h>\nint answer(void) { return forty_two; }\n")
    with pytest.raises(RunFailed) as caught:
        build.library(source, "fp32")
    assert f"could not compile {source}" in caught.value.message
    assert "forty_two" in caught.value.message
    assert len(caught.value.message.splitlines()) < 16
    assert list(cache.iterdir()) == []


def test_a_library_is_built_once_and_again_when_anything_changes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, GOOD)
    first = build.library(source, "fp32")
    built = first.stat().st_mtime_ns
    assert build.library(source, "fp32") == first
    assert first.stat().st_mtime_ns == built
    others = {build.library(source, "bf16")}
    (tmp_path / "shared.h").write_text("/* a header beside it */\n")
    others.add(build.library(source, "fp32"))
    source.write_text(GOOD.replace("42", "43"))
    others.add(build.library(source, "fp32"))
    monkeypatch.setenv("PERFKIT_KERNEL_ISA", "plain")
    others.add(build.library(source, "fp32"))
    assert len(others | {first}) == 5
    assert {path.suffix for path in cache.iterdir()} == {".so"}


def test_an_instruction_set_must_be_known_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_KERNEL_ISA", "mmx")
    with pytest.raises(UsageError, match="PERFKIT_KERNEL_ISA is 'mmx'"):
        toolchain.isa()
    monkeypatch.setattr(toolchain, "_cpu_features", lambda: "sse2 avx2")
    monkeypatch.setenv("PERFKIT_KERNEL_ISA", "avx512")
    with pytest.raises(Unavailable, match="lacks the instruction set avx512"):
        toolchain.isa()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunFailed, match=r"could not be written: .*Set PERFKIT_CACHE"):
        build.library(write(tmp_path, GOOD), "fp32")


def test_a_damaged_library_is_built_again(cache: Path, tmp_path: Path) -> None:
    """A cache folder that lost power may hold an empty file."""
    source = write(tmp_path, GOOD)
    path = build.library(source, "fp32")
    path.write_bytes(b"")
    assert binding.open_library(source, "fp32").answer() == 42


def test_two_processes_may_build_the_same_library_at_once(cache: Path, tmp_path: Path) -> None:
    source = write(tmp_path, GOOD)
    program = (
        "import ctypes, sys, time\n"
        "from pathlib import Path\n"
        "from perfkit.kernels.c import build\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "print(ctypes.CDLL(str(build.library(Path(sys.argv[1]), 'fp32'))).answer())\n"
    )
    forks.server()
    start = str(time.time() + 0.5)
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(forks.run, [[sys.executable, "-c", program, str(source), start]] * 4))
    assert [run.stdout.strip() for run in runs] == ["42"] * 4
    assert len(list(cache.iterdir())) == 1


def test_a_compiler_without_openmp_still_builds(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's clang refuses -fopenmp, others -march=native: the next best options are taken."""
    picky = tmp_path / "picky"
    picky.write_text(
        "#!/bin/sh\n"
        'for a in "$@"; do case "$a" in -fopenmp|-march=native) echo "unsupported option $a" >&2; exit 1;; esac; done\n'
        f'exec {shutil.which("cc")} "$@"\n'
    )
    picky.chmod(0o755)
    monkeypatch.setenv("CC", str(picky))
    assert build.library(find("gelu_forward").folder / "gelu.c", "fp32").is_file()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_kernels_and_pytorch_share_one_openmp_runtime() -> None:
    """Two runtimes would be two pools of threads that wait for work by spinning against each other."""
    perfkit.kernels.load()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    assert len([path for path in mapped if re.match(r"lib(g|i)?omp\d?\b", Path(path).name)]) == 1
