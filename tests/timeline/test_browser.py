"""The timeline in headless Chromium: driven as a person does, and asserted on what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perfkit.render.timeline import embedded
from perfkit.table import build
from tests.support.timeline import pages

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

OpenPage = Callable[[str | Path], "tuple[Page, list[str]]"]


def wait_until(page: Page, condition: str, seconds: float = 20) -> None:
    """Ask again until `condition` holds: the page's policy forbids the eval by which playwright would poll."""
    for _ in range(int(seconds / 0.02)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never came: {condition}")


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.page_of_trace(pages.FIXTURES / "eager.json.gz", tmp_path_factory.mktemp("page") / "eager.html")


@pytest.fixture
def show(open_page: OpenPage) -> Iterator[Callable[..., Page]]:
    """Open a page with a timeline; its console must have stayed silent."""

    def open_(path: Path, address: str = "") -> Page:
        page, found = open_page(path.as_uri() + address)
        errors.append(found)
        page.wait_for_selector("html[data-ready]")
        wait_until(page, "!shown || shown.frames > 0")
        return page

    errors: list[list[str]] = []
    yield open_
    assert errors == [[] for _ in errors]


def view(page: Page) -> tuple[float, float]:
    found = page.evaluate("[shown.view.from, shown.view.to]")
    return found[0], found[1]


def place(page: Page, event: int) -> tuple[float, float]:
    """Return the place of an event on the page, from the timeline's own layout."""
    box = page.locator(".tl-lanes canvas").bounding_box()
    assert box
    x, y = page.evaluate(
        """(i) => {
          const t = shown, track = t.data.tracks.find((k) => i >= k.first && i < k.first + k.count);
          const row = t.layout.rows.find((r) => r.track === track), middle = t.data.start[i] + t.data.duration[i] / 2;
          return [(middle - t.view.from) / (t.view.to - t.view.from) * t.width, 24 + row.y + 9 - t.lanes.scrollTop];
        }""",
        event,
    )
    return box["x"] + x, box["y"] + y


def longest_kernel(page: Page) -> int:
    found: int = page.evaluate(
        """() => {
          const d = shown.data, gpu = d.categories.indexOf("gpu_kernel");
          let best = -1;
          for (let i = 0; i < d.count; i++) if (d.category[i] === gpu && !(d.duration[i] <= d.duration[best])) best = i;
          return best;
        }"""
    )
    return found


def facts(page: Page) -> dict[str, tuple[str, str]]:
    rows = page.locator(".tl-facts tbody tr").all()
    cells = [row.locator("th, td").all_inner_texts() for row in rows]
    return {name: (value, origin) for name, value, origin in cells}


def colors_under(page: Page, event: int) -> list[int]:
    """The pixel in the middle of an event."""
    x, y = place(page, event)
    box = page.locator(".tl-lanes canvas").bounding_box()
    assert box
    return page.evaluate(  # type: ignore[no-any-return]
        "([x, y]) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " done([...shown.context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data]))))",
        [x - box["x"], y - box["y"] + 5],
    )


