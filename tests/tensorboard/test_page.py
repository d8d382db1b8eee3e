"""TensorBoard in Chromium without a network, on a logdir with a run, a plain trace, an .ncu-rep and damaged files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perfkit.table import build
from tests.conftest import ROOT
from tests.support import forks
from tests.support.packed import ncu_file
from tests.support.tensorboard.logdirs import FIXTURES, HOSTILE, write_run, write_trace
from tools import pictures

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN, TRACE, NCU = "gpt2", "plain/trainer_1.1700000000000.pt.trace.json.gz", "kernels-full.ncu-rep"
SIZE: Any = {"width": 1280, "height": 1000}
VIEWS = ("overview", "findings", "operators", "kernels", "roofline", "trace", "memory", "modules", "diff")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run with its allocations, next to files of other tools."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    folder = tmp_path_factory.mktemp("logs")
    options = ["--preset", "tiny", "--steps", "2", "--warmup", "1", "--backend", "eager", "--profile-memory"]
    done = forks.run([sys.executable, "-m", "perfkit", "run", "gpt2", *options, "--out", str(folder / RUN)])
    assert done.returncode == 0, done.stderr
    write_run(folder / "toy", "eager", "compile", memory=True)
    (folder / "plain").mkdir()
    (folder / TRACE).write_bytes((FIXTURES / "kineto" / "eager-stack.json.gz").read_bytes())
    (folder / NCU).write_bytes(ncu_file(NCU))
    (folder / "cut.pt.trace.json.gz").write_bytes((folder / TRACE).read_bytes()[:5000])
    write_trace(folder / f"{HOSTILE.replace('/', '')}.pt.trace.json", names=[f"aten::{HOSTILE}"] * 3)
    return folder


class Board:
    """The plugin's frame in TensorBoard's page."""

    def __init__(self, page: Page, errors: list[str]) -> None:
        self.page, self.errors = page, errors
        inside = page.wait_for_selector("iframe[src*='name=perfkit']", timeout=60_000).content_frame()
        assert inside is not None
        self.frame: Frame = inside  # which may be empty still
        self.shown()

    def shown(self, view: str = "") -> str:
        """Wait until `view` (or any) is drawn; the text of the page."""
        self.frame.wait_for_selector(f"html[data-view{f'={view}' if view else ''}]", timeout=60_000)
        return self.text()

    def text(self) -> str:
        return self.frame.locator("#view").inner_text()

    def pick(self, name: str) -> str:
        find = "n => [...document.querySelectorAll('#run option')].find((o) => o.textContent.includes(n)).value"
        identity = self.frame.evaluate(find, name)
        self.frame.evaluate("delete document.documentElement.dataset.view")
        self.frame.select_option("#run", identity)
        return self.shown()

    def listed(self, name: str) -> None:
        """Wait until a run of this name can be chosen."""
        self.until("n => [...document.querySelectorAll('#run option')].some((o) => o.textContent === n)", name)

    def at_rest(self, locator: Any) -> Any:
        """Return the place of an element, once two looks find it the same."""
        before = None
        while (box := locator.bounding_box()) != before or box is None:
            before = box
            self.page.wait_for_timeout(200)
        return box

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until it holds. Asked from outside: the page's policy lets no text become script, also Playwright's."""
        for _ in range(600):
            if self.frame.evaluate(expression, argument):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(expression)

    def view(self, name: str) -> str:
        self.frame.click(f"#view-{name}")
        return self.shown(name)

    def count(self, selector: str) -> int:
        return self.frame.locator(selector).count()


