"""Make the pictures of the documentation (docs/images) again, from a run and the profiles in tests/fixtures.

    perfkit run gpt2 --backend eager,compile,thunder-llmc --steps 5 --profile-memory --out runs/pictures
    python tools/pictures.py runs/pictures
    python tools/pictures.py runs/pictures --timeline runs/on-a-gpu/eager/TRACE.pt.trace.json.gz

The timeline's is of `tests/fixtures/kineto/eager.json.gz`, or of the trace or run that --timeline names. Run it where a
view changes. Chromium draws them without a network; a page that complains on its console is an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.conftest import find_chromium  # noqa: E402
from tests.support.packed import ncu_file  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

FIXTURES = ROOT / "tests" / "fixtures"
RUN, TRACE, NCU = "gpt2", "training.pt.trace.json.gz", "kernels.ncu-rep"
_DRAWN_MS = 600  # for a chart to settle


@dataclass(frozen=True)
class Shown:
    """Subjects of the pictures: the address of TensorBoard, names of entries there, and the HTML report of the run."""

    address: str
    run: str
    trace: str
    ncu: str
    report: Path


def draw(browser: Browser, shown: Shown, out: Path) -> None:
    """Write every picture into the folder `out`. Raises `SystemExit` where a page complains."""
    _picture(browser, shown.report.resolve().as_uri(), _report, (1400, 1560), out / "report.png")
    for name, entry, view, make, size in (
        ("tensorboard", shown.ncu, "kernels", _whole, (1560, 600)),
        ("timeline", shown.trace, "trace", _timeline, (1280, 1200)),
        ("memory", shown.run, "memory", _card, (1280, 760)),
        ("difference", shown.run, "diff", _difference, (1280, 900)),
    ):
        address = f"{shown.address}&p.perfkit.run={entry}&p.perfkit.view={view}"
        _picture(browser, address, make, size, out / f"{name}.png")


def _picture(browser: Browser, address: str, make: Any, size: tuple[int, int], path: Path) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    picture = make(page)
    page.close()
    if errors:
        raise SystemExit(f"{path.name}: the page complains: {errors[0]}")
    path.write_bytes(picture)


def _report(page: Page) -> bytes:
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector(".panel:not([hidden]) .roofline .scatterlayer")
    page.wait_for_timeout(_DRAWN_MS)
    return page.screenshot()


def _whole(page: Page) -> bytes:
    _frame(page)
    return page.screenshot()


def _card(page: Page) -> bytes:
    return _frame(page).locator("#view .card").screenshot()


def _difference(page: Page) -> bytes:
    frame = _frame(page)
    frame.wait_for_selector(".diff-total")
    frame.click("#view .choice button:has-text('By kernel type')")
    return _card(page)


def _timeline(page: Page) -> bytes:
    """A kernel found by its name, selected, in a window around it."""
    frame = _frame(page)
    frame.fill(".tl-bar input", "gemm")
    frame.press(".tl-bar input", "Enter")
    frame.fill(".tl-bar input", "")  # what a search does not find is faded
    frame.focus(".tl-lanes canvas")
    for key in ("f", *"ssssssssss"):
        frame.press(".tl-lanes canvas", key)
    page.wait_for_timeout(_DRAWN_MS)
    return frame.locator("#view .card").screenshot()


def _frame(page: Page) -> Frame:
    """The plugin's frame, its view drawn."""
    inside = page.wait_for_selector("iframe[src*='name=perfkit']", timeout=60_000)
    frame = inside.content_frame() if inside else None
    assert frame is not None
    frame.wait_for_selector("html[data-view]", timeout=120_000)
    if frame.locator("#view .banner").count():
        raise SystemExit(frame.locator("#view .banner").first.inner_text())
    page.wait_for_timeout(_DRAWN_MS)
    return frame


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """The address of `perfkit tensorboard` on `folder`."""
    command = [sys.executable, "-m", "perfkit", "tensorboard", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout
    found = re.search(r"http://\S+", process.stdout.readline())
    try:
        if not found:
            raise SystemExit("TensorBoard did not start.")
        yield found[0]
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Draw the pictures of docs/images from a run and a trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of several backends with --profile-memory")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--timeline", type=Path, help="a trace, or a run, of a GPU")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        shutil.copytree(options.run, folder / RUN)
        trace = options.timeline or FIXTURES / "kineto" / "eager.json.gz"
        shutil.copytree(trace, folder / TRACE) if trace.is_dir() else shutil.copy(trace, folder / TRACE)
        (folder / NCU).write_bytes(ncu_file("kernels-full.ncu-rep"))
        command = [sys.executable, "-m", "perfkit", "report", str(folder / RUN), "--format", "html"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        with tensorboard(folder) as address:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
            draw(browser, Shown(address, RUN, TRACE, NCU, folder / RUN / "report.html"), options.out)
            browser.close()


if __name__ == "__main__":
    main()
