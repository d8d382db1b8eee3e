"""Every backend's kernels are placed where they belong: a model whose shapes show the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from perfkit import backends
from perfkit.run.worker import Worker
from perfkit.run_folder import KERNELS
from perfkit.table import KernelTable
from perfkit.tree.aligned import align_places
from perfkit.tree.places import NOT_PLACED, places
from perfkit.workloads import find, resolve_settings
from tests.support.analysis.examples import backend, run
from tests.support.compiled import fresh_graphs
from tests.support.steady import steady
from tests.support.tree.agreement import assert_one_tree
from tests.support.whole.shape_truth import judge, score
from tests.support.whole.widths_gpt2 import WIDTHS

WORKLOAD = Path(__file__).parents[1] / "support" / "whole" / "widths_gpt2.py"
BACKENDS = ("eager", "llmc", "kernels", "compile", "thunder", "thunder-llmc")
ENOUGH = 0.97
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By backend the frame of a profile of two training steps, made once."""
    return {}


def frame_of(name: str, captured: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = resolve_settings(find(str(WORKLOAD)))
    if why := backends.get(name).unavailable(settings):
        pytest.skip(why)
    if name not in captured:
        folder = tmp_path_factory.mktemp(name)
        worker = Worker(lambda _: None)
        with fresh_graphs():
            worker.prepare(settings, name)
            worker.settle(1)
            worker.profile(str(folder), 2)
        frame = KernelTable.load(folder / KERNELS).frame
        captured[name] = steady(frame[frame["step"].notna()].reset_index(drop=True))
    return captured[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_shapes_confirm_pass_and_layer(name, captured, tmp_path_factory):
    frame = frame_of(name, captured, tmp_path_factory)
    judged = judge(frame)
    seen = {(j.backward, j.layer) for j in judged if j.product}
    assert seen == {(backward, layer) for backward in (False, True) for layer in (*range(len(WIDTHS)), None)}
    # 8 products of a layer forward (4 linear, 2 of attention) make 12 backward, in each of 2 steps.
    of_layer = [j for j in judged if j.product and j.layer is not None]
    assert len([j for j in of_layer if not j.backward]) == 2 * 6 * len(WIDTHS)
    assert len([j for j in of_layer if j.backward]) == 2 * 12 * len(WIDTHS)
    assert score(frame, places(frame), judged) >= ENOUGH
    assert score(frame.assign(duration_ns=1.0), places(frame), judged) >= ENOUGH  # by number, too


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_nearly_all_kernel_time_is_placed(name, captured, tmp_path_factory):
    frame = frame_of(name, captured, tmp_path_factory)
    found = places(frame)
    ns = frame["duration_ns"].to_numpy()[found["row"]] * found["share"]
    known = (found["pass"] != NOT_PLACED) & found["module"].notna() & found["operator"].notna()
    # Random numbers that the workload makes in its step belong to no module: some 4 % of a tiny one.
    made = (frame["name"] == "aten::randn").to_numpy()[found["row"]]
    assert ns[known & ~made].sum() / ns[~made].sum() >= ENOUGH
    assert ns.sum() == pytest.approx(frame["duration_ns"].sum())


@pytest.mark.slow
def test_the_report_of_a_compiled_step_divides_fused_kernels_as_a_comparison_does(captured, tmp_path_factory):
    frames = {name: frame_of(name, captured, tmp_path_factory) for name in ("eager", "compile")}
    both = run(*(backend(name, 1.0) for name in frames), tables={n: KernelTable(f) for n, f in frames.items()})
    compiled = assert_one_tree(both).backends[1]
    fused = {g.key: g.fused_ns for g in compiled.operators if g.fused_ns}
    assert {"gelu", "layer_norm", "add"} <= fused.keys(), "Inductor fuses them all"
    assert frames["compile"]["serves"].notna().any() and sum(fused.values()) < compiled.kernel_ns


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("lie", ["layers swapped", "passes swapped", "everything in layer 0"])
def test_a_mislabelled_placement_is_found_out(name, lie, captured, tmp_path_factory):
    # All rows count alike: on a busy machine a single kernel may take most of the time.
    frame = frame_of(name, captured, tmp_path_factory).assign(duration_ns=1.0)
    wrong = places(frame)
    if lie == "layers swapped":
        wrong["layer"] = wrong["layer"].replace({0: 1, 1: 0})
    elif lie == "passes swapped":
        wrong["pass"] = wrong["pass"].replace({"forward": "backward", "backward": "forward"})
    else:
        wrong["layer"] = wrong["layer"].where(wrong["layer"].isna(), 0)
    assert score(frame, wrong, judge(frame)) < ENOUGH


def test_the_judge_tells_layer_and_pass_of_a_step_written_by_hand():
    """The judge itself, on a step of four products whose places are plain."""
    import pandas as pd

    N, C, V = 51, WIDTHS[1], 300
    products = [
        (f"fp32[{N}×24], fp32[24×{WIDTHS[0]}]", False, None),  # the projection to layer 0: two widths
        (f"fp32[{N}×{C}], fp32[{C}×{3 * C}]", False, 1),
        (f"fp32[{N}×{V}], fp32[{V}×36]", True, None),  # the head's backward
        (f"fp32[{N}×{3 * C}], fp32[{3 * C}×{C}]", True, 1),
        (f"fp32[{C}], fp32[{C}×{C}]", None, None),  # no activations: not judged
    ]
    frame = pd.DataFrame({
        "name": "aten::mm", "shapes": [p[0] for p in products], "start_ns": range(5), "duration_ns": 1.0,
    })  # fmt: skip
    found = judge(frame)
    assert [(j.backward, j.layer) for j in found] == [p[1:] for p in products[:4]]
    truth = {"row": range(4), "pass": ["forward", "forward", "backward", "backward"], "share": 1.0}
    right = pd.DataFrame(truth | {"layer": pd.array([None, 1, None, 1], "Int64")})
    assert score(frame, right, found) == 1.0
    assert score(frame, right.assign(layer=pd.array([None, 2, None, 1], "Int64")), found) == 0.75


@pytest.mark.slow
@pytest.mark.parametrize("name", [b for b in BACKENDS if b != "eager"])
def test_shapes_confirm_what_alignment_places_without_any_mark(name, captured, tmp_path_factory):
    """Every place but the optimizer's erased, and found again from eager's order of products."""
    frame = frame_of(name, captured, tmp_path_factory)
    erased = frame.copy()
    kept = (frame["pass"] == "optimizer").to_numpy()
    for column in ("pass", "layer", "module", "operator", "range", "serves", "placed_by"):
        erased[column] = frame[column].astype(object).where(kept, None).astype(frame[column].dtype)
    found = places(align_places(erased, frame_of("eager", captured, tmp_path_factory)))
    judged = [j for j in judge(frame) if j.product]
    assert score(frame.assign(duration_ns=1.0), found, judged) >= 0.9
    assert set(found["placed_by"]) >= {"alignment"}


@pytest.mark.slow
@pytest.mark.full
def test_the_benchmark_prints_the_placed_share_of_each_backend():
    """`benchmarks/placement.py` on the smallest model; its figures for 124M are in docs/one-tree.md."""
    script = Path(__file__).parents[2] / "benchmarks" / "placement.py"
    command = [sys.executable, str(script), "--preset", "tiny", "--backend", "eager,llmc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ROOT})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:-1]}
    assert set(lines) == {"eager", "llmc"}
    assert all(float(share.rstrip("%")) >= 100 * ENOUGH for share in lines.values())
