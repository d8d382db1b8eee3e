"""Triton kernels under Triton's interpreter, on the CPU, against the fp64 reference; and how they are launched.

Triton reads TRITON_INTERPRET when it is imported, so the kernels run in processes of their own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from perfkit.errors import RunFailed, Unavailable
from perfkit.kernels import catalog, check, find, selection
from perfkit.kernels.languages import LANGUAGES
from perfkit.kernels.selection import WantedVersion
from perfkit.kernels.triton import TritonLaunch, availability, binding, launch, row_tile, unavailable
from tests.support.sweeps import rest

OPERATIONS = [
    o for family in catalog() for o in family.operations if any(i.language == "triton" for i in o.implementations)
]
# In `make test`, of their large cases too; all others in `make test-full`.
A_FEW = {"adamw_step", "classifier", "flash_attention_backward", "gelu_forward", "layernorm_backward"}
ADDS = [o.name for o in OPERATIONS for i in o.implementations if i.language == "triton" and i.accumulates]
LARGE = {"cross_entropy_forward", "global_norm", "layernorm_backward"}
SMALL = 20_000  # a case's sizes, multiplied: the interpreter walks through every program of the grid

# In addition to the catalog's cases: rows of several blocks, a block that two rows share, heads off a power of two.
MORE = {
    "causal_softmax": [{"B": 1, "NH": 1, "T": 70}],
    "classifier": [{"N": 3, "V": 4201, "Vp": 4203}, {"N": 2, "V": 70, "Vp": 300}, {"N": 1, "V": 1, "Vp": 1}],
    "cross_entropy": [{"N": 3, "V": 8201}, {"N": 1, "V": 1}, {"N": 16, "V": 64}],
    "flash_attention": [
        {"B": 1, "NH": 6, "NKV": 2, "T": 65, "HS": 24},
        {"B": 2, "NH": 1, "NKV": 1, "T": 40, "HS": 128},
        {"B": 1, "NH": 2, "NKV": 1, "T": 129, "HS": 80},
    ],
    "layernorm": [{"B": 1, "T": 3, "C": 1030}],
    "residual_layernorm": [{"B": 1, "T": 3, "C": 1030}],
    "softmax": [{"N": 2, "M": 8201}, {"N": 16, "M": 8208}],
    "global_norm": [{"N": 20_011}],
    "bias_gradient": [{"N": 70, "M": 70}],
}


def cases(name: str) -> list[dict[str, int]]:
    small = [dict(case) for case in find(name).cases if math.prod(case.values()) <= SMALL]
    return small + [case for start, more in MORE.items() if name.startswith(start) for case in more]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process that runs Triton's interpreter: one for all tests, for it imports torch and Triton."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(os.getpid).result()  # its process starts here, and keeps the variable
        yield pool


@pytest.fixture(scope="module")
def interpreter(pool: ProcessPoolExecutor) -> Callable[..., Any]:
    """Call `perfkit.kernels.check` under the interpreter."""

    def run(name: str, **arguments: Any) -> Any:
        return pool.submit(check, name, language="triton", **arguments).result()

    return run


def printed(program: str) -> str:
    """Return the output of a program that is run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {"__name__": "__main__"})
    return out.getvalue().strip()


def agrees(interpreter: Callable[..., Any], name: str, dtype: str) -> None:
    for sizes in cases(name):
        (result,) = interpreter(name, dtype=dtype, sizes=sizes, seed=len(sizes))
        result.require()
        assert result.language == "triton"


def named(few: set[str]) -> list[Any]:
    """The operations' names; those that are not among `few` are left to `make test-full`."""
    return [pytest.param(o.name, marks=[] if o.name in few else pytest.mark.full) for o in OPERATIONS]


@pytest.mark.parametrize("name", named(A_FEW | LARGE))
def test_agrees_with_the_reference(interpreter: Callable[..., Any], name: str) -> None:
    agrees(interpreter, name, "fp32")


@pytest.mark.parametrize("name", named(A_FEW - {"flash_attention_backward"}))
def test_agrees_with_the_reference_in_bf16(interpreter: Callable[..., Any], name: str) -> None:
    agrees(interpreter, name, "bf16")


