"""Which signals of a program end its steps."""

from types import SimpleNamespace

import pytest

from perfkit.capture.agent.steps.ends import CALL, MARK, OPTIMIZER, REPLAY, StepFinder
from perfkit.capture.agent.steps.rounds import is_gone, key_of
from perfkit.capture.agent.steps.threads import StepOwner


def boundaries(finder, signals):
    """The positions of the signals that are boundaries."""
    return [i for i, (kind, key) in enumerate(signals) if finder.signal(kind, key)]


def test_accumulated_gradients_are_one_step():
    finder = StepFinder()
    found = boundaries(finder, [*[(CALL, "model")] * 4, (OPTIMIZER, "sgd")] * 3)
    assert [i for i in found if i > 4] == [9, 14] and finder.kind == OPTIMIZER


@pytest.mark.parametrize("critic", [1, 5])
def test_two_optimizers_make_one_step(critic):
    finder = StepFinder()
    found = boundaries(finder, [*[(OPTIMIZER, "D")] * critic, (OPTIMIZER, "G")] * 4)
    later = [i for i in found if i > critic]
    assert later == [i for i in range(critic + 1, 4 * (critic + 1)) if i % (critic + 1) == critic]
    assert finder.words() == "a step is one round of the 2 optimizers"


def test_a_step_of_several_modules_begins_with_the_first():
    finder = StepFinder()
    found = boundaries(finder, [(CALL, "encoder"), *[(CALL, "decoder")] * 3] * 3)
    assert [i for i in found if i > 3] == [4, 8] and "2 outermost modules" in finder.words()


@pytest.mark.parametrize("rounds", [20, 400])
def test_a_model_and_its_criterion_make_one_step(rounds):
    """In a training without an optimizer no boundary was found, because the criterion had come less often at each call
    of the model; and beyond 512 signals every optimizer of several closed a step."""
    signals = [(CALL, "model"), (CALL, "criterion")] * rounds
    assert boundaries(StepFinder(), signals) == list(range(0, 2 * rounds, 2))
    finder = StepFinder()
    assert boundaries(finder, [(OPTIMIZER, "D"), (OPTIMIZER, "G")] * rounds)[1:] == list(range(1, 2 * rounds, 2))
    assert finder.words() == "a step is one round of the 2 optimizers"


def test_a_module_that_was_called_once_in_the_beginning_makes_no_steps():
    finder = StepFinder()
    found = boundaries(finder, [(CALL, "transform"), *[(CALL, "model"), (CALL, "criterion")] * 20])
    assert found[-10:] == list(range(21, 41, 2)) and "2 outermost modules" in finder.words()


def test_replays_alone_become_the_steps_although_an_optimizer_stepped_before():
    finder = StepFinder()
    boundaries(finder, [(CALL, "model"), (OPTIMIZER, "adam")] * 3)
    assert boundaries(finder, [(REPLAY, "graph")] * 6) == [3, 4, 5] and finder.kind == REPLAY


def test_replays_inside_optimizer_steps_are_none():
    finder = StepFinder()
    found = boundaries(finder, [(REPLAY, "forward"), (REPLAY, "backward"), (OPTIMIZER, "adam")] * 3)
    assert [i for i in found if i > 2] == [5, 8] and finder.kind == OPTIMIZER


def test_calls_count_once_it_is_clear_that_no_optimizer_will_step():
    now = [100.0]
    finder = StepFinder(lambda: True, clock=lambda: now[0])
    boundaries(finder, [(CALL, "model")] * 10)
    now[0] += 60
    assert not finder.ready()
    boundaries(finder, [(CALL, "model")] * 200)
    assert finder.ready() and finder.waited
    assert StepFinder(lambda: False).ready()


def test_a_rollout_of_many_quick_calls_is_not_yet_inference():
    now = [100.0]
    finder = StepFinder(lambda: True, clock=lambda: now[0])
    boundaries(finder, [(CALL, "actor"), (CALL, "critic")] * 2048)
    now[0] += 19
    assert not finder.ready() and not finder.waited
    now[0] += 2
    assert finder.ready() and finder.waited


