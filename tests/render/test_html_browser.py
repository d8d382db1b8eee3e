"""The HTML report in headless Chromium, which reaches nothing but this machine."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest

from perfkit.analysis.difference import difference
from perfkit.analysis.report.analyse import analyse_any
from perfkit.analysis.results import Report
from perfkit.cli.parts import reported
from perfkit.readers import read
from perfkit.readers.kineto.memory import AllocatorBytes, BackendMemory
from perfkit.render import html, views
from perfkit.render.cells import figures
from tests.analysis import test_fused, test_fusion
from tests.render.conftest import OpenPage, Show
from tests.support.analysis import profiles
from tests.support.render import sample
from tests.support.tensorboard.logdirs import HOSTILE, write_trace

pytestmark = pytest.mark.browser


def test_a_saving_that_is_no_bound_is_not_called_one(show: Show) -> None:
    report = copy.deepcopy(profiles.ncu("full.ncu-rep"))
    backend = report.backends[0]
    first, second, *_ = backend.findings
    backend.findings[0] = msgspec.structs.replace(first, bounded=False)
    findings = show(report).locator(".panel:not([hidden]) .findings > li")
    assert first.saving_ns > second.saving_ns > 0
    assert "≤" not in findings.nth(0).inner_text() and "≤" in findings.nth(1).inner_text()


def test_a_profile_shows_what_to_do_and_nothing_that_only_a_run_has(show: Show) -> None:
    report = profiles.ncu("full.ncu-rep")
    page = show(report)
    panel = page.locator(".panel:not([hidden])")
    findings = panel.locator(".findings > li")
    assert findings.count() == len(report.backends[0].findings)
    assert "copy_strided: uncoalesced, 88 % wasted" in findings.nth(0).inner_text()
    assert "≤ 784.6 µs" in findings.nth(0).inner_text() and "Let neighbouring threads" in findings.nth(0).inner_text()
    assert "NVIDIA's own estimates" in panel.inner_text()
    why = panel.locator(".kernels .whycell").all_inner_texts()
    assert "1 block on 132 SMs" in why and "too small" in why
    for hidden in ("#backends-card", "#samples-card", "#tabs", "#environment-card", "#command-title"):
        assert not page.locator(hidden).is_visible(), hidden
    text = page.locator("body").inner_text()
    assert "not checked" not in text and "measured on this device" not in text and "MFU" not in text
    assert "at the maximum clock" in page.locator("#ceilings").inner_text()


def test_charts_are_drawn_with_every_point(show: Show) -> None:
    report = sample.report()
    page = show(report)
    panel = ".panel:not([hidden]) "
    assert page.locator(f"{panel}.roofline .scatterlayer .points path").count() == len(report.backends[0].points)
    used = [r for r in report.roofs if r.resource != "vector_fp32"]
    assert page.locator(f"{panel}.roofline .scatterlayer .js-line").count() == len(used)
    passes = len(report.backends[0].passes)
    assert page.locator("#where .barlayer .trace").count() == passes
    assert page.locator("#where .barlayer .point").count() == passes * len(report.backends)
    assert page.locator("#samples .boxlayer .trace").count() == len(report.backends)
    assert page.locator(f"{panel}.losses .scatterlayer .trace").count() == 2


def test_what_stands_at_the_top(show: Show) -> None:
    report = sample.report()
    report.verdict.append("Kernels that are too small to judge say why. " * 30)  # a paragraph, which nothing crops
    page = show(report)
    assert page.locator("#verdict .lead").inner_text() == report.verdict[0]
    assert page.locator("#verdict li").last.inner_text() == report.verdict[-1].strip()
    rows = page.locator("#backends tbody tr")
    assert rows.count() == 3
    assert "1.21×" in rows.nth(1).inner_text()
    wrong = rows.nth(2).inner_text()
    assert "✗ wrong" in wrong
    assert "×" not in wrong
    assert "logits differ from the reference" in page.locator("#backends").inner_text()


def test_hostile_names_stay_text(show: Show) -> None:
    page = show(sample.hostile())
    for tab in range(3):
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab} .roofline .points path")
    assert page.locator("img").count() == 0
    assert page.locator("#panel-0 b").count() == 0
    text = page.locator("body").inner_text()
    assert not set("\x1b\x07\u202e") & set(text)
    assert "<img src=x onerror=alert(1)>\\x1b[31mred\\x07\\u202eevil" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_no_other_script_runs_and_nothing_is_sent(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html.render(sample.report()), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    add = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    page.evaluate(add)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("fetch('http://localhost:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert len(errors) >= 2
    assert all("Content Security Policy" in error or "Fetch API" in error for error in errors)


@pytest.mark.parametrize("width", [800, 1400])
def test_nothing_sticks_out_of_the_window(show: Show, width: int) -> None:
    page = show(sample.report())
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cards = page.locator("section.card:visible")
    assert all(box["x"] + box["width"] <= width for card in cards.all() if (box := card.bounding_box()))


def test_scales_are_those_of_the_other_formats(show: Show) -> None:
    report = sample.report()
    page = show(report)
    page.click(".more >> text=Show all 39")
    kernels = report.backends[0].kernels
    shown = page.locator(".panel:not([hidden]) .kernels .timecell .figure").all_inner_texts()
    assert shown == [cell.text for cell in figures("time", [g.time_ns for g in kernels], "ns").cells]


def test_small_and_partial_sums_are_those_of_the_other_formats(show: Show) -> None:
    report = sample.report()
    first, second, *others = report.backends[0].passes
    known = {"flop_known_ns": first.time_ns / 2, "bytes_known_ns": first.time_ns}
    passes = [
        msgspec.structs.replace(first, flop=44e9, **known),
        msgspec.structs.replace(second, flop=1.0, share=1e-5),
        *others,
    ]
    report.backends[0] = msgspec.structs.replace(report.backends[0], passes=passes)
    page = show(report)
    card = page.locator(".panel:not([hidden]) .card", has=page.locator("text=Parts of the step"))
    rows = [[cell.strip() for cell in row.split("\t")] for row in card.locator("tbody tr").all_inner_texts()]
    assert rows[0][2:6] == ["< 0.1%", "≥ 44.0", "0.5", "< 0.01"]
    assert rows[1][2:6] == ["< 0.1%", "< 0.1", "130.5", "0.83"]


def test_a_report_that_knows_little(open_page: OpenPage, tmp_path: Path) -> None:
    from tests.render.test_text import minimal

    path = tmp_path / "minimal.html"
    path.write_text(html.render(minimal()), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    assert "not checked" in page.locator("#backends").inner_text()
    assert page.locator("#panel-0").inner_text() == "Nothing was captured of this backend."
    assert errors == []


def test_fusion_headroom_and_what_is_not_judged(show: Show) -> None:
    """A prediction next to the compiler's result; and rules that lack data in the profile."""
    page = show(test_fusion.report(test_fusion.cpu_chain(), [test_fusion.fused(300, 20 * test_fusion.MB)]))
    card = page.locator(".panel:not([hidden]) .card", has_text="Fusion headroom")
    assert "the compiler moves 2.00 × the bytes: it fuses less, or recomputes" in card.inner_text()
    assert "fused, 800.0 µs are predicted; compile took 1.00 ms" in card.inner_text()
    todo = page.locator(".panel:not([hidden]) .card", has_text="What to do next").inner_text()
    assert "Not judged: idle-threads" in todo and "elementwise-chain" in todo