@pytest.mark.parametrize("name", ADDS)
def test_adds_to_what_is_there(pool: ProcessPoolExecutor, name: str) -> None:
    """Every output at once, each holding 1 before; on the third case, whose sums go over several blocks."""
    program = (
        "import torch\n"
        "from perfkit.kernels import bind, find, use_version\n"
        "from perfkit.kernels.checking import Inputs, as_tuple, largest_error, to_fp64\n"
        f"o = find('{name}')\n"
        "a = o.inputs(Inputs('fp32', 1), **o.cases[2])\n"
        "outputs = [torch.ones_like(x) for x in as_tuple(o.allocate(*a))]\n"
        "with use_version(None, 'triton'):\n"
        "    bind(o, a, outputs, accumulate=o.signature.outputs)()\n"
        "expected = as_tuple(o.reference(*map(to_fp64, a)))\n"
        "print(max(largest_error(x, e + 1) for x, e in zip(outputs, expected)) <= o.tolerance['fp32'])"
    )
    assert pool.submit(printed, program).result() == "True"


@pytest.mark.slow
@pytest.mark.parametrize("name", named(LARGE))
def test_agrees_on_the_catalogs_large_cases(interpreter: Callable[..., Any], name: str) -> None:
    for case in find(name).cases:
        if math.prod(case.values()) > SMALL:
            interpreter(name, sizes=case)[0].require()


@pytest.mark.parametrize("scale", [-0.5, 0.0, 30.0])
def test_flash_attention_with_any_scale(interpreter: Callable[..., Any], scale: float) -> None:
    q, k, v = (torch.randn(1, 2, 67, 16) for _ in range(3))
    (result,) = interpreter("flash_attention_forward", inputs=(q, k, v, scale))
    # A score of a hundred keeps fp32's digits only to about 1e-5, and exp hands that on.
    assert all(e.error < (1e-3 if scale > 1 else 1e-5) for e in result.errors), result


def test_causal_softmax_of_masked_rows(interpreter: Callable[..., Any]) -> None:
    scores = torch.randn(1, 2, 40, 40) * 50
    scores[..., 5] = -math.inf
    scores[..., 5, 5] = 0.0
    scores[..., torch.ones(40, 40, dtype=torch.bool).triu(1)] = math.nan  # the future is not looked at
    (result,) = interpreter("causal_softmax_forward", inputs=(scores, 1.0))
    assert all(e.error < 2e-3 for e in result.errors), result


@pytest.mark.parametrize("ignore_index", [-1, -100, 3])
def test_cross_entropy_leaves_out_ignored_rows(interpreter: Callable[..., Any], ignore_index: int) -> None:
    logits, targets = torch.randn(9, 101) * 3, torch.randint(0, 101, (9,))
    targets[::2] = ignore_index
    lse = logits.double().logsumexp(-1).float()
    interpreter("cross_entropy_forward", inputs=(logits, targets, 101, ignore_index))[0].require()
    arguments = (torch.tensor(-0.75), logits, targets, lse, 101, ignore_index)
    interpreter("cross_entropy_backward", inputs=arguments)[0].require()
    interpreter("classifier", inputs=(logits, targets, 0.5, 101, ignore_index))[0].require()


def test_cross_entropy_of_padded_and_of_no_rows(interpreter: Callable[..., Any]) -> None:
    logits = torch.randn(3, 9001) * 500 + 2000
    logits[:, :4500] = -math.inf
    logits[1, 6000:] = -math.inf
    targets = torch.tensor([5000, 4501, 8999])
    interpreter("cross_entropy_forward", inputs=(logits, targets, 9001, -1))[0].require()
    none = torch.full((3,), -1)
    interpreter("cross_entropy_forward", inputs=(logits[:, 4500:5000], none, 500, -1))[0].require()