@pytest.fixture(scope="module")
def address(logs: Path) -> Iterator[str]:
    """The address that `perfkit tensorboard` prints."""
    command = [sys.executable, "-m", "perfkit", "tensorboard", str(logs), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found
    yield found[0]
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def opened(address: str, chromium: Browser) -> Iterator[Board]:
    context = chromium.new_context(viewport=SIZE)
    page, errors = context.new_page(), []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    yield Board(page, errors)
    context.close()


@pytest.fixture
def board(opened: Board) -> Iterator[Board]:
    """The page, whose console must stay silent whatever the test does."""
    yield opened
    found, opened.errors[:] = list(opened.errors), []
    assert found == []


def test_the_address_leads_to_the_plugin(board: Board, address: str) -> None:
    assert address.endswith("#perfkit")
    options = board.frame.locator("#run optgroup").evaluate_all("all => all.map((g) => g.label)")
    assert options == ["perfkit runs", "traces of torch.profiler", "Nsight Compute"]
    assert board.frame.locator("#count").inner_text() == "6 under the logdir"


@pytest.mark.parametrize("name", [RUN, TRACE, NCU])
def test_every_view_opens_on_every_kind(board: Board, name: str) -> None:
    board.pick(name)
    for view in VIEWS:
        assert len(board.view(view)) > 20, view
        assert board.count("#view .banner") == 0, view


def test_the_pictures_of_the_docs(chromium: Browser, address: str, logs: Path, tmp_path: Path) -> None:
    """tools/pictures.py draws them, of other runs; it refuses a page that complains."""
    shown = pictures.Shown(address, "toy", TRACE, NCU, logs / RUN / "report.html")
    pictures.draw(chromium, shown, tmp_path)
    made = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(made) <= {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    assert min(made.values()) > 20_000, "an empty page takes less"


def test_overview_of_a_run(board: Board) -> None:
    board.pick(RUN)
    text = board.view("overview")
    assert "gpt2 tiny: training step, fp32 on cpu" in text
    assert "✓ correct" in board.frame.locator("#backends tbody tr").first.inner_text()
    for part in ("Where the time goes", "Accounting of the step", "Parts of the step", "Warnings", "Environment"):
        assert part in text, part
    assert board.count("#where .barlayer .point") >= 4, "a bar a pass"
    assert "torch" in board.frame.locator("#environment").inner_text()
    assert board.frame.locator("#command pre").inner_text().startswith("perfkit run gpt2")


def test_operators_and_kernels_sort_and_filter(board: Board) -> None:
    board.pick(TRACE)
    board.view("operators")
    names = board.frame.locator(".kernels .name code")
    assert names.first.inner_text() == "linear"
    board.frame.click("button[data-key=name]")
    shown = names.all_inner_texts()
    assert shown == sorted(shown, key=str.lower) and "layer_norm" in shown
    board.view("kernels")
    board.frame.fill("input[type=search]", "layer_norm")
    assert names.count() >= 2 and all("layer_norm" in n for n in names.all_inner_texts())
    assert re.match(r"\d of \d\d ", board.frame.locator(".controls [role=status]").inner_text())
    board.frame.click(".kernels .name >> nth=0")
    assert "One call" in board.frame.locator(".kernels .details").inner_text()


def test_a_point_of_the_roofline_leads_to_its_kernel(board: Board) -> None:
    board.pick(NCU)
    board.view("roofline")
    points = board.frame.locator(".roofline .points path")
    assert points.count() >= 2
    assert board.count(".roofline .scatterlayer .js-line") >= 2
    box = board.at_rest(points.first)
    board.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    board.frame.wait_for_selector(".hoverlayer .hovertext")
    board.page.mouse.down()
    board.page.mouse.up()
    board.shown("kernels")
    assert board.count(".kernels .details") == 1


def test_the_timeline_zooms_searches_and_tells(board: Board) -> None:
    board.pick(TRACE)
    text = board.view("trace")
    assert "matmul" in text
    board.frame.wait_for_selector(".timeline canvas")
    board.frame.fill(".tl-bar input[type=search]", "layer_norm")
    board.until("/\\d/.test(document.querySelector('.tl-status').textContent)")
    board.frame.press(".tl-bar input[type=search]", "Enter")
    board.until("document.querySelector('.tl-panel').textContent.includes('layer_norm')")
    board.view("kernels")
    assert board.count(".timeline") == 0


def test_kernels_without_a_duration_have_no_timeline(board: Board, logs: Path) -> None:
    table = build({"name": ["add"], "kind": ["gpu_kernel"], "device": ["cuda:0"], "order": [0]})
    table.write(write_run(logs / "bare", "eager") / "eager" / "kernels.parquet")
    board.frame.click("#reload")
    board.listed("bare")
    board.pick("bare")
    assert "No kernel of this profile has a duration" in board.view("trace")
    shutil.rmtree(logs / "bare")
    board.frame.click("#reload")


def test_memory_over_time_side_by_side(board: Board) -> None:
    board.pick("toy")
    board.view("memory")
    assert board.count(".memory .scatterlayer .trace") == 2, "a chart a backend"
    rows = board.frame.locator("#view tbody tr").all_inner_texts()
    assert [re.split(r"\s+", row) for row in rows] == [
        ["eager", "cpu", "3", "8.00", "0.00"],
        ["compile", "cpu", "3", "4.00", "0.00"],
    ]
    board.pick(RUN)
    assert board.count(".memory .scatterlayer .trace") == 1
    board.pick(NCU)
    assert "No allocations were recorded" in board.text()


def test_modules_open_and_close(board: Board) -> None:
    board.pick(RUN)
    board.view("modules")
    rows = board.frame.locator(".tree tbody tr")
    assert "transformer" in rows.nth(1).inner_text() or "transformer" in board.text()
    board.frame.click("text=Expand all")
    expanded = rows.count()
    board.frame.click("text=Collapse all")
    assert rows.count() < expanded
    board.pick(NCU)
    assert "has a module of the model" in board.text()


def test_findings(board: Board) -> None:
    board.pick(NCU)
    text = board.view("findings")
    assert "What to do next" in text and "copy_strided" in text and "→" in text


def test_the_difference_of_backends_and_of_runs(board: Board) -> None:
    board.pick("toy")
    board.frame.click("#backends-choice >> text=eager")
    text = board.view("diff")
    assert "toy · eager" in text and "toy · compile" in text and "0.50×" in text
    board.frame.click("text=By kernel >> nth=-1")
    first = board.frame.locator("#view tbody tr").first
    assert "add" in first.inner_text() and "−100.0 µs" in first.inner_text()
    board.frame.select_option("select[aria-label='Compare with']", label=NCU)
    board.frame.get_by_text("of a step, those of the second of a profile").wait_for()
    board.frame.select_option("select[aria-label='Compare with']", label="cut.pt.trace.json.gz")
    board.frame.wait_for_selector(".diff .banner")
    assert "is damaged" in board.text()


def test_another_backend(board: Board) -> None:
    board.pick("toy")
    board.view("kernels")
    before = board.frame.locator(".kernels tbody tr").first.inner_text()
    board.frame.click("#backends-choice >> text=compile")
    board.shown("kernels")
    assert board.frame.locator(".kernels tbody tr").first.inner_text() != before


def test_a_damaged_file_is_a_message_in_its_place(board: Board) -> None:
    assert "cut.pt.trace.json.gz is damaged" in board.pick("cut")
    assert board.frame.locator("#view [role=alert]").is_visible()
    assert board.pick(RUN), "the others open as before"


def test_hostile_names_stay_text(board: Board) -> None:
    board.pick("onerror")
    for view in VIEWS:
        text = board.view(view)
        assert not set("\x1b\x07\u202e") & set(text), view
        assert board.count("#view img") == 0 and board.count("#view b") == 0, view
    board.view("kernels")
    board.frame.click(".kernels .name")
    details = board.frame.locator(".kernels .details").inner_text()
    assert "<img src=x onerror=alert(1)>\\x1b[31mred\\x07\\u202eevil <b>b</b>" in details


def test_no_other_script_runs_and_nothing_is_sent(opened: Board) -> None:
    add = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    opened.frame.evaluate(add)
    assert opened.frame.evaluate("window.ran") is None
    assert opened.frame.evaluate("fetch('http://localhost:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert opened.errors and all("Content Security Policy" in e or "Fetch API" in e for e in opened.errors)
    opened.errors.clear()


def test_tabs_by_keyboard(board: Board) -> None:
    board.pick("toy")
    board.view("overview")
    board.frame.focus("#view-overview")
    board.page.keyboard.press("ArrowRight")
    board.shown("findings")
    assert board.frame.evaluate("document.activeElement.id") == "view-findings"


def test_light_and_dark_follow_tensorboard(board: Board) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = board.frame.evaluate(background)
    board.page.evaluate("document.body.classList.add('dark-mode')")
    board.until(f"{background} !== '{light}'")
    board.page.evaluate("document.body.classList.remove('dark-mode')")
    board.until(f"{background} === '{light}'")


def test_new_runs_appear_on_reload(board: Board, logs: Path) -> None:
    board.pick("toy")
    board.view("kernels")
    write_run(logs / "later", "eager")
    board.page.click("[aria-label='Reload data'], .reload-button, button[title*='eload']")
    board.until("[...document.querySelectorAll('#run option')].some((o) => o.textContent === 'later')")
    assert board.frame.locator("#run option:checked").inner_text() == "toy", "what is shown stays"
    write_trace(logs / "more.pt.trace.json")
    board.frame.click("#reload")
    board.until("[...document.querySelectorAll('#run option')].some((o) => o.textContent.includes('more'))")


def test_nothing_sticks_out(board: Board) -> None:
    for name in (RUN, NCU):
        board.pick(name)
        for view in VIEWS:
            board.view(view)
            assert board.frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def test_an_address_leads_to_a_run_a_backend_and_a_view(board: Board, address: str) -> None:
    page = board.page.context.new_page()
    page.goto(f"{address}&p.perfkit.run=toy&p.perfkit.backend=compile&p.perfkit.view=operators")
    other = Board(page, board.errors)
    assert "No kernel of this profile names its operator" in other.shown("operators")
    assert other.frame.locator("#run option:checked").inner_text() == "toy"
    assert other.frame.locator("#backends-choice [aria-pressed=true]").inner_text() == "compile"
    page.close()
