"""Terminal, Markdown, JSON and CSV: golden files of the sample report, and what holds for any report."""

from __future__ import annotations

import csv as csv_module
import io
import math
import re
from collections.abc import Callable

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from perfkit.analysis.results import BackendReport, Report
from perfkit.render import csv, json, markdown, page, run, sentences, tables, terminal
from perfkit.render.cells import clean, column_scale, efficiency_tone, figures, table, words
from perfkit.render.page import SCREEN
from perfkit.render.report import on_terminal, report_page
from perfkit.units import Scale, cropped
from tests.support.render import sample

Golden = Callable[[str, str], None]


def only(name: str) -> Report:
    report = sample.report()
    report.backends = [b for b in report.backends if b.name == name]
    return report


def test_terminal_of_one_backend(golden: Golden) -> None:
    golden("render/report_one_backend.txt", terminal.render(only("eager")))


def test_terminal_of_several_backends(golden: Golden) -> None:
    golden("render/report_several_backends.txt", terminal.render(sample.report()))


def test_markdown(golden: Golden) -> None:
    golden("render/report.md", markdown.render(sample.report(wrong=False)))


def test_csv(golden: Golden) -> None:
    golden("render/report.csv", csv.render(only("eager")))


def test_json(golden: Golden) -> None:
    golden("render/report_minimal.json", json.render(minimal()))


def test_a_side_that_waits_for_the_host_is_told_which_graphs_to_add() -> None:
    report = sample.report(wrong=False)
    assert not list(run.without_graphs(report)), "a CPU has no graphs"
    for backend in report.backends:
        backend.device = "NVIDIA H200"
        assert backend.accounting is not None
        backend.accounting.timed_step_ns = 2 * backend.accounting.kernel_ns
    (note,) = run.without_graphs(report)
    assert note == (
        "eager is not in its fastest mode: no kernel runs during 50 % of its timed step. "
        "CUDA graphs take the host out: add eager:graphs to --backend"
    )
    assert note in " ".join(terminal.render(report, width=200).split())
    graphs = msgspec.structs.replace(report.backends[0], name="eager-graphs")
    compiled = msgspec.structs.replace(report.backends[0], name="compile")
    report.backends += [graphs, compiled]
    assert [text.split()[0] for text in run.without_graphs(report)] == ["compile"]
    assert compiled.accounting is not None
    compiled.accounting.timed_step_ns = 1.05 * compiled.accounting.kernel_ns
    assert not list(run.without_graphs(report)), "the host runs ahead"


def minimal() -> Report:
    """A report in which nearly everything is unknown."""
    return Report(perfkit="0.1.0", title="t", source="s", backends=[BackendReport(name="eager", status="ok")])


def test_the_settings_say_what_a_step_is_made_of() -> None:
    """Three batches of gradients are summed for one step."""
    report = sample.report()
    assert report.settings is not None
    assert "recomputed" not in sentences.settings(report) and "compile mode" not in sentences.settings(report)
    more = {"grad_accumulation": 3, "recompute": True, "compile_mode": "max-autotune"}
    report.settings = msgspec.structs.replace(report.settings, batch_size=4, sequence_length=64, **more)
    said = sentences.settings(report).split(" · ")
    assert {"batch 3 × 4 × 64 tokens", "activations recomputed", "compile mode: max-autotune"} <= set(said)
    report.settings = msgspec.structs.replace(report.settings, sequence_length=None)
    assert "batch 3 × 4 tokens" in sentences.settings(report).split(" · ")


def test_json_is_the_record_as_it_is() -> None:
    report = sample.report()
    assert msgspec.json.decode(json.render(report), type=Report) == report
    report.backends[0].mfu = math.nan
    assert msgspec.json.decode(json.render(report))["backends"][0]["mfu"] is None


def test_csv_has_every_kernel_of_every_backend_in_base_units() -> None:
    report = sample.report()
    rows = list(csv_module.DictReader(io.StringIO(csv.render(report))))
    groups = [g for b in report.backends for g in b.kernels]
    assert [row["kernel"] for row in rows] == [g.key for g in groups]
    assert [float(row["time_ns"]) for row in rows] == [g.time_ns for g in groups]
    unknown = [row for row in rows if row["kernel"] == "aten::_local_scalar_dense"]
    assert unknown
    assert all(row["flop"] == row["efficiency"] == "" for row in unknown)


@pytest.mark.parametrize("width", [80, 100, 110, 120])
@pytest.mark.parametrize("make", [sample.report, sample.hostile, minimal])
@pytest.mark.parametrize("limit", [None, 0, 3])
def test_terminal_never_exceeds_its_width(width: int, make: Callable[[], Report], limit: int | None) -> None:
    lines = terminal.render(make(), width=width, limit=limit).splitlines()
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize("width", [40, 61, 80, 110])
def test_no_line_begins_with_the_unit_of_a_number(width: int) -> None:
    made = page.Page(
        title="t", verdict=[f"{'a' * n} takes {n}.5 ms, 7 % of the step, 12 of 3.1 GFLOP/s" for n in range(1, 60)]
    )
    shown = page.render_text(made, width, 0)
    assert not re.findall(r"(?m)^ *(?:ms|%|GFLOP/s)", shown)
    assert " ".join(shown.split()).count("59.5 ms, 7 % of the step, 12 of 3.1 GFLOP/s") == 1
    assert max(map(len, shown.splitlines())) <= width


def test_short_form_is_short_and_full_form_complete() -> None:
    report = only("eager")
    assert len(terminal.render(report).splitlines()) < 120
    full = terminal.render(report, width=120, limit=0)
    assert all(g.key[:20] in full for g in report.backends[0].kernels)
    assert "(8 of" not in full


