"""`perfkit eval`: losses and answers held against direct computations, on files made here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from perfkit import statistics
from perfkit.errors import InputError
from perfkit.evaluation import evaluate, questions
from perfkit.workloads import find, llmc
from perfkit.workloads.settings import resolve_settings

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llmc"
TOKENS = FIXTURES / "tokens.bin"
VOCABULARY, CONTEXT = 512, 128  # of gpt2's and llama's preset tiny


@pytest.fixture(scope="module")
def hellaswag():
    """12 questions with endings of different lengths."""
    path = FIXTURES / "questions.bin"
    return path, llmc.read_evaluation(path)


def asked(workload, data, **more):
    options = {"preset": "tiny", "batch_size": 4, "sequence_length": 32, "training": False, "profiler": "none"}
    return resolve_settings(find(workload), **(options | {"data": str(data)} | more))


@pytest.mark.parametrize("workload", ["gpt2", "llama"])
def test_the_loss_of_a_token_file_is_that_of_a_direct_computation(workload):
    settings = asked(workload, TOKENS)
    found = evaluate(settings, {"eager": "eager"}, 3).backends[0].loss
    stored = torch.from_numpy(llmc.read_tokens(TOKENS, VOCABULARY).astype(np.int64))
    torch.manual_seed(settings.seed)
    model = find(workload).build(settings).double().eval()
    each = []
    for start in range(0, 3 * 128, 32):  # three batches of 4 · 32
        logits, _ = model(stored[None, start : start + 32])
        each.append(float(F.cross_entropy(logits[0], stored[start + 1 : start + 33]).detach()))
    assert found.tokens == 3 * 4 * 32
    assert found.mean.value == pytest.approx(np.mean(each), rel=1e-6)
    assert found.mean.low < found.mean.value < found.mean.high


def test_accuracy_is_that_of_a_direct_computation(hellaswag):
    path, examples = hellaswag
    settings = asked("gpt2", path, batch_size=6)
    found = evaluate(settings, {"eager": "eager"}, 20)
    torch.manual_seed(settings.seed)
    model = find("gpt2").build(settings).double().eval()
    by_mean, by_sum = [], []
    for one in examples:
        sums = []
        for ending in one.completions:
            row = torch.tensor([*one.context, *ending])
            log = model(row[None, :-1])[0][0].log_softmax(-1)
            sums.append(-float(log.detach().gather(-1, row[1:, None])[len(one.context) - 1 :].sum()))
        by_sum.append(int(np.argmin(sums)))
        by_mean.append(int(np.argmin([s / len(e) for s, e in zip(sums, one.completions, strict=True)])))
    assert by_mean != by_sum  # else the test could not distinguish the two rules
    got, labels = found.backends[0].accuracy, [one.label for one in examples]
    assert got.right == sum(a == b for a, b in zip(by_mean, labels, strict=True))
    assert got.right_by_sum == sum(a == b for a, b in zip(by_sum, labels, strict=True))
    assert (got.questions, found.sequence_length, found.batch_size) == (12, 64, 6)


WORSE = """
from perfkit.backends import AutogradProgram, Backend

class Worse(Backend):
    name = "worse"
    summary = "a model whose last block is lost"

    def prepare(self, workload, model, settings):
        import torch
        with torch.no_grad():
            list(model.parameters())[0].mul_(3.0)
        return AutogradProgram(workload, model, model, None)