def test_what_a_kernel_on_a_gpu_cannot_refuse_is_nan(pool: ProcessPoolExecutor) -> None:
    """Targets and tokens outside the vocabulary: NaN in their rows alone, and no gradient into any word."""
    program = (
        "import torch\n"
        "from perfkit.kernels import find\n"
        "from perfkit.kernels.checking import poisoned_run\n"
        "run = lambda name, *arguments: poisoned_run(find(name), None, arguments, 'cpu', 'triton')\n"
        "logits, targets = torch.randn(3, 101), torch.tensor([0, 101, -1])\n"
        "loss, lse = run('cross_entropy_forward', logits, targets, 101, -1)\n"
        "(gradient,) = run('cross_entropy_backward', torch.ones(()), logits, targets, lse, 101, -1)\n"
        "classified, losses = run('classifier', logits, targets, 1.0, 101, -1)\n"
        "print(loss.isnan().item(), *(g.isnan().any(1).tolist() for g in (gradient, classified)), losses[2].item())\n"
        "x, = run('encoder_forward', torch.tensor([[0, 5, -1]]), torch.randn(5, 3), torch.randn(4, 3))\n"
        "x2, = run('embedding_forward', torch.tensor([[0, 5, -1]]), torch.randn(5, 3))\n"
        "dwte, dwpe = run('encoder_backward', torch.ones(1, 3, 2), torch.tensor([[1, 5, -1]]), 5, 4)\n"
        "assert x2.isnan().all(2).equal(x.isnan().all(2))\n"
        "print(x.isnan().all(2).tolist(), dwte.sum(1).tolist(), dwpe.sum(1).tolist())\n"
        "print(run('gelu_forward', torch.empty(0, 3))[0].shape, run('softmax_forward', torch.empty(0, 3))[0].shape)\n"
        "w = torch.ones(12)\n"
        "none, rows = torch.empty(0, 12), torch.empty(0)\n"
        "_, dw, db = run('layernorm_backward', none, none, w, rows, rows)\n"
        "print(dw.abs().sum().item(), db.abs().sum().item())"
    )
    assert pool.submit(printed, program).result().splitlines() == [
        "True [False, True, False] [False, True, False] 0.0",
        "[[False, True, True]] [0.0, 2.0, 0.0, 0.0, 0.0] [2.0, 2.0, 2.0, 0.0]",
        "torch.Size([0, 3]) torch.Size([0, 3])",
        "0.0 0.0",
    ]


@pytest.mark.parametrize("names", [sorted(A_FEW), rest([o.name for o in OPERATIONS])], ids=["few", "all"])
def test_every_operation_is_there_and_every_swept_block_size_is_right(
    pool: ProcessPoolExecutor, names: list[str]
) -> None:
    """The first, a middle and the last combination of each sweep, on a small case."""
    program = (
        "import torch\n"
        "from perfkit.kernels import find\n"
        "from perfkit.kernels.checking import Inputs, as_tuple, largest_error, to_fp64\n"
        "from perfkit.kernels.languages import language\n"
        f"for name in {names}:\n"
        "    o = find(name)\n"
        "    (i,) = [i for i in o.implementations if i.language == 'triton']\n"
        "    bound = language(i).launcher(o, i, 'fp32')\n"
        "    a = o.inputs(Inputs('fp32', 1), **o.cases[1])\n"
        "    expected = as_tuple(o.reference(*map(to_fp64, a)))\n"
        "    for parameters in bound.sweep[:: max(1, len(bound.sweep) // 2)]:\n"
        "        tensors = [x.clone() for x in a if torch.is_tensor(x)]\n"
        "        outputs = as_tuple(o.allocate(*a))\n"
        "        bound.using(**parameters)([*tensors, *outputs], i.numbers(o.scalars(*a)))\n"
        "        named = dict(zip([o.signature.inputs[j] for j in o.signature.tensors], tensors))\n"
        "        named |= dict(zip(o.signature.outputs, outputs))\n"
        "        errors = [largest_error(named[n], e) for n, e in zip(o.signature.results, expected)]\n"
        "        assert max(errors) <= o.tolerance['fp32'], (name, parameters, errors)\n"
        "print('all right')"
    )
    assert pool.submit(printed, program).result() == "all right"


# ---- choice, launch and what is said of their absence ---------------------------------------------------------------


