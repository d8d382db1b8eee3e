"""Steps that take some finding (`stepping.py`), and work that is easily put in a wrong place (`placing.py`)."""

import re
import sys

import pytest

from perfkit.capture.agent.order import Order
from perfkit.table import FLOP_COLUMNS
from tests.capture.agent.test_unharmed import printed
from tests.support.programs.captured import ENVIRONMENT, HERE, alone, capture

OPTIMIZER = "a step is one step of the optimizer"
CALL = "a step is one call of the outermost module, and what follows until the next"
REQUEST = "a step is one request: a call of the outermost module, on whatever thread, until it returns"
TRAINING = {"forward", "backward", "optimizer", "between"}  # a batch is made between two steps


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def run(program, tmp_path, order=None):
    """The program under capture, which must print and end as it does alone."""
    name, *arguments = program.split()
    words = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    found, without = capture(words, tmp_path, order), alone(words)
    assert (found.stdout, found.code) == (without.stdout, 0)
    assert printed(found.stderr) == printed(without.stderr)
    return found


def recorded(program, tmp_path, steps=2, order=None):
    """The result, and the rows of the recorded steps, of a program that runs unharmed."""
    found = run(program, tmp_path, order)
    ((_, result),) = found.recorded
    assert len(result.step_ns) == steps and not result.problem
    frame = found.table().frame
    return result, frame[frame["step"].notna()]


def matrix(rows):
    return rows[[name for name in FLOP_COLUMNS if name.startswith("flop_matrix")]].sum().sum()


def step_matrix(rows):
    """The matrix FLOP of each step, which are the same in all."""
    found = {matrix(step) for _, step in rows.groupby("step")}
    assert len(found) == 1
    return found.pop()


FORWARD = 2 * (24 * 48 + 48 * 6)  # FLOP of a row of `stepping.py`'s model


def training(rows):
    """Matrix FLOP of a step with this many rows: the first layer has no gradient of its input."""
    return rows * (2 * FORWARD + 2 * 48 * 6)


# The program's own profilers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "steps"), [(0, 2), (5, 1), (9, 2)])
def test_a_program_profiles_steps_of_its_own_with_stacks(before, steps, tmp_path):
    """Before, within and after those that are recorded."""
    result, rows = recorded(f"stepping profiled {before}", tmp_path, steps)
    assert result.steps_are == OPTIMIZER and step_matrix(rows) == training(8)
    assert (len(result.notes) > 0) == (before == 5)


def test_a_profiler_that_is_active_all_along_is_named(tmp_path):
    found = run("stepping started", tmp_path)
    ((_, result),) = found.results
    assert not result.recorded and "profiler of the program's own" in result.problem and "--warmup" not in result.hint


# Optimizers ----------------------------------------------------------------------------------------------------------


def test_optimizers_that_step_within_the_backward_pass(tmp_path):
    result, rows = recorded("stepping inside", tmp_path)
    assert result.steps_are == "a step is one round of the 4 optimizers" and result.training
    assert step_matrix(rows) == training(8) and set(rows["pass"]) == TRAINING


@pytest.mark.parametrize("kind", ["trials kept", "trials dropped", "renewed 4", "renewed 1"])
def test_optimizers_that_come_and_go(kind, tmp_path):
    result, rows = recorded(f"stepping {kind}", tmp_path)
    assert result.steps_are == OPTIMIZER and step_matrix(rows) == training(8)


def test_a_compiled_optimizer_is_compiled_as_without_perfkit(tmp_path):
    """Dynamo's counters are in what the program prints."""
    result, rows = recorded("stepping compiled_update", tmp_path)
    assert result.steps_are == OPTIMIZER and step_matrix(rows) == training(8)


@pytest.mark.parametrize(("kind", "name"), [("loaded", "boxed_run"), ("wrapped", "aoti_torch_cpu_addmm_out")])
def test_the_work_of_code_compiled_ahead_of_time_is_unknown(kind, name, tmp_path):
    """It calls kernels below the dispatcher, and the FLOP of a step were 0."""
    result, rows = recorded(f"ahead {kind}", tmp_path)
    assert len(result.step_ns) == 2 and not result.training
    compiled = rows[rows["name"].str.endswith(name)]
    assert len(compiled) in (2, 4) and compiled[[*FLOP_COLUMNS, "bytes_read"]].isna().all(axis=None)
    assert compiled["duration_ns"].sum() > 0.5 * rows["duration_ns"].sum()