def test_fused_kernels_one_by_one(show: Show) -> None:
    """Each kernel of the compiler: what eager's operators predict of it, what it took, and why they differ."""
    kernel = test_fused.fused(300, 10 * test_fusion.MB, "add", "mul", "relu")
    product = test_fused.faults.product(500)
    page = show(test_fused.report([product, *test_fused.CHAIN], [product, kernel]))
    card = page.locator(".panel:not([hidden]) .card", has_text="Fusion headroom").inner_text()
    assert "forward add → mul → relu" in card and "it does not reach the measured bandwidth" in card
    assert "the predictions are 67 % off, for 100 % of the time of fused kernels" in card


def test_operators_differences_and_memory_are_in_the_file(open_page: OpenPage, tmp_path: Path) -> None:
    """The plugin's views, in the report: any two backends next to each other, allocations side by side."""
    report = sample.report()
    path = tmp_path / "report.html"
    page, errors = open_page(_with_answers(report, path))
    page.wait_for_selector("html[data-ready]")
    panel = page.locator(".panel:not([hidden])")
    operators = panel.locator(".card", has_text="that kernels serve").locator(".name code").all_inner_texts()
    assert operators == [g.key for g in report.backends[0].operators][:12]
    first, second, third = (b.name for b in report.backends)
    page.locator(".contents button", has_text="Difference").click()
    page.wait_for_selector(".diff .diff-total")
    card = page.locator(".diff")
    passes = difference(report, report, (first, second)).passes
    assert card.locator("tbody tr th").all_inner_texts() == [c.key for c in passes]
    page.select_option("select[aria-label='First backend']", third)
    page.locator(".diff p", has_text=f"first: {third}").wait_for()
    changed = difference(report, report, (third, second))
    assert card.locator("tbody tr").count() == len(changed.passes)
    assert f"{changed.passes[0].ratio:.2f}×" in card.locator("tbody tr").first.inner_text()
    assert "is wrong: its times measure another computation" in card.inner_text()
    page.select_option("select[aria-label='First backend']", second)  # the other side then takes the one that was here
    page.locator(".diff p", has_text=f"first: {second} · second: {third}").wait_for()
    page.locator(".contents button", has_text="Memory").click()
    page.wait_for_selector(".memory .scatterlayer .trace")
    assert page.locator(".memory").count() == 2
    assert "8.00" in page.locator(".memory-box tbody").inner_text()
    assert "is damaged" in page.locator(".memory-box .reason").inner_text()
    assert errors == []