"""
FAILS = WORSE.replace("Worse", "Fails").replace('"worse"', '"fails"').replace("list(model", "raise ValueError('no')#")


def test_a_worse_backend_is_told_and_a_failing_one_stops_nobody(tmp_path):
    (tmp_path / "worse.py").write_text(WORSE)
    (tmp_path / "fails.py").write_text(FAILS)
    named = {"eager": "eager", "fails": str(tmp_path / "fails.py"), "worse": str(tmp_path / "worse.py")}
    found = evaluate(asked("gpt2", TOKENS), named, 0)
    eager, fails, worse = found.backends
    assert found.bad and fails.loss is None and fails.reason == "ValueError: no"
    assert worse.loss.above.low > 0
    assert worse.loss.above.value == pytest.approx(worse.loss.mean.value - eager.loss.mean.value)


def test_the_exported_checkpoint_has_the_loss_that_was_exported(run_cli, tmp_path):
    batch = ["--preset", "tiny", "-B", "2", "-T", "16", "--data", str(TOKENS)]
    exported = run_cli(["export", "gpt2", "--llmc", "files", *batch], cwd=tmp_path)
    assert exported.rc == 0, exported.stderr
    (weights,) = (p for p in (tmp_path / "files").glob("*.bin") if llmc.kind_of(p) == "an llm.c checkpoint"
                  and "bf16" not in p.name)  # fmt: skip
    shown = run_cli(["eval", "gpt2", *batch, "--weights", weights, "--batches", "1"], cwd=tmp_path)
    loss = exported.stdout.split("Loss of the batch: ")[1].split()[0]
    assert shown.rc == 0 and f"val loss {loss}" in shown.stdout, shown.stdout + shown.stderr


def test_the_command(run_cli, hellaswag, tmp_path):
    path, _ = hellaswag
    command = ["eval", "gpt2", "--preset", "tiny", "--data", path, "--backend", "eager,llmc"]
    shown = run_cli([*command, "--out", "out"], cwd=tmp_path)
    assert shown.rc == 0, shown.stderr
    (found,) = (json.loads((tmp_path / "out" / name).read_text()) for name in ["eval.json"])
    right = found["backends"][0]["accuracy"]["right"]
    assert f"eager: {right}/12 = {right / 12:.6f}" in shown.stdout
    assert "every answer is eager's" in shown.stdout and (tmp_path / "out" / "eval.html").is_file()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["mlp"], "predicts no tokens"),
        (["gpt2", "--batches", "0"], "do not end"),
        (["gpt2", "-T", "4000"], "4000"),
        (["gpt2", "--data", "nowhere.bin"], "nowhere.bin"),
    ],
)
def test_what_cannot_be_evaluated(run_cli, given, said):
    done = run_cli(["eval", *given])
    assert done.rc == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_questions_that_do_not_fit_the_model(tmp_path):
    path = tmp_path / "q.bin"
    for example, said in [
        (llmc.Example((1,) * CONTEXT, ((1, 2), (3,)), 0), "context is 128"),
        (llmc.Example((VOCABULARY,), ((1,), (2,)), 0), "vocabulary has 512"),
        (llmc.Example((), ((1,), (2,)), 0), "empty context"),
    ]:
        llmc.write_evaluation(path, [example])
        with pytest.raises(InputError, match=said):
            evaluate(asked("gpt2", path), {"eager": "eager"}, 1)


def test_rows_of_questions():
    example = llmc.Example((5, 6), ((7,), (8, 9)), 1)
    (rows,) = questions.batches([example], 3, 4)
    assert rows.tokens.tolist() == [[5, 6, 0, 0], [5, 6, 8, 0], [0, 0, 0, 0]]
    assert rows.targets[rows.scored].tolist() == [7, 8, 9]
    assert questions.longest([example]) == 3
    assert questions.answers([example], [2.0, 3.0], [1, 2]) == ([1], [0])


def test_token_files_of_llama_3(tmp_path):
    header = np.zeros(256, "<i4")
    header[:3] = 20240801, 7, 3
    path = tmp_path / "tokens.bin"
    path.write_bytes(header.tobytes() + np.array([1, 128000, 2], "<u4").tobytes())
    assert llmc.read_tokens(path, 128256).tolist() == [1, 128000, 2]
    with pytest.raises(InputError, match="128000"):
        llmc.read_tokens(path, 50257)


def test_intervals_of_means_and_shares():
    random = np.random.default_rng(2)
    held = sum(
        (lambda e: e.low <= 1.0 <= e.high)(statistics.mean(random.exponential(1.0, 60).tolist())) for _ in range(200)
    )
    assert 176 <= held <= 200  # 95 % of 200; a skewed sample of 60 holds somewhat less
    assert statistics.share(0, 10).high == pytest.approx(0.2775, abs=1e-4)  # z²/(n + z²)
    half = statistics.share(50, 100)
    assert (half.low, half.high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    with pytest.raises(ValueError, match="share"):
        statistics.share(3, 2)
    assert math.isclose(statistics.mean([1.0, 2.0]).high, 2.0)
