"""A model that Thunder cannot trace: the sentence says so, and in which module."""

from __future__ import annotations

import pytest

from perfkit import backends
from perfkit.backends.thunder.backend import module_in, untraceable
from perfkit.backends.thunder.origins import ModulePaths
from perfkit.errors import RunFailed
from perfkit.workloads import find, resolve_settings

torch = pytest.importorskip("torch")
if missing := backends.get("thunder").unavailable():
    pytest.skip(missing, allow_module_level=True)

# Thunder 0.2.6's message about the models of transformers 5, once it has gone through all of their code.
SET_GLOBAL = """trying to set .global_var of ProvenanceRecord(
  i1 = PseudoInst.INPUT_FN()
  i2 = PseudoInst.LOAD_ATTR(i1, '_modules')
  i3 = PseudoInst.BINARY_SUBSCR(i2, 'model')
  i4 = PseudoInst.LOAD_ATTR(i3, '_modules')
  i5 = PseudoInst.BINARY_SUBSCR(i4, 'decoder')
  i6 = PseudoInst.LOAD_ATTR(i5, 'forward')
)to object of type dict"""


class Branches(torch.nn.Module):
    """Looks at its data before it decides; and at something that fails and is caught, before that."""

    def forward(self, x):
        try:
            self.nothing  # noqa: B018
        except AttributeError:
            x = x + 1
        return x * 2 if x.sum() > 0 else x


class Net(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), inner)

    def forward(self, x):
        return self.body(x), None


def program(inner):
    work = find("mlp")
    return backends.get("thunder").prepare(work, Net(inner), resolve_settings(work, training=False))


def test_the_module_is_named_in_which_the_trace_ended():
    with pytest.raises(RunFailed) as caught:
        program(Branches()).forward((torch.ones(2, 8),))
    assert caught.value.message == (
        "Thunder could not trace the model, in the module body.1: NotImplementedError: "
        "casting a TensorProxy to a Python boolean is not supported (data dependency)."
    )
    assert isinstance(caught.value.__cause__, NotImplementedError)


def test_the_module_is_read_from_thunder_s_account_of_a_value():
    assert module_in(SET_GLOBAL) == "model.decoder"
    assert module_in("something else") == ""
    said = untraceable(AssertionError(SET_GLOBAL), ModulePaths(Net(torch.nn.Identity()))).message
    assert said == (
        "Thunder could not trace the model, in the module model.decoder: AssertionError: "
        "trying to set .global_var of a value to object of type dict."
    )


def test_a_long_message_ends_at_a_word():
    said = untraceable(ValueError("word " * 100), ModulePaths(Net(torch.nn.Identity()))).message
    assert said.startswith("Thunder could not trace the model, in its outermost module: ValueError: word word")
    assert said.endswith("word ….") and len(said) < 300


def test_what_fails_after_the_trace_is_no_failure_to_trace():
    traced = program(torch.nn.Identity())
    traced.forward((torch.ones(2, 8),))
    with pytest.raises(ValueError, match="later"), traced._traced():
        raise ValueError("later")
