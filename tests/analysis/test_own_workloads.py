"""The built-in workloads as shipped, a few steps of each: what is found there is reviewed in docs/findings.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import BackendReport
from perfkit.backends.eager import Eager
from perfkit.run import profile
from perfkit.workloads import loader
from perfkit.workloads.settings import resolve_settings
from tests.conftest import ROOT
from tests.support.analysis import faults

# Findings that a step on a CPU may have at any size: the division of its time depends on the machine and its other
# users.
ANYWHERE = {
    "unfused-optimizer", "fp32-matmul", "overhead", "below-roof", "elementwise-chain", "unequal-calls", "slow-blas",
    "slow-functions",
}  # fmt: skip
ROWS = {"gather-bound", "dense-embedding-gradient"}
INDEX = ("list-to-tensor", "compare-with-all")
GPT2 = {"layout-copies", "gather-bound", "unfused-attention"}
FLAT = {"interaction": "cat"}  # the outer product of 432 features takes a tenth of a second a sample

# workload, preset, variant, dimensions, and what may be found besides
SHIPPED: dict[str, tuple[str, str, str, dict[str, int | float | str], set[str]]] = {
    "gpt2": ("gpt2", "tiny", "", {}, GPT2),
    "gpt2 forward": ("gpt2", "tiny", "", {}, GPT2),
    "mlp": ("mlp", "", "", {}, set()),
    "lora": ("lora", "", "unfused", {}, set()),
    "lora fused": ("lora", "", "fused", {}, {"layout-copies"}),
    "dlrm": ("dlrm", "small", "modulus-hash", FLAT, ROWS),
    "dlrm dot": ("dlrm", "small", "modulus-hash", {"interaction": "dot"}, ROWS | {"layout-copies"}),
    "dlrm bag": ("dlrm", "small", "modulus-hash", FLAT | {"embedding": "bag", "hot": 3}, ROWS | {"layout-copies"}),
    "dlrm tensor": ("dlrm", "small", "index-hash-tensor", FLAT, ROWS | {"compare-with-all"}),
    "dlrm list": ("dlrm", "small", "index-hash-list", FLAT, ROWS | set(INDEX)),
}


def profiled(case: str, folder: Path) -> BackendReport:
    """Two profiled steps of a built-in workload in eager."""
    name, preset, variant, dimensions, _ = SHIPPED[case]
    workload = loader.find(name)
    given = {"preset": preset} if preset else {}
    given |= {"variant": variant} if variant else {}
    settings = resolve_settings(workload, **given, dimensions=dimensions, training="forward" not in case)
    program = Eager().prepare(workload, workload.build(settings), settings)

    def run(step: int) -> object:
        batch = workload.batch(settings, step)
        return program.train_step([batch]) if settings.training else program.forward(batch)

    run(0)
    captured = profile.write(profile.record(program, settings, run, 2), folder)
    table = profile.table_of(program, workload, settings, captured)
    return analyse_table(table, faults.CEILINGS, "x.parquet").backends[0]


@pytest.mark.parametrize("case", SHIPPED)
def test_what_is_found_is_reviewed(case: str, tmp_path: Path) -> None:
    name, _, _, _, allowed = SHIPPED[case]
    found = {f.name for f in profiled(case, tmp_path).findings}
    assert found <= ANYWHERE | allowed
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").partition("## What perfkit finds in its own")[2]
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for finding in allowed | ANYWHERE:
        assert any(re.search(rf"`{name}[` ]|every workload", row) and f"`{finding}`" in row for row in rows), finding


def test_the_index_of_large_tables_stands_first_in_its_two_parts(run_cli, tmp_path: Path) -> None:
    """With tables of 20,000 rows, before anything that does not depend on the machine and on who else uses it."""
    command = ["run", "dlrm", "--preset", "small", "--variant", "index-hash-list", "--dim", "largest=20000"]
    light = ["--dim", "interaction=cat", "--batch-size", "32", "--inference", "--steps", "2", "--warmup", "0"]
    done = run_cli([*command, *light, "--out", tmp_path / "run", "--json"])
    assert done.rc == 0, done.stderr
    [eager] = json.loads(done.stdout)["backends"]
    machine = ANYWHERE | {"idle-threads"}  # as many threads as the tests are given
    found = [f for f in eager["findings"] if f["name"] not in machine]
    assert sorted(f["name"] for f in found[:2]) == sorted(INDEX)
    assert all(f["share"] > 0.05 for f in found[:2])
    assert "index" in {group["key"] for group in eager["passes"]}


def test_the_prediction_of_the_main_preset_takes_most_of_its_forward(tmp_path: Path) -> None:
    """At a quarter of the width, because the outer product of 432 features leads to 95 million weights."""
    SHIPPED["dlrm main forward"] = ("dlrm", "main", "modulus-hash", {"width": 4}, set())
    passes = profiled("dlrm main forward", tmp_path).passes
    assert max(passes, key=lambda group: group.time_ns).key == "prediction"