def _with_answers(report: Report, path: Path) -> Path:
    names = [b.name for b in report.backends]
    memory = [
        BackendMemory(name=name, devices=[AllocatorBytes(
            device="cpu", events=2, time_ns=[0.0, 5e3], allocated=[8192.0, 0.0], reserved=[], peak_allocated=8192.0,
            peak_reserved=None, last_allocated=0.0,
        )])
        for name in names[:2]
    ]  # fmt: skip
    memory.append(BackendMemory(name=names[2], problem="x.json is damaged."))
    path.write_text(html.render(report, answers=views.answers(report, {}, memory)), encoding="utf-8")
    return path


def test_the_order_is_verdict_time_roofline_next_step(show: Show) -> None:
    """The facts for the first ten seconds come in this order, and the first lines lead to the rest."""
    page = show(sample.report())
    top = "n => document.querySelector(n).getBoundingClientRect().top"
    parts = ("#verdict", "#where-card", ".panel:not([hidden]) .roofline", ".panel:not([hidden]) .kernels")
    tops = [page.evaluate(top, part) for part in parts]
    assert tops == sorted(tops)
    contents = page.locator("#contents button").all_inner_texts()
    assert contents[0] == "Roofline" and contents[-1] == "How it was made" and "Kernels" in contents
    page.click("#contents >> text=How it was made")
    assert page.evaluate(top, "h2[data-nav]") < 900, "it is in the window now"


@pytest.mark.parametrize(("field", "value"), [("ts", -1e300), ("dur", 1e300)])
def test_a_trace_with_times_that_are_none(field: str, value: float, open_page: OpenPage, tmp_path: Path) -> None:
    page, errors = open_page(_reported(tmp_path, ["aten::a", "aten::b"], **{field: value}))
    page.wait_for_selector("html[data-ready]")
    for part in page.locator("#contents button").all():
        part.click()
    page.wait_for_selector(".memory .scatterlayer .trace")
    page.wait_for_selector(".timeline canvas")
    text = page.locator("body").inner_text()
    assert not [word for word in ("NaN", "undefined", "Infinity") if word in text]
    assert errors == []


def test_a_name_of_ten_megabytes_is_cut(open_page: OpenPage, tmp_path: Path) -> None:
    path = _reported(tmp_path, [f"aten::{'x' * 10_000_000}{HOSTILE}"])
    assert path.stat().st_size < 1.5e6
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    page.locator("#contents button", has_text="Timeline").click()
    page.wait_for_selector(".timeline canvas")
    page.click(".kernels .name >> nth=0")
    assert "…" in page.locator(".kernels .details").first.inner_text()
    assert page.locator("img").count() == 0
    assert errors == []


def _reported(folder: Path, names: list[str], **times: float) -> Path:
    """The report that `perfkit report` writes of a trace of operators and allocations."""
    trace = write_trace(folder / "odd.json", [4096.0, 8192.0, 0.0], names, **times)
    source = read(trace)
    report = analyse_any(source, trace)
    path = folder / "report.html"
    path.write_text(html.render(report, answers=reported.answers(report, source)), encoding="utf-8")
    return path