def test_a_wrong_backend_has_no_speedup_and_stands_out() -> None:
    report = sample.report()
    text = terminal.render(report, width=120)
    row = next(line for line in text.splitlines() if line.startswith("thunder-wrong  "))
    assert "✗ wrong" in row
    assert "none" in row
    assert "×" not in row
    colored = terminal.render(report, width=120, color=True)
    red = next(line for line in colored.splitlines() if "✗ wrong" in line)
    assert "\x1b[1;31m" in red
    assert "logits differ" in text


def test_a_wrong_backend_never_shows_a_speedup_even_when_it_is_given_one() -> None:
    report = sample.report()
    report.backends[2].speedup = report.backends[1].speedup
    row = next(line for line in terminal.render(report, 120).splitlines() if line.startswith("thunder-wrong  "))
    assert "×" not in row


def test_colour_only_when_asked() -> None:
    assert "\x1b" not in terminal.render(sample.report())
    assert "\x1b[" in terminal.render(sample.report(), color=True)


def test_show_prints_on_a_console_without_colour_into_a_pipe() -> None:
    out = io.StringIO()
    page.show(report_page(sample.report(), on_terminal(None)), Console(file=out, width=110), SCREEN)
    assert "\x1b" not in out.getvalue()
    assert "Kernels by headroom" in out.getvalue()


@pytest.mark.parametrize("render", [terminal.render, markdown.render])
def test_hostile_names_are_escaped_and_cropped(render: Callable[[Report], str]) -> None:
    text = render(sample.hostile())
    assert not set("\x1b\x07\u202e") & set(text)
    assert "x" * 200 not in text


def test_markdown_shows_hostile_names_as_text() -> None:
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.render(sample.hostile()))
    assert "<img" not in page
    assert "<script" not in page
    assert "<b>" not in page
    headings = page.count("<table>")
    assert headings > 10
    for rows in page.split("<table>")[1:]:
        body = rows.split("</table>")[0]
        assert len({row.count("<td") for row in body.split("<tr>")[2:]}) == 1


def test_spreadsheets_run_no_name_as_a_formula() -> None:
    report = only("eager")
    report.backends[0].kernels[0].key = "=HYPERLINK(1)"
    assert "'=HYPERLINK(1)" in csv.render(report)


def test_absent_is_a_dash_and_never_zero() -> None:
    text = terminal.render(minimal())
    row = next(line for line in text.splitlines() if line.startswith("eager"))
    assert row.split() == ["eager", "not", "checked", "–"] or "0" not in row


def test_crop_keeps_both_ends() -> None:
    assert cropped("abcdefghij", 20) == "abcdefghij"
    assert cropped("abcdefghij", 5) == "abc…j"
    assert [len(cropped("x" * 50, n)) for n in (1, 2, 7)] == [1, 2, 7]


def test_clean_makes_every_character_printable() -> None:
    assert clean("a\x1b[0m\n\u202eb\ud800") == "a\\x1b[0m\\n\\u202eb\\ud800"


def test_times_of_a_wide_range_keep_their_small_values() -> None:
    scale = column_scale([2.0e9, 4e5], "ns")
    assert (scale.suffix, scale.number(4e5)) == ("ms", "0.4")
    assert column_scale([2.0e9, 1.8e9], "ns").suffix == "s"


def test_columns_without_a_value_are_left_out() -> None:
    assert table("t", figures("a", [None, None], "ns"), figures("b", [1.0, None], "ns")).columns[0].header == "b"


@pytest.mark.parametrize(
    ("values", "at_least", "shown"),
    [
        ([13.3e9, 1.76e3, 0.0, None], [], ["13.3", "< 0.1", "0.0", "–"]),
        ([2e9, -1e3], [], ["2.00", "> -0.01"]),
        ([9.69e9, 1e3, 0.0, None], [True] * 4, ["≥ 9.69", "> 0", "0.00", "–"]),
        ([9.69e9, 1e3], [False, True], ["9.69", "> 0"]),
    ],
)
def test_small_numbers_are_no_zeros_and_sums_in_part_are_limits(
    values: list[float | None], at_least: list[bool], shown: list[str]
) -> None:
    scale = Scale(1e9, "G", 1 if values[0] == 13.3e9 else 2)
    assert [cell.text for cell in figures("a", values, "FLOP", scale=scale, at_least=at_least).cells] == shown


@pytest.mark.parametrize(
    ("value", "tone"),
    [(None, ""), (math.nan, ""), (0.1, "poor"), (0.4, "fair"), (0.7, "good"), (1.02, "good"), (1.2, "bad")],
)
def test_efficiency_tones(value: float | None, tone: str) -> None:
    assert efficiency_tone(value) == tone


def test_a_short_module_tree_keeps_the_largest_in_the_order_of_the_model() -> None:
    root = sample.report().backends[0].tree
    assert root is not None
    short = tables.tree(root, depth=2, limit=4)
    names = [cell.text for cell in short.columns[0].cells]
    assert names == ["model", "· transformer", "· · h", "· lm_head"]
    assert short.title == "Module tree (4 of 7)"


def test_cropped_rows_of_a_table_stay_apart() -> None:
    """Three collectives of other sizes were all called "ncclDevKernel_AllReduce… of default_pg"."""
    sizes = ("[1024]", "[4096]", "[77]")
    names = [f"ncclDevKernel_AllReduce_Sum_f32_RING_LL fp32{size}, 2 ranks of default_pg" for size in sizes]
    made = table("Kernels", words("kernel", names, name=True))
    rows = [str(line) for line in terminal.table_lines(made, 40)][3:]
    assert len(set(rows)) == 3 and all(size in row for size, row in zip(sizes, rows, strict=True))