def test_zoom_to_a_kernel_and_click_for_its_facts(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    kernel = longest_kernel(page)
    name = page.evaluate("(i) => shown.data.names[shown.data.name[i]]", kernel)
    page.fill("input[type=search]", name)
    count = page.evaluate("(n) => [...shown.data.name].filter((k) => shown.data.names[k] === n).length", name)
    assert page.locator(".tl-status").inner_text().startswith(f"{count} found")
    page.evaluate("(i) => shown.select(i)", kernel)
    page.locator(".tl-lanes canvas").focus()
    page.keyboard.press("f")
    start, end = view(page)
    assert end - start == pytest.approx(3 * page.evaluate("(i) => shown.data.duration[i]", kernel), rel=0.01)
    page.keyboard.press("Escape")
    assert page.locator(".tl-facts").count() == 0
    page.mouse.click(*place(page, kernel))
    assert page.locator(".tl-facts h3").inner_text() == name
    shown = facts(page)
    assert shown["kind"][0] == "kernel"
    assert shown["duration"][1] == "counter"
    assert "FLOP" in shown and shown["FLOP"][1] == "model"
    assert shown["grid"][0].count("×") == 2
    assert page.locator(".tl-facts").get_by_text("launched by").count() == 1
    assert page.evaluate("shown.links.length") == 1
    page.click(".tl-jump")
    assert facts(page)["kind"][0] == "runtime call"
    assert page.evaluate("shown.links.length") == 1, "from the call to its kernel, the other way round"


def test_search_counts_fades_the_rest_and_walks(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    kernel = longest_kernel(page)
    page.evaluate("(i) => shown.show({ from: shown.data.start[i], to: shown.data.end[i] })", kernel)
    before = colors_under(page, kernel)
    page.fill("input[type=search]", "no such kernel")
    assert page.locator(".tl-status").inner_text() == "0 found, 0 ns"
    assert colors_under(page, kernel) != before
    page.fill("input[type=search]", "aten::addmm")
    total = page.evaluate("shown.found.count")
    assert total > 1
    page.locator("input[type=search]").press("Enter")
    first = page.evaluate("shown.selected")
    assert page.locator(".tl-status").inner_text() == f"1 of {total} found"
    assert page.locator(".tl-facts h3").inner_text() == "aten::addmm"
    page.locator("input[type=search]").press("Enter")
    second = page.evaluate("shown.selected")
    assert page.evaluate("([a, b]) => shown.data.start[a] < shown.data.start[b]", [first, second])
    page.locator("input[type=search]").press("Shift+Enter")
    assert page.evaluate("shown.selected") == first
    page.fill("input[type=search]", "")
    assert page.evaluate("shown.found") is None


def test_shift_and_drag_sums_up_a_span(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    box = page.locator(".tl-lanes canvas").bounding_box()
    assert box
    y = box["y"] + 60
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 5, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, y, steps=3)
    page.mouse.move(box["x"] + box["width"] - 5, y, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert page.locator(".tl-facts h3").inner_text().startswith("Span of")
    rows = page.locator(".tl-sums tbody tr")
    assert rows.count() > 10
    kind = rows.first.locator("td").all_inner_texts()
    assert kind[0] == "kernel"
    assert int(kind[1]) >= 1
    assert "cuda:0 stream 7" in page.locator(".tl-facts p").first.inner_text()
    assert view(page) == (0, page.evaluate("shown.data.to")), "selecting moves nothing"
    rows.first.locator("button").click()
    assert page.locator("input[type=search]").input_value() == rows.first.locator("button").inner_text()
    assert page.evaluate("shown.found.count") >= int(kind[1])


def test_drag_pans_and_wheel_zooms(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    canvas = page.locator(".tl-lanes canvas")
    box = canvas.bounding_box()
    assert box
    middle, y = box["x"] + box["width"] / 2, box["y"] + 100
    page.mouse.move(middle, y)
    page.mouse.wheel(0, -240)
    assert view(page) == (0, page.evaluate("shown.data.to")), "without focus the wheel belongs to the page"
    canvas.focus()
    at = page.evaluate("(x) => shown.timeAt(x)", box["width"] / 2)
    page.mouse.wheel(0, -300)
    wait_until(page, "shown.view.from > 0")
    start, end = view(page)
    assert end - start == pytest.approx(page.evaluate("shown.data.to") / 2.71828, rel=0.01)
    assert (start + end) / 2 == pytest.approx(at, rel=0.01)
    page.mouse.down()
    page.mouse.move(middle - 100, y, steps=4)
    page.mouse.up()
    moved = view(page)[0] - start
    assert moved == pytest.approx(100 / box["width"] * (end - start), rel=0.02)
    assert page.evaluate("shown.selected") == -1, "a drag is not a click"


def test_the_keyboard_alone(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    whole = view(page)
    page.locator(".tl-lanes canvas").focus()
    page.keyboard.press("w")
    page.keyboard.press("w")
    start, end = view(page)
    assert (end - start) == pytest.approx(0.49 * (whole[1] - whole[0]))
    page.keyboard.press("d")
    assert view(page)[0] > start
    page.keyboard.press("a")
    page.keyboard.press("s")
    assert view(page)[1] - view(page)[0] == pytest.approx(0.7 * (whole[1] - whole[0]))
    page.keyboard.press("Enter")
    assert facts(page)["kind"][0] in ("kernel", "copy", "fill")
    first = page.evaluate("shown.selected")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("shown.selected") == first + 1
    page.keyboard.press("Escape")
    page.evaluate("shown.select(shown.data.tracks.find((t) => shown.data.lanes[t.lane].kind === 'thread').first)")
    page.keyboard.press("ArrowDown")
    inner = page.evaluate("shown.selected")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("[shown.data.start[shown.selected], shown.data.duration[shown.selected]]") != page.evaluate(
        "(i) => [shown.data.start[i], shown.data.duration[i]]", inner
    )
    rows = page.evaluate("shown.layout.rows.length")
    page.keyboard.press("x")
    assert page.evaluate("shown.layout.rows.length") < rows
    page.keyboard.press("x")
    page.keyboard.press("m")
    assert page.locator(".tl-facts h3").inner_text().startswith("Span of")
    page.keyboard.press("0")
    assert view(page) == whole
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_an_address_leads_back_to_the_view(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    kernel = longest_kernel(page)
    page.evaluate("(i) => { shown.select(i); shown.zoom(0.25, shown.data.start[i]); }", kernel)
    wait_until(page, "location.hash.startsWith('#timeline=profile')")
    wait_until(page, "location.hash.includes('event=')")
    again = show(eager, page.evaluate("location.hash"))
    assert view(again) == pytest.approx(view(page), abs=2)
    assert again.evaluate("shown.selected") == kernel
    assert again.locator(".tl-facts h3").inner_text() == page.locator(".tl-facts h3").inner_text()


def test_colours_follow_the_choice_and_the_theme(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    kernel = longest_kernel(page)
    page.evaluate("(i) => shown.show({ from: shown.data.start[i], to: shown.data.end[i] })", kernel)
    by_family = colors_under(page, kernel)
    family = page.locator(".tl-legend").inner_text()
    page.select_option("select", "efficiency")
    assert "not judged" in page.locator(".tl-legend").inner_text() != family
    assert colors_under(page, kernel) != by_family
    page.select_option("select", "pass")
    ground = "shown.theme.ground"
    light = page.evaluate(ground)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    wait_until(page, "shown.theme.dark")
    assert page.evaluate(ground) != light
    wait_until(page, "shown.context.getImageData(3, 2, 1, 1).data[0] < 90")


def test_a_lane_folds_by_its_name_and_the_minimap_moves_the_window(show: Callable[..., Page], eager: Path) -> None:
    page = show(eager)
    rows = page.evaluate("shown.layout.rows.length")
    lane = page.evaluate("shown.layout.lanes.find((l) => l.kind === 'thread' && l.depth > 1)")
    box = page.locator(".tl-lanes canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + 20, box["y"] + 24 + lane["y"] + 8)
    assert page.evaluate("shown.layout.rows.length") == rows - lane["depth"] + 1
    page.click("button[aria-label='Zoom in']")
    page.click("button[aria-label='Zoom in']")
    small = page.locator(".tl-map").bounding_box()
    assert small
    page.mouse.click(small["x"] + small["width"] - 2, small["y"] + 10)
    assert view(page)[1] == page.evaluate("shown.data.to")
    page.click("button[aria-label='Show everything']")
    assert view(page)[0] == 0


def test_hostile_names_are_shown_as_text(show: Callable[..., Page], tmp_path: Path) -> None:
    names = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\x1b[31mred", "x" * 10_000]
    same = {"kind": "gpu_kernel", "device": "cuda:0", "stream": 7, "duration_ns": 50.0, "step": 0}
    rows: list[dict[str, Any]] = [
        {**same, "name": n, "module": n, "order": i, "start_ns": 100.0 * i, "pass": n[:50]} for i, n in enumerate(names)
    ]
    page = show(pages.write_page(embedded(build(rows), "x"), tmp_path / "p.html"))
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    kernels = page.evaluate(
        "[...shown.data.category.keys()].filter((i) => shown.data.categories[shown.data.category[i]] === 'gpu_kernel')"
    )
    for i in kernels:
        page.evaluate("(i) => shown.select(i)", i)
        title = page.locator(".tl-facts h3").inner_text()
        assert title and "\x1b" not in title and len(title) <= 4000
    page.evaluate("shown.selectSpan({ from: 0, to: 350 })")
    assert page.locator(".tl-sums tbody tr").count() == len(names)
    assert page.locator("#here img").count() == 0 and page.locator("#here script").count() == 0
    page.fill("input[type=search]", "<img src=x")
    assert page.locator(".tl-status").inner_text().startswith("2 found"), "the kernel and the pass of that name"


def test_damaged_data_is_a_sentence_in_its_place(show: Callable[..., Page], tmp_path: Path) -> None:
    page = show(pages.write_page({"x": "bm90IGEgdGltZWxpbmU="}, tmp_path / "p.html"))
    assert page.evaluate("shown") is None
    assert page.locator("[role=alert]").inner_text() == "The timeline's data is damaged: it cannot be unpacked."


def test_the_report_holds_a_timeline_and_its_address_opens_it(
    open_page: OpenPage, run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    done = run_cli(["report", pages.FIXTURES / "eager.json.gz", "--out", tmp_path, "--format", "html"])
    assert done.rc == 0, done.stderr
    [report] = tmp_path.glob("*.html")
    page, errors = open_page(report)
    page.wait_for_selector("html[data-ready]")
    page.locator(".timeline-card").scroll_into_view_if_needed()
    page.wait_for_selector(".timeline-card .tl-lanes canvas")
    name = page.evaluate("document.querySelector('.tl-lanes canvas').getAttribute('aria-label')")
    backend = name.removeprefix("Timeline of ").split(": W and S")[0]
    again, more = open_page(f"{report.as_uri()}#timeline={backend}&from=1000000&to=2000000&event=5")
    again.wait_for_selector(".timeline-card .tl-facts h3")
    assert again.locator(".timeline-card .tl-facts h3").inner_text()
    again.click("#theme")
    again.wait_for_timeout(50)
    assert errors == more == []
