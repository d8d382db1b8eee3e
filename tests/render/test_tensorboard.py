"""`perfkit tensorboard`: its refusals, and its page in Chromium."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perfkit.cli import tensorboard
from perfkit.errors import InputError, PerfkitError, Unavailable
from perfkit.render import scalars
from tests.support.interrupts import hear_interrupts
from tests.support.render import sample

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    report = sample.report()
    for backend in report.backends:
        (tmp_path / backend.name).mkdir()
    (tmp_path / "run.json").write_text("{}")
    scalars.write_events(report, tmp_path)
    return tmp_path


@pytest.fixture
def server(run_folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command at work, and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perfkit", "tensorboard", str(run_folder), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert process.stdout
    line = process.stdout.readline()
    address = re.search(r"http://[^\s#]+(?=#perfkit)", line)
    assert address, process.communicate(timeout=30)
    yield process, address[0]
    process.kill()
    process.wait()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a run folder nor a profile"):
        tensorboard.check(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        tensorboard.check(tmp_path / "nothing")


def test_a_folder_of_runs_is_accepted(run_folder: Path) -> None:
    tensorboard.check(run_folder)
    tensorboard.check(run_folder.parent)


@pytest.mark.parametrize("name", ["deep/plain.pt.trace.json.gz", "report.ncu-rep", "log/events.out.tfevents.1.host"])
def test_a_folder_of_profiles_or_scalars_is_accepted(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"what it holds is for the page to say")
    tensorboard.check(tmp_path)


def test_without_tensorboard_it_says_so(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="TensorBoard is not installed"):
        tensorboard.check(run_folder)


def test_a_taken_port_is_named(run_folder: Path) -> None:
    pytest.importorskip("tensorboard")
    with socket.create_server((tensorboard.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PerfkitError, match=f"Port {port} is in use"):
            tensorboard.launch(run_folder, port)


@pytest.mark.slow
def test_it_listens_on_this_machine_only_and_ends_quietly(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    assert address.startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in out + err
    assert err.strip() == "TensorBoard stopped."


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_shows_scalars_and_tables(
    server: tuple[subprocess.Popen[str], str], open_page: Callable[[str], tuple[Page, list[str]]]
) -> None:
    _, address = server
    page, errors = open_page(f"{address}#scalars")
    expect(page, "tf-scalar-dashboard", ["result/speedup", "result/peak_memory_MiB", "eager", "thunder-llmc"])
    page.goto(f"{address}#text")
    expect(page, "tf-text-dashboard", ["report/1_verdict", "is 1.21 × as fast as eager", "95 % CI (s)"])
    assert page.locator("tf-text-dashboard table").count() >= 3
    assert errors == []


def expect(page: Page, dashboard: str, texts: list[str]) -> None:
    """Wait until the dashboard shows each text, its shadow roots included."""
    element: Any = page.locator(dashboard)
    for text in texts:
        element.get_by_text(text).first.wait_for(state="visible", timeout=60_000)