def test_a_step_of_distributed_autograd(tmp_path):
    result, rows = recorded("stepping elsewhere", tmp_path)
    assert result.steps_are == OPTIMIZER and result.training
    assert step_matrix(rows) == 64 * 2 * (2 * 256 * 512 + 3 * 512 * 6)
    assert set(rows["pass"].dropna()) == TRAINING
    products = rows[rows["name"].isin(["aten::mm", "aten::addmm"])]
    assert products.groupby("pass").size().to_dict() == {"forward": 4, "backward": 6}


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fresh", "crowd", "pool"])
def test_a_request_is_a_step_on_whatever_thread(kind, tmp_path):
    """The work of other requests meanwhile is not part of it."""
    result, rows = recorded(f"stepping {kind}", tmp_path, order=Order(warmup=10, steps=2))
    assert result.steps_are == REQUEST and step_matrix(rows) == 16 * FORWARD


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_straddles_the_begin_of_the_recording_is_part_of_no_step(before, tmp_path):
    """Its second layer was."""
    result, rows = recorded(f"stepping straddled {before}", tmp_path, order=Order(warmup=10, steps=2))
    assert result.steps_are == REQUEST and step_matrix(rows) == 16 * FORWARD
    assert rows["name"].tolist().count("aten::addmm") == 4 and "aten::normal_" not in set(rows["name"])


def test_a_thread_serves_after_the_main_thread_tried(tmp_path):
    result, rows = recorded("stepping later", tmp_path)
    assert result.steps_are == CALL and step_matrix(rows) == 16 * FORWARD


def test_training_in_a_thread(tmp_path):
    result, rows = recorded("stepping background", tmp_path)
    assert result.steps_are == OPTIMIZER and step_matrix(rows) == training(16) and set(rows["pass"]) == TRAINING


def test_towers_in_threads_count_with_both(tmp_path):
    result, rows = recorded("placing towers", tmp_path)
    assert result.steps_are == CALL
    assert step_matrix(rows) == 128 * 2 * (2 * 256 * 256 + 512 * 4)
    assert {"text", "image", "joined"} <= set(rows["module"])


# Calls ---------------------------------------------------------------------------------------------------------------


def test_a_call_of_a_compiled_function_is_a_step(tmp_path):
    result, rows = recorded("stepping function", tmp_path)
    assert result.steps_are == "a step is one call of the outermost compiled function, and what follows until the next"
    assert step_matrix(rows) == 3 * 2 * 2 * 24 * 48


def test_a_step_is_a_batch_and_not_the_transform_of_a_picture(tmp_path):
    result, rows = recorded("stepping transform", tmp_path)
    assert result.steps_are == CALL
    assert step_matrix(rows) == 32 * 2 * (14 * 14 * 8 * 27 + 8 * 14 * 14 * 5)
    assert set(rows["pass"][rows["name"] == "aten::div"]) == {"loading"}
    assert set(rows["pass"][rows["name"].str.contains("conv")]) == {"forward"}


def test_an_evaluation_in_a_step_is_a_part_of_its_own(tmp_path):
    """One of the recorded steps, the fifth and sixth, holds it."""
    _, rows = recorded("stepping epochs", tmp_path)
    evaluated = rows[rows["pass"] == "evaluation"]
    assert matrix(evaluated) == 12 * 32 * FORWARD and evaluated["step"].nunique() == 1
    assert step_matrix(rows[rows["pass"] != "evaluation"]) == training(8)


# Places --------------------------------------------------------------------------------------------------------------


def test_a_dispatch_mode_changes_no_place(tmp_path):
    (_, watched), (result, plain) = (recorded(f"placing {kind}", tmp_path / kind) for kind in ("watched", "plain"))
    assert watched.groupby("step")["duration_ns"].sum().min() > 0.2 * min(result.step_ns) / 2
    assert step_matrix(watched) == step_matrix(plain)

    def places(rows):
        rows = rows[rows["name"].isin(["aten::addmm", "aten::mm", "aten::silu"])]
        return sorted(zip(rows["name"], rows["pass"], rows["module"], strict=True))

    assert places(watched) == places(plain) and len(places(plain)) == 2 * 6


def test_nested_tensors_are_recorded(tmp_path):
    result, rows = recorded("placing ragged", tmp_path)
    assert result.steps_are == CALL and {"up", "down"} <= set(rows["module"])


def test_wrappers_names_do_not_stay_in_paths(tmp_path):
    result, rows = recorded("placing wrapped", tmp_path)
    assert {"blocks.0.up", "blocks.2.down", "head"} <= set(rows["module"]) and result.layers == "blocks.*"
    assert not any("_checkpoint_wrapped_module" in path for path in rows["module"].dropna())


def test_parts_are_called_as_the_program_names_them(tmp_path):
    _, rows = recorded("placing player", tmp_path)
    called = {path for path in rows["module"].dropna() if re.search(r"\.\d$", path)}
    assert called == {f"{part}.{number}" for part in ("actor", "critic") for number in range(3)}


def test_loading_has_its_kernels(tmp_path):
    _, rows = recorded("placing loader", tmp_path)
    loading = rows[rows["pass"] == "loading"]
    assert loading[loading["name"] == "aten::tanh"].groupby("step").size().tolist() == [32, 32]
    assert set(rows["pass"][rows["name"] == "aten::tanh"]) == {"loading"}
    assert {"forward", "backward", "optimizer"} < set(rows["pass"])
