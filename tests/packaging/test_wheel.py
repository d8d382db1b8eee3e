"""The distributions hold all content, and the wheel puts nothing generic into site-packages."""

from __future__ import annotations

import email
import os
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("kernels", "workloads", "reports")

pytestmark = pytest.mark.slow


def content_files(root: Path) -> set[str]:
    """Every content file of a checkout, as `kind/…/name`."""
    files = (path for kind in KINDS for path in (root / kind).rglob("*") if path.is_file())
    names = {path.relative_to(root) for path in files if "__pycache__" not in path.parts}
    return {name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts)}


def test_the_wheel_holds_all_content(checkout, distributions):
    names = set(zipfile.ZipFile(distributions[1]).namelist())
    expected = {f"perfkit/content/{name}" for name in content_files(checkout)}
    assert expected
    assert not expected - names


def test_the_wheel_holds_all_of_the_engine_and_nothing_generic(checkout, distributions):
    names = set(zipfile.ZipFile(distributions[1]).namelist())
    engine = (path for path in (checkout / "perfkit").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert not {path.relative_to(checkout).as_posix() for path in engine} - names
    roots = {name.partition("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"perfkit"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_sdist_holds_all_content_and_the_tests(checkout, distributions):
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not content_files(checkout) - names
    assert {"tests/conftest.py", "constraints.txt", "Makefile", "tools/rooms_contract.py"} <= names


def test_the_installed_wheel_finds_its_content_without_the_checkout(tmp_path, checkout, distributions):
    """Content modules pickle by name in another process of the installed package."""
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    zipfile.ZipFile(distributions[1]).extractall(site)
    program = (
        "import pickle, sys, perfkit, perfkit.content as c\n"
        "folder = c.content_dir('workloads')\n"
        "assert folder.parts[-4:] == ('site-packages', 'perfkit', 'content', 'workloads'), folder\n"
        "(folder / 'shape.py').write_text('class Shape:\\n    pass\\n')\n"
        "module = c.load_content_module('workloads', folder / 'shape.py')\n"
        "sys.stdout.buffer.write(pickle.dumps(module.Shape()))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = tmp_path / "env" / "bin" / "python"
    made = subprocess.run([python, "-I", "-c", program], capture_output=True, env=environment, check=False)
    assert made.returncode == 0, made.stderr.decode()
    read = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer)).__module__)"
    again = subprocess.run(
        [python, "-I", "-c", read], input=made.stdout, stdout=subprocess.PIPE, env=environment, check=True
    )
    assert again.stdout.decode().strip() == "perfkit.content.workloads.shape"


def test_everything_but_thunder_installs_on_a_python_that_thunder_does_not_run_on(distributions):
    wheel = zipfile.ZipFile(distributions[1])
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Requires-Python"] == ">=3.11"
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    for python, wanted in (("3.13", True), ("3.14", False)):
        environment = {"python_version": python, "extra": "thunder"}
        found = {r.name for r in requirements if r.marker and r.marker.evaluate(environment)}
        assert ("lightning-thunder" in found) is wanted
    run = {r.name for r in requirements if r.marker and r.marker.evaluate({"python_version": "3.14", "extra": "run"})}
    assert "torch" in run and "lightning-thunder" not in run
