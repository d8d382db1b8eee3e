"""llm.c's training logs: what a line says, restarts, damage, and the report made of them."""

from __future__ import annotations

import json
import math

import pytest

from perfkit.analysis.training import summarise
from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.training_log import is_training_log, parse_line, read_log
from perfkit.render import page
from perfkit.render.pages import training

LOG = """\
s:0 tel:11.0090
s:0 eval:0.2466
s:1 trl:10.9922 lr:8.57e-07 norm:15.3414
s:2 trl:10.9000 lr:1.71e-06 norm:14.0
s:3 trl:10.8000 lr:2.57e-06 norm:13.0
s:4 tel:3.4000
s:4 eval:0.3000
s:4 trl:9.0000 lr:3.43e-06 norm:12.0
s:2 trl:10.5000 lr:1.71e-06 norm:9.0
s:3 trl:10.1000 lr:2.57e-06 norm:8.0
s:4 tel:3.4249
s:4 trl:8.5000 lr:3.43e-06 norm:7.0
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "main.log"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("s:250 tel:5.9712", (250, {"tel": 5.9712})),
        ("s:3 trl:5.8 lr:1e-04 norm:2", (3, {"trl": 5.8, "lr": 1e-4, "norm": 2.0})),
        ("s:3 trl:5.8 ", (3, {"trl": 5.8})),
        ("s:9 trl:inf", (9, {"trl": math.inf})),
        ("s:9", None),
        ("s:9 ", None),
        ("s:-1 tel:2", None),
        ("s:9 tel:", None),
        ("s:9 tel:two", None),
        ("s:9 tel:1 tel:2", None),
        ("s:9 loss:1", None),
        ("step 9 tel:1", None),
        ("s:9 tel:1 and more", None),
    ],
)
def test_lines(line, found):
    assert parse_line(line) == found


def test_later_lines_of_a_step_overwrite_earlier_ones(log):
    found = read_log(log)
    assert found.series["tel"] == [(0, 11.009), (4, 3.4249)]
    assert found.series["eval"] == [(0, 0.2466), (4, 0.3)]
    assert found.series["trl"] == [(1, 10.9922), (2, 10.5), (3, 10.1), (4, 8.5)]
    assert found.series["norm"][-1] == found.last("norm") == (4, 7.0)
    assert found.restarts == [2] and found.overwritten == 10 and not found.damaged


def test_damaged_lines_are_reported_by_their_numbers(log):
    lines = LOG.splitlines()
    log.write_text("\n".join([*lines[:3], "s:2 tr", "", *lines[3:], "s:5 trl:8.1 lr:\x1b[31m"]))
    found = read_log(log)
    assert found.damaged == [(4, "s:2 tr"), (15, "s:5 trl:8.1 lr:\x1b[31m")]
    assert found.series == read_log_of(log, LOG).series


def read_log_of(path, text):
    path.write_text(text)
    return read_log(path)


@pytest.mark.parametrize(
    ("content", "is_log"),
    [
        (LOG.encode(), True),
        (b"\n\n" + LOG.encode(), True),
        (b"damaged\n" + LOG.encode(), True),
        (b"", False),
        (b"PAR1", False),
        (b'{"traceEvents": []}', False),
        (b"step,loss\n1,2\n", False),
        (bytes(range(256)) * 10, False),
    ],
)
def test_a_log_is_known_by_its_content(tmp_path, content, is_log):
    path = tmp_path / "anything.json"
    path.write_bytes(content)
    assert is_training_log(path.read_bytes()) == is_log


def test_a_log_without_a_measurement(tmp_path):
    path = tmp_path / "main.log"
    path.write_text("s:1 nothing:2\n")
    with pytest.raises(InputError, match="holds no line of a training log"):
        read_log(path)


def test_a_log_is_no_profile(log):
    with pytest.raises(InputError, match=r"is a training log, not a profile\. `perfkit report` plots it"):
        read(log)


def test_the_baselines_and_when_they_are_reached(log):
    found = summarise("main.log", read_log(log).series)
    assert [(b.model, b.validation_step, b.accuracy_step) for b in found.baselines] == [
        ("124M", 4, 4), ("350M", None, None), ("774M", None, None), ("1558M", None, None),
    ]  # fmt: skip
    assert found.steps == (0, 4)
    by_name = {s.quantity: s for s in found.quantities}
    assert by_name["tel"].best == 3.4249 and by_name["eval"].best == 0.3 and by_name["lr"].best is None


def test_a_loss_that_diverged_is_said_so(log):
    log.write_text(LOG + "s:5 trl:nan lr:1e-4 norm:inf\n")
    found = summarise("main.log", read_log(log).series)
    assert any("training loss is not a finite number at 1 of 5 steps, first at 5" in w for w in found.warnings)
    shown = training.page(found)
    assert shown.bad
    losses = next(f for s in shown.sections for f in s.figures if f.title == "Loss")
    assert all(math.isfinite(y) for series in losses.series for y in series.y)
    page.render_html(shown)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("s:1 tel:9.5", ["Best validation loss 9.5 at step 1: above all of OpenAI's models."]),
        ("s:1 eval:0.25", ["Best HellaSwag accuracy 0.25 at step 1: below all of OpenAI's models."]),
        ("s:1 tel:2.9", ["Best validation loss 2.9 at step 1: that of OpenAI's 774M (3.001) and better."]),
        ("s:1 trl:9.5", ["Training loss from 9.5 to 9.5, at best 9.5."]),
        ("s:1 tel:nan", []),
    ],
)
def test_verdicts(log, line, verdict):
    log.write_text(line + "\n")
    shown = training.page(summarise("main.log", read_log(log).series))
    assert shown.verdict == verdict
    page.render_text(shown)


def test_csv_has_a_row_for_each_step(log):
    rows = training.csv(summarise("main.log", read_log(log).series)).splitlines()
    assert rows[0] == "step,validation_loss,HellaSwag_accuracy,training_loss,learning_rate,gradient_norm"
    assert rows[1] == "0,11.009,0.2466,,,"
    assert rows[-1] == "4,3.4249,0.3,8.5,3.43e-06,7.0"
    assert len(rows) == 6


def test_the_report(log, run_cli, tmp_path):
    log.write_text(LOG + "s:5 tr\n")
    done = run_cli(["report", log, "--out", tmp_path / "out"])
    assert done.rc == 0, done.stderr
    assert "Best validation loss 3.425 at step 4: that of OpenAI's 124M (3.425) and better." in done.stdout
    assert "1 of 13 lines are damaged and left out: line 13: 's:5 tr'" in done.stdout
    assert "restarted at step 2: 10 values of earlier lines are overwritten by later ones" in done.stdout
    endings = ("html", "md", "txt", "json", "csv")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {*(f"report-main.log.{e}" for e in endings), "tensorboard"}
    data = json.loads((tmp_path / "out" / "report-main.log.json").read_text())
    assert data["steps"] == [0, 4]


def test_tensorboard_reads_every_value(log, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from perfkit.render.scalars import write_scalars

    write_scalars(training.scalars(summarise("main.log", read_log(log).series)), tmp_path)
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    values = {
        tag: [(e.step, e.tensor_proto.float_val[0]) for e in events.Tensors(tag)] for tag in events.Tags()["tensors"]
    }
    assert values["loss/training"] == [(s, pytest.approx(v)) for s, v in read_log(log).series["trl"]]
    assert set(values) == {"loss/validation", "loss/training", "eval/hellaswag", "lr", "norm"}


def test_counters_do_not_belong_to_a_log(log, run_cli):
    done = run_cli(["report", log, "--counters", log])
    assert done.rc == 2 and "is a training log, and --counters belongs to a profile" in done.stderr
