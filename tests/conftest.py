"""Fixtures that every room's tests share: the command line, Chromium, golden files and sample profiles."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.ceilings import event_cost_ns, measured, requested
from tests.support.forks import STARTERS, close_server, share_server, started_forked, started_fresh, usable, whole
from tests.support.sweeps import examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).resolve().parent / "golden"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

pytest_plugins = ["tests.support.skips", "tests.support.schedule", "tests.support.cpu"]

# Inductor compiles in this process: pytest's workers share the cores, and a pool imports torch once more a process.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
if shutil.which("g++"):  # at -O1: Inductor's own -O3 takes most of the time of all tests, and finds nothing more
    os.environ["PATH"] = os.pathsep.join((str(ROOT / "tests" / "support" / "bin"), os.environ["PATH"]))

# A busy machine does not fail a test; continuous integration takes the same examples every time.
settings.register_profile("perfkit", deadline=None, derandomize="CI" in os.environ, max_examples=examples(30, 100))
settings.load_profile("perfkit")


def pytest_configure(config: pytest.Config) -> None:
    """Share one server of forks where several workers run all tests. With `--cpu-durations` each has its own, because
    the forks of a server count as its worker's."""
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if everything and several and config.getoption("--cpu-durations") is None:
        share_server()


def pytest_unconfigure() -> None:
    close_server()


@pytest.fixture(scope="session", autouse=True)
def shared_cache() -> Iterator[Path]:
    """One cache of kernels and ceilings for all tests and workers, apart from the user's own and kept between runs.

    Its content is kept by what it was made from, so that a change of a source is a new file.
    """
    folder = Path(os.environ.get("PERFKIT_TEST_CACHE") or ROOT / ".pytest_cache" / "perfkit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFKIT_CACHE", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        patch.delenv("PERFKIT_KERNEL_VERSION", raising=False)
        patch.delenv("PERFKIT_KERNEL_ISA", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def forks(shared_cache: Path) -> Iterator[None]:
    """Commands and workers that tests start are forks of a process that has torch; ceilings are quick to have."""
    with pytest.MonkeyPatch.context() as patch:
        for name, starter in STARTERS.items():
            patch.setattr(name, starter)
        patch.setattr("perfkit.hardware.store.measure", measured)
        patch.setattr("perfkit.hardware.collectives.measure.requested", requested)
        patch.setattr("perfkit.capture.agent.tracing.profiler.event_cost_ns", event_cost_ns)
        yield
    close_server()


@pytest.fixture(autouse=True)
def same_numbers_each_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's and PyTorch's random numbers begin alike in every test; in continuous integration the seeds of checks of
    kernels too, which are new each time elsewhere."""
    random.seed(20240517)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(20240517)
    if "CI" in os.environ and "perfkit.kernels.checking" in sys.modules:
        seeds = random.Random(request.node.nodeid)
        monkeypatch.setattr("perfkit.kernels.checking.secrets.randbits", seeds.getrandbits)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """The garbage collector leaves alone what is there before a file's tests: else each of perfkit's collections looks
    through all that torch and the tests before have made, for a third of a second."""
    gc.freeze()


@dataclass(frozen=True)
class CliResult:
    """Result of a command: its exit code and output."""

    rc: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def run_cli() -> Callable[..., CliResult]:
    """Run `perfkit ARGS` in a process of its own: `run_cli(["report", run], cwd=…, env={…}, timeout=…)`.

    `env` is added to this process's environment; a value of None takes the variable away. The process is a fork
    (tests/support/forks.py); `fresh=True` starts an interpreter.
    """

    def run(
        args: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float = 300,
        fresh: bool = False,
    ) -> CliResult:
        wanted: dict[str, str | None] = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"}
        variables = {name: value for name, value in {**wanted, **(env or {})}.items() if value is not None}
        start = started_fresh if fresh or not usable(variables) else started_forked
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
            process = start([*map(str, args)], out.fileno(), error.fileno(), str(cwd or os.getcwd()), variables)
            try:
                process.wait(timeout)
            finally:
                process.kill()
            texts = [whole(file) for file in (out, error)]
        return CliResult(int(process.returncode or 0), *texts)

    return run


def find_chromium() -> str | None:
    """The browser that the tests drive: `PERFKIT_CHROMIUM`, or a Chromium on the PATH; None without either."""
    return os.environ.get("PERFKIT_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium that reaches this machine only: every host name but localhost fails to resolve."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium on this machine (install it, or set PERFKIT_CHROMIUM)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed", exc_type=ImportError)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def window(chromium: Browser) -> BrowserContext:
    """A window whose first, empty tab keeps it: each test's pages are tabs, for a window costs a second of CPU time."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.new_page()
    return context


@pytest.fixture
def open_page(window: BrowserContext) -> Iterator[Callable[[str | Path], tuple[Page, list[str]]]]:
    """`open_page(url_or_file)` gives the page and the list that collects its console errors and uncaught exceptions."""
    opened: list[Page] = []

    def open_(target: str | Path) -> tuple[Page, list[str]]:
        page = window.new_page()
        opened.append(page)
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(target.resolve().as_uri() if isinstance(target, Path) else target)
        return page, errors

    yield open_
    for page in opened:
        page.close()


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """`golden(name, text)` compares with tests/golden/NAME; on a mismatch NAME.got holds the text."""

    def compare(name: str, text: str) -> None:
        expected, got = GOLDEN / name, GOLDEN / f"{name}.got"
        if expected.is_file() and expected.read_text(encoding="utf-8") == text:
            got.unlink(missing_ok=True)
            return
        got.parent.mkdir(parents=True, exist_ok=True)
        got.write_text(text, encoding="utf-8")
        found = expected.read_text(encoding="utf-8") if expected.is_file() else "(no golden file)"
        assert text == found, f"differs from {expected}; if {got.name} is right, rename it"

    return compare


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real profiles, from the environment variable PERFKIT_SAMPLES; tests skip without it."""
    folder = os.environ.get("PERFKIT_SAMPLES")
    if not folder:
        pytest.skip("PERFKIT_SAMPLES is not set: no sample profiles")
    path = Path(folder)
    assert path.is_dir(), f"PERFKIT_SAMPLES={folder} is not a folder"
    return path
