from __future__ import annotations

import stat
import subprocess

import pytest

from perfkit.cache import cache_dir
from perfkit.errors import RunFailed, Unavailable
from perfkit.hardware.compiler import build_program, find_compiler, has_openmp

HELLO = '#include <omp.h>\n#include <stdio.h>\n#include "word.h"\nint main(void) { printf("%s", WORD); return 0; }\n'

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


@pytest.fixture
def source(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "word.h").write_text('#define WORD "one"\n')
    path = tmp_path / "hello.c"
    path.write_text(HELLO)
    return path


def said(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@needs_compiler
def test_built_once_and_again_when_source_or_header_changes(source):
    program = build_program(source)
    assert said(program) == "one"
    made = program.stat().st_mtime_ns
    assert build_program(source) == program
    assert program.stat().st_mtime_ns == made
    (source.parent / "word.h").write_text('#define WORD "two"\n')
    assert said(build_program(source)) == "two"


@needs_compiler
def test_a_source_that_does_not_compile_is_one_sentence(source):
    source.write_text("int main(void) { return undeclared; }\n")
    with pytest.raises(RunFailed, match=r"could not compile hello\.c.*undeclared"):
        build_program(source)
    assert not list((cache_dir() / "programs").glob("*"))


@needs_compiler
def test_this_compiler_has_openmp():
    compiler = find_compiler()
    assert compiler is not None
    assert compiler.version
    assert has_openmp(compiler)


def test_no_compiler(source, monkeypatch):
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_compiler() is None
    with pytest.raises(Unavailable, match="no C compiler"):
        build_program(source)


def test_cc_decides_even_when_it_does_not_exist(monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert find_compiler() is None


def test_a_compiler_without_openmp(monkeypatch, tmp_path):
    fake = tmp_path / "cc"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "fake cc 1.0" && exit 0\necho "error: no -fopenmp" >&2\nexit 1\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(fake))
    compiler = find_compiler()
    assert compiler is not None
    assert compiler.version == "fake cc 1.0"
    assert not has_openmp(compiler)


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/a/b", "/x", "/a/b"),
        (None, "/x", "/x/perfkit"),
        (None, "relative", "~/.cache/perfkit"),
        (None, None, "~/.cache/perfkit"),
    ],
)
def test_cache_dir(monkeypatch, own, xdg, expected):
    for name, value in (("PERFKIT_CACHE", own), ("XDG_CACHE_HOME", xdg), ("HOME", "/home/someone")):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert str(cache_dir()) == expected.replace("~", "/home/someone")