def test_calls_before_the_first_optimizer_step_are_told_where_they_were_another_phase():
    step = [*[(CALL, "model")] * 8, (OPTIMIZER, "adam")]
    accumulating, evaluating, rolling = StepFinder(), StepFinder(), StepFinder()
    boundaries(accumulating, step * 5)
    boundaries(evaluating, [(CALL, "model")] * 100 + step * 5)
    boundaries(rolling, [(CALL, "actor")] * 256 + [(OPTIMIZER, "adam")] * 5)
    assert accumulating.phase_before()[0] == 0
    assert evaluating.phase_before() == (108, 8.0)
    assert rolling.phase_before() == (256, 0.0)


def test_marks_count_where_nothing_better_is_seen():
    finder = StepFinder()
    assert boundaries(finder, [(MARK, 0)] * 3) == [0, 1, 2] and finder.kind == MARK
    assert boundaries(finder, [(CALL, 1), (MARK, 0), (CALL, 1)]) == [0, 2]


def test_what_closes_a_step_stays_once_it_is_fixed():
    finder = StepFinder()
    boundaries(finder, [(OPTIMIZER, "D"), (OPTIMIZER, "G")] * 3)
    finder.fix()
    assert boundaries(finder, [(OPTIMIZER, "new"), (OPTIMIZER, "D"), (OPTIMIZER, "G"), (CALL, 1)]) == [2]


def test_the_next_optimizer_takes_the_place_of_an_only_one():
    """A search over rates keeps the optimizer of each trial: the steps of the second made one long step."""
    finder = StepFinder()
    boundaries(finder, [(OPTIMIZER, "first")] * 3)
    finder.fix()
    assert boundaries(finder, [(OPTIMIZER, "second")] * 4 + [(OPTIMIZER, "third")] * 2) == [0, 1, 2, 3, 4, 5]


def test_an_optimizer_that_comes_in_between_takes_no_place():
    finder = StepFinder()
    boundaries(finder, [(OPTIMIZER, "own")] * 3)
    finder.fix()
    calibrating = [(OPTIMIZER, "own"), (OPTIMIZER, "other"), (OPTIMIZER, "own")]
    boundaries(finder, calibrating)
    assert boundaries(finder, calibrating) == [0, 2]


class Nothing:
    """Compares with nothing, and has no hash."""

    __hash__ = None

    def __eq__(self, other):
        raise TypeError


def test_keys_ask_nothing_of_objects():
    one, other = Nothing(), Nothing()
    key = key_of(one)
    assert key == key_of(one) and hash(key) == hash(key_of(one)) and key != key_of(other) and not is_gone(key)
    del one
    assert is_gone(key) and key == key and key != key_of(other)


def test_two_threads_that_train_do_not_take_the_steps_from_each_other():
    """They take turns in bursts; each burst made the steps those of the other thread, and counted again."""
    owner, one, other = StepOwner(), *(SimpleNamespace(is_main=False) for _ in range(2))
    bursts = [*[one] * 3, *([other] * 6 + [one] * 6) * 5]
    assert sum(owner.takes(thread, OPTIMIZER) for thread in bursts) <= 1
    assert any(owner.takes(one, OPTIMIZER) for _ in range(200)) or owner.thread is one


def test_a_thread_takes_the_steps_from_one_that_only_tried():
    owner, main, worker = StepOwner(), SimpleNamespace(is_main=True), SimpleNamespace(is_main=False)
    assert not owner.takes(main, CALL)
    assert [owner.takes(worker, CALL) for _ in range(4)] == [False, False, False, True]
    assert owner.thread is worker


def test_threads_of_a_pool_that_answer_in_bursts_serve_together():
    """Each burst made the steps those of its thread, and nothing was recorded before the requests ended."""
    owner, one, other = StepOwner(), *(SimpleNamespace(is_main=False) for _ in range(2))
    for thread in [*[one] * 3, *[other] * 5, *([one] * 4 + [other] * 4) * 3]:
        owner.takes(thread, CALL)
    assert owner.serving