def test_the_interpreter_is_never_chosen_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = find("gelu_forward")
    with pytest.raises(Unavailable, match="no version in triton for fp32 on cpu"):
        selection.choose(operation, "cpu", "fp32", WantedVersion(language="triton"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert selection.choose(operation, "cpu", "fp32", WantedVersion()).language == "c"
    assert selection.choose(operation, "cpu", "fp32", WantedVersion(language="triton")).language == "triton"


def test_a_version_that_declares_to_be_the_fastest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for language in ("cuda", "triton"):
        monkeypatch.setitem(LANGUAGES, language, replace(LANGUAGES[language], unavailable=lambda: None))
    operation = find("global_norm")
    choose = functools.partial(selection.choose, operation, "cuda")
    assert choose("bf16", WantedVersion()).language == "triton"
    assert choose("fp32", WantedVersion()).language == choose("bf16", WantedVersion(language="cuda")).language == "cuda"
    assert choose("bf16", WantedVersion(version=1)).language == "cuda"
    monkeypatch.setitem(LANGUAGES, "triton", replace(LANGUAGES["triton"], unavailable=lambda: "There is none."))
    assert choose("bf16", WantedVersion()).language == "cuda"


def test_why_triton_cannot_run_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        assert "finds no CUDA GPU" in str(unavailable())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET is set" in str(unavailable())
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None)
    assert "Triton is not installed" in str(unavailable())
    assert availability.test_device() is None


def test_the_interpreter_must_be_asked_for_before_triton_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton  # noqa: F401

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    operation = find("gelu_forward")
    (implementation,) = [i for i in operation.implementations if i.language == "triton"]
    with pytest.raises(Unavailable, match="set after Triton was imported"):
        binding.launcher(operation, implementation, "fp32")


def test_a_source_without_the_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_need_triton", lambda: None)
    monkeypatch.setattr(binding, "load_content_module", lambda kind, path: object())
    operation = find("gelu_forward")
    (implementation,) = [i for i in operation.implementations if i.language == "triton"]
    with pytest.raises(RunFailed, match=r"gelu_triton.py has no function called gelu_forward that is marked"):
        binding.launcher(operation, implementation, "fp32")


def test_a_launch_gets_its_parameters_from_the_rule_unless_given() -> None:
    seen: list[dict[str, int]] = []

    def rule(n: int, eps: float, itemsize: int) -> dict[str, int]:
        return {"BLOCK": 64 * itemsize, "num_warps": 4}

    @launch(rule, sweep={"BLOCK": (16, 32), "num_warps": (1, 2)})
    def kernel(x: torch.Tensor, n: int, eps: float, **meta: int) -> None:
        seen.append(meta)

    assert isinstance(kernel, TritonLaunch)
    kernel(torch.ones(3), 3, 0.5, itemsize=2)
    kernel.using(BLOCK=16)(torch.ones(3), 3, 0.5, itemsize=2)
    assert seen == [{"BLOCK": 128, "num_warps": 4}, {"BLOCK": 16, "num_warps": 4}]
    assert kernel.variants() == [{"BLOCK": b, "num_warps": w} for b in (16, 32) for w in (1, 2)]
    with pytest.raises(ValueError, match="no meta-parameter called block; there are: BLOCK, num_warps"):
        kernel.using(block=1)


def test_what_tritons_compiler_says_is_told_in_a_sentence() -> None:
    class CompilationError(Exception):
        pass

    CompilationError.__module__ = "triton.compiler.errors"

    def kernel(x: torch.Tensor, y: torch.Tensor, n: int, **meta: int) -> None:
        raise CompilationError("at 8:12:\n    y = load(x)\n        ^\nNameError('load is not defined')")

    bound = binding.BoundTritonKernel(find("gelu_forward"), TritonLaunch(kernel, lambda n, itemsize: {}), "bf16")
    sentence = r"could not run perfkit::gelu_forward in bf16: at 8:12: NameError\('load is not defined'\)\. Correct"
    with pytest.raises(RunFailed, match=sentence):
        bound([torch.ones(3), torch.ones(3)], (3,))


@pytest.mark.parametrize(
    ("columns", "tile"), [(768, (8, 256)), (3072, (2, 1024)), (100, (16, 128)), (50257, (2, 1024)), (1, (2048, 1))]
)
def test_a_tile_is_as_wide_as_divides_the_columns(columns: int, tile: tuple[int, int]) -> None:
    assert row_tile(columns, 2048) == tile
