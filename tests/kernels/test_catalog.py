"""Families in kernels/ and in a user's directories, and the messages about broken ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import perfkit.kernels
from perfkit.bench.catalog import cost_of
from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.errors import InputError, PerfkitError, RunFailed, Unavailable, UsageError
from perfkit.kernels import catalog, check, cost_model, find, load, shapes, versions
from perfkit.kernels.checking import Inputs, as_tuple
from perfkit.kernels.dtypes import TORCH_DTYPES
from perfkit.kernels.schema import Schema
from tests.support import forks

BOTH_WAYS = (
    "encoder", "embedding", "layernorm", "bias_relu", "split_heads", "merge_heads", "causal_softmax", "flash_attention",
    "gelu", "softmax", "cross_entropy", "linear_cross_entropy", "rmsnorm", "rotary", "swiglu", "swiglu_amax",
    "linear_gelu",
    *(f"multiply_add_{name}" for name in ("relu", "sigmoid", "gelu", "silu")),
)  # fmt: skip
ALONE = (
    "bias_gradient", "gelu_bias_backward", "split_heads_bias_backward",
    "residual_forward", "residual_layernorm_forward", "residual_rmsnorm_forward", "classifier",
    "adamw_step", "global_norm", "gemv", "gemv_bias", "gelu_amax_forward", "gelu_bias_amax_backward",
    "fp8_amax", "fp8_cast", "fp8_gradient_cast",
    *(f"fp8_linear_{name}" for name in ("forward", "bias_forward", "backward_input", "backward_weight")),
    *(f"linear_{name}" for name in ("forward", "bias_forward", "backward_input", "backward_weight")),
    *(f"decode_{name}" for name in ("qkv", "attention", "sum", "swiglu", "head", "token")),
)  # fmt: skip
FOUND = {f"perfkit::{name}_{direction}" for name in BOTH_WAYS for direction in ("forward", "backward")}
FOUND |= {f"perfkit::{name}" for name in ALONE}

FAMILY = """
from perfkit.cost.model import Cost
from perfkit.kernels import Family, Implementation, Operation

FAMILY = Family(
    name="{name}", text="", legend={{}},
    operations=(
        Operation(
            name="{operation}", category="elementwise", schema="{schema}", formula="", shapes={shapes}, parts={parts},
            reference=lambda x: x + 1, scalars=lambda x: (x.numel(),),
            inputs=lambda make, N: (make.normal(N),), cases=({{"N": 5}},), cost=lambda call: Cost(),
            implementations=(Implementation(1, "{language}", "{name}.c", "{name}", "a loop"),),
        ),
    ),
)
"""
SOURCE = """
#include <perfkit/vector.h>
int {name}(const scalar *x, scalar *y, int64_t n) {{
    for (int64_t i = 0; i < n; i++) put(y + i, get(x + i) + {added});
    return KERNEL_DONE;
}}
"""


def write_family(directory: Path, name: str, added: str = "1.0f", **changed: str) -> Path:
    """A family with one operation, y = x + `added`; its reference adds 1. Returns `directory`."""
    fields = {"operation": f"{name}_op", "schema": "(Tensor x) -> (Tensor y)", "language": "c"}
    fields |= {"shapes": '{"x": "...", "y": "..."}', "parts": "{}"}
    folder = directory / name
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text(FAMILY.format(name=name, **{**fields, **changed}))
    (folder / f"{name}.c").write_text(SOURCE.format(name=name, added=added))
    return directory


def test_the_built_in_families_are_found_without_torch() -> None:
    program = (
        "import sys, perfkit.kernels as k\n"
        "print(*sorted(o.qualified_name for f in k.catalog() for o in f.operations), k.unavailable('mps'))\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()[: len(FOUND)]) == FOUND
    assert "no versions for mps" in done.stdout


def test_every_operation_is_fully_described() -> None:
    for family in catalog():
        assert family.text
        assert (family.folder / f"{family.name}.py").is_file()
        for operation in family.operations:
            assert operation.formula
            versions = [i.version for i in operation.implementations if i.language == "c"]
            assert versions == list(range(1, len(versions) + 1))
            assert all(i.text for i in operation.implementations)


def test_kernels_that_share_a_cost_are_functions_of_a_source() -> None:
    shared = {o.name: o for family in catalog() for o in family.operations if o.parts}
    assert "flash_attention_backward" in shared
    for operation in shared.values():
        sources = "".join(operation.source_path(i).read_text() for i in operation.implementations)
        assert all(f"def {kernel}(" in sources or f" {kernel}(" in sources for kernel in operation.parts)


def test_sources_and_functions_are_named_after_family_and_operation() -> None:
    named = {(i.language, i.version): (i.source, i.symbol) for i in find("softmax_forward").implementations}
    assert named["c", 1] == ("softmax.c", "softmax_forward_v1")
    assert named["cuda", 3] == ("softmax.cu", "softmax_forward_v3")
    assert named["triton", 1] == ("softmax_triton.py", "softmax_forward")
    first, *_ = versions(c=("a loop", "threads"), source="other", accumulates={"c": (2,)})
    assert (first.source, first.text, first.accumulates) == ("other.c", "a loop", False)


def spec(*shape: int, dtype: str = "fp32") -> TensorSpec:
    return TensorSpec(shape, dtype)


@pytest.mark.parametrize(
    ("name", "arguments", "flop", "read", "written"),
    [
        ("gelu_forward", (spec(10, 4),), 360, 160, 160),
        ("gelu_backward", (spec(10, 4, dtype="bf16"), spec(10, 4, dtype="bf16")), 720, 160, 80),
        ("gelu_bias_backward", (spec(10, 4, dtype="bf16"), spec(10, 4, dtype="bf16")), 760, 160, 88),
        ("encoder_forward", (spec(2, 3, dtype="int64"), spec(50, 8), spec(9, 8)), 48, 48 + 4 * 8 * (6 + 3), 4 * 48),
        ("encoder_backward", (spec(2, 3, 8), spec(2, 3, dtype="int64"), 50, 9), 96, 4 * 48 + 48, 4 * 8 * 59),
        # Added to dwte, of which six tokens can name six rows; then to both results.
        ("encoder_backward", (spec(2, 3, 8), spec(2, 3, dtype="int64"), 50, 9, 1), 96, 4 * 96 + 48, 4 * 8 * 15),
        ("encoder_backward", (spec(2, 3, 8), spec(2, 3, dtype="int64"), 5, 9, 3), 96, 4 * 112 + 48, 4 * 8 * 8),
        ("embedding_forward", (spec(2, 3, dtype="int64"), spec(50, 8)), 0, 48 + 4 * 48, 4 * 48),
        ("embedding_backward", (spec(2, 3, 8), spec(2, 3, dtype="int64"), 50), 48, 4 * 48 + 48, 4 * 8 * 50),
        ("embedding_backward", (spec(2, 3, 8), spec(2, 3, dtype="int64"), 50, 1), 48, 4 * 96 + 48, 4 * 48),
        ("bias_gradient", (spec(5, 8),), 40, 160, 32),
        ("bias_gradient", (spec(5, 8), 1), 40, 192, 32),
        ("bias_relu_forward", (spec(5, 8), spec(8)), 80, 4 * 48, 160),
        ("bias_relu_backward", (spec(5, 8), spec(5, 8)), 40, 320, 160),
        ("residual_forward", (spec(5, 8), spec(5, 8)), 40, 320, 160),
        (
            "residual_layernorm_forward",
            (spec(5, 8), spec(5, 8), spec(8), spec(8), 1e-5),
            8 * 40 + 25, 4 * (80 + 16), 4 * 80 + 8 * 5,
        ),
        ("rmsnorm_forward", (spec(5, 8), spec(8), 1e-5), 4 * 40 + 20, 4 * 48, 160 + 4 * 5),
        ("residual_rmsnorm_forward", (spec(5, 8), spec(5, 8), spec(8), 1e-5), 200 + 20, 4 * 88, 320 + 4 * 5),
        ("rmsnorm_backward", (spec(5, 8), spec(5, 8), spec(8), spec(5)), 9 * 40 + 5, 4 * 93, 160 + 32),
        ("rmsnorm_backward", (spec(5, 8), spec(5, 8), spec(8), spec(5), 3), 9 * 40 + 5, 4 * 141, 160 + 32),
        ("swiglu_forward", (spec(5, 8), spec(5, 8)), 200, 320, 160),
        ("swiglu_backward", (spec(5, 8), spec(5, 8), spec(5, 8)), 440, 480, 320),
        ("swiglu_amax_forward", (spec(5, 8), spec(5, 8), spec()), 200 + 80, 320 + 4, 160 + 4),
        ("swiglu_amax_backward", (*[spec(5, 8)] * 3, spec(), spec()), 440 + 160, 480 + 8, 320 + 8),
        ("gelu_amax_forward", (spec(10, 4), spec()), 360 + 80, 164, 164),
        ("gelu_bias_amax_backward", (spec(10, 4), spec(10, 4), spec()), 760 + 80, 324, 160 + 16 + 4),
        ("fp8_amax", (spec(5, 8, dtype="bf16"), spec()), 80, 84, 4),
        ("fp8_cast", (spec(5, 8, dtype="bf16"), spec()), 160, 84, 84),
        ("fp8_gradient_cast", (spec(5, 8), spec()), 160, 164, 84),
        ("rotary_forward", (spec(2, 3, 4, 8), spec(2, 3, 2, 8), spec(3, 4), spec(3, 4)), 3 * 288, 4 * 312, 4 * 288),
        ("softmax_forward", (spec(5, 8),), 200, 160, 160),
        ("softmax_backward", (spec(5, 8), spec(5, 8)), 160, 320, 160),
        ("global_norm", (spec(40),), 80, 160, 4),
        ("gemv", (spec(2, 1, 8), spec(5, 8)), 160, 4 * 56, 40),
        ("gemv_bias", (spec(2, 8), spec(5, 8), spec(5)), 160 + 10, 4 * 61, 40),
        # Two sequences of 8 channels; 4 heads of 2·2 share 2 of keys.
        (
            "decode_qkv",
            (spec(2, 8), spec(8), spec(16, 8), spec(8, 8), spec(8, 8), spec(9, 2), spec(9, 2),
             spec(1, dtype="int64"), spec(2, 2, 7, 4), spec(2, 2, 7, 4), 1e-5),
            2 * 2 * 32 * 8 + 4 * 16 + 3 * (32 + 16), 4 * (16 + 8 + 32 * 8 + 4) + 8, 4 * (32 + 2 * 16),
        ),
        ("decode_sum", (spec(2, 8), spec(5, 8), spec(2, 5)), 160 + 10, 4 * (16 + 40 + 10), 40),
        ("decode_swiglu", (spec(2, 8), spec(8), spec(5, 8), spec(5, 8), 1e-5), 320 + 50 + 64, 4 * (16 + 8 + 80), 40),
        ("decode_head", (spec(2, 8), spec(8), spec(5, 8), 1e-5), 160 + 64, 4 * (16 + 8 + 40), 40),
        ("decode_token", (spec(2, 5),), 10, 40, 16),
        ("adamw_step", (spec(40), spec(40), spec(40), spec(40), *(0.1,) * 5, 1, 1.0), 600, 640, 480),
        ("classifier", (spec(3, 8), spec(3, dtype="int64"), 1.0, 7, -1), 7 * 21 + 15, 84 + 24, 96 + 12),
        ("multiply_add_relu_forward", (spec(5, 8), spec(5, 8), 0.5, spec(8)), 160, 4 * 88, 160),
        ("multiply_add_relu_backward", (spec(5, 8), spec(5, 8), 0.5), 120, 320, 320),
        ("multiply_add_silu_backward", (spec(5, 8), spec(5, 8), spec(5, 8), spec(8), 0.5), 480, 4 * 128, 320),
        ("split_heads_forward", (spec(2, 3, 12), 2), 0, 288, 288),
        ("split_heads_bias_backward", (spec(2, 2, 3, 2),) * 3, 72, 288, 288 + 48),
        ("merge_heads_backward", (spec(2, 3, 12), 2), 0, 288, 288),
        # 2 matrices of 4 × 4, 10 elements each on and below the diagonal.
        ("causal_softmax_forward", (spec(1, 2, 4, 4), 0.5), 6 * 20, 4 * 20, 4 * 32),
        ("causal_softmax_backward", (spec(1, 2, 4, 4), spec(1, 2, 4, 4), 0.5), 5 * 20, 4 * 40, 4 * 32),
        ("layernorm_forward", (spec(5, 8), spec(8), spec(8), 1e-5), 7 * 40 + 25, 4 * 56, 4 * 40 + 8 * 5),
        (
            "layernorm_backward",
            (spec(5, 8), spec(5, 8), spec(8), spec(5), spec(5)),
            13 * 40 + 10, 4 * (80 + 8 + 10), 4 * (40 + 16),
        ),
        (  # added to dx and dbias
            "layernorm_backward",
            (spec(5, 8), spec(5, 8), spec(8), spec(5), spec(5), 0b101),
            13 * 40 + 10, 4 * (80 + 8 + 10 + 48), 4 * (40 + 16),
        ),
        ("cross_entropy_forward", (spec(3, 8), spec(3, dtype="int64"), 7, -1), 4 * 21 + 13, 4 * 21 + 24, 4 + 12),
        (  # 3 rows of 4 channels, a vocabulary of 7 padded to 8
            "linear_cross_entropy_forward",
            (spec(3, 4), spec(8, 4), spec(3, dtype="int64"), 7, -1),
            6 * 84 + 7 * 21 + 15, 48 + 112 + 24, 48 + 128 + 8,
        ),
        ("linear_cross_entropy_backward", (spec(), spec(3, 4), spec(8, 4), spec()), 45, 4 + 48 + 128 + 4, 176),
        (
            "cross_entropy_backward",
            (spec(), spec(3, 8), spec(3, dtype="int64"), spec(3), 7, -1),
            3 * 21 + 4, 4 + 84 + 24 + 12, 96,
        ),
    ],
)  # fmt: skip
def test_costs_by_hand(name: str, arguments: tuple, flop: int, read: int, written: int) -> None:
    cost = cost_model().cost(Call(f"perfkit::{name}", arguments))
    assert cost is not None
    assert (cost.total_flop, cost.bytes_read, cost.bytes_written) == (flop, read, written)
    vector = {"vector_bf16" if arguments[0].dtype == "bf16" else "vector_fp32"}
    assert set(cost.flop) - {"matrix_fp32"} == (set() if name == "gemv" else vector)


def test_no_shape_tells_how_many_positions_count() -> None:
    cache = spec(2, 2, 7, 4)
    call = Call("perfkit::decode_attention", (spec(2, 4, 4), cache, cache, spec(1, dtype="int64"), 0.5))
    assert cost_model().cost(call) is None


def test_a_benchmark_knows_how_many_positions_count() -> None:
    """Position 2: three keys and values of 4 numbers, for 2 sequences and 2 heads of keys; 4 query heads share them."""
    arguments = torch.ones(2, 4, 4), *[torch.ones(2, 2, 7, 4)] * 2, torch.tensor([2]), 0.5
    cost = cost_of(find("decode_attention"), arguments)
    assert cost.flop == {"matrix_fp32": 4 * 2 * 4 * 3 * 4, "vector_fp32": 6 * 2 * 4 * 3}
    assert (cost.bytes_read, cost.bytes_written) == (4 * (32 + 2 * 2 * 2 * 3 * 4) + 8, 4 * 32)


def test_find_names_what_there_is() -> None:
    assert find("perfkit::gelu_forward") == find("gelu_forward")
    with pytest.raises(
        UsageError,
        match=r"no kernel operation called gelu\..*gelu_backward, gelu_bias_amax_backward, gelu_bias_backward, gelu_",
    ):
        find("gelu")


def test_a_users_directory_is_found_checked_and_loaded(tmp_path: Path) -> None:
    directory = write_family(tmp_path, "plus")
    assert cost_model([directory]).cost(Call("perfkit::plus_op", (spec(5),))) == Cost()
    check("plus_op", extra_dirs=[directory])[0].require()
    assert "perfkit::plus_op" in load([directory])
    assert torch.equal(torch.ops.perfkit.plus_op(torch.zeros(3)), torch.ones(3))
    assert torch.ops.perfkit.plus_op(torch.zeros(3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_wrong_kernel_is_found_out(tmp_path: Path) -> None:
    directory = write_family(tmp_path, "wrong", added="1.001f")
    (result,) = check("wrong_op", extra_dirs=[directory])
    assert not result.ok
    with pytest.raises(PerfkitError, match=r"perfkit::wrong_op version 1 in fp32 .* is wrong: y"):
        result.require()


def test_a_number_next_to_0_by_chance_makes_no_kernel_wrong(tmp_path: Path) -> None:
    """A number is held to what such numbers are in many draws: of 300 right ones none fails, and of 100 wrong ones all.

    Where GELU has hardly a slope, rounding alone is left of it: 1 of 8 draws was called wrong.
    """
    one = {"N": 1, "M": 1}
    assert all(check("gelu_bias_backward", 1, sizes=one, seed=seed)[0].ok for seed in range(300))
    directory = write_family(tmp_path, "wrong_one", added="1.001f")
    wrong = [check("wrong_one_op", extra_dirs=[directory], sizes={"N": 1}, seed=seed)[0] for seed in range(100)]
    assert not any(result.ok for result in wrong)


def test_a_kernel_that_forgets_elements_is_found_out(tmp_path: Path) -> None:
    """Outputs that it does not write are poisoned, even where the right value is 0."""
    directory = write_family(tmp_path, "forgets")
    source = directory / "forgets" / "forgets.c"
    source.write_text(source.read_text().replace("i < n", "i < n - 1"))
    (result,) = check("forgets_op", extra_dirs=[directory], inputs=(torch.full((5,), -1.0),))
    assert not result.ok


def test_a_users_version_of_a_built_in_operation_replaces_it(tmp_path: Path) -> None:
    """In a process of its own, since it stays until the process ends."""
    folder = tmp_path / "mine"
    write_family(folder, "quick", operation="gelu_forward")
    program = (
        "import torch, perfkit.kernels as k\n"
        "k.load()\n"
        f"k.load([{str(folder)!r}])\n"
        "k.load()\n"
        "print(torch.ops.perfkit.gelu_forward(torch.zeros(2)).tolist())\n"
        f"print(sum(o.name == 'gelu_forward' for f in k.catalog([{str(folder)!r}]) for o in f.operations))"
    )
    done = forks.run([sys.executable, "-c", program])
    assert done.stdout.split() == ["[1.0,", "1.0]", "1"], done.stderr


def test_a_replacement_with_another_schema_is_refused(tmp_path: Path) -> None:
    write_family(tmp_path, "quick", operation="gelu_forward", schema="(Tensor x, int n) -> (Tensor y)")
    with pytest.raises(InputError, match=r"declares gelu_forward\(Tensor x, int n\).*Give the operation another name"):
        catalog([tmp_path])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"schema": "Tensor x -> Tensor"}, "schema of the operation broken_op cannot be read"),
        ({"schema": "(Tensor x) -> (int y)"}, "schema of the operation broken_op cannot be read"),
        ({"schema": "(Tensor x) -> Tensor"}, "every argument and output named"),
        ({"shapes": '{"x": "..."}'}, "broken_op gives no shape for y"),
        ({"parts": '{"one": 0.5, "two": 0.4}'}, "the parts of broken_op do not add up to 1"),
    ],
)
def test_a_broken_declaration_is_named(tmp_path: Path, changed: dict[str, str], sentence: str) -> None:
    write_family(tmp_path, "broken", **changed)
    with pytest.raises(InputError, match=sentence):
        catalog([tmp_path])


def test_an_unknown_language_is_named(tmp_path: Path) -> None:
    write_family(tmp_path, "foreign", language="fortran")
    with pytest.raises(InputError, match=r"foreign.c is written in 'fortran', which perfkit does not know"):
        load([tmp_path])


def test_directories_and_files_that_are_no_families_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a directory of kernels"):
        catalog([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="holds no kernel family"):
        catalog([tmp_path])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "empty.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="sets no FAMILY"):
        catalog([tmp_path])
    (tmp_path / "empty" / "empty.py").unlink()
    write_family(tmp_path, "bare")
    (tmp_path / "bare" / "bare.c").unlink()
    with pytest.raises(InputError, match=r"bare_op names bare.c, which is missing"):
        catalog([tmp_path])


def test_a_symbol_that_is_not_in_the_source_is_named(tmp_path: Path) -> None:
    directory = write_family(tmp_path, "misnamed")
    source = directory / "misnamed" / "misnamed.c"
    source.write_text(source.read_text().replace("int misnamed(", "int other("))
    with pytest.raises(RunFailed, match=r"misnamed\.c defines no function called misnamed"):
        check("misnamed_op", extra_dirs=[directory])


def test_schemas() -> None:
    schema = Schema.parse("op", "(Tensor x, int n, float eps) -> (Tensor y, Tensor z)")
    assert schema == Schema(("x", "n", "eps"), ("Tensor", "int", "float"), ("y", "z"))
    assert Schema.parse("op", "() -> Tensor y").outputs == ("y",)


def test_shapes_by_letters() -> None:
    legends = {"x": "B T 3C", "w": "C", "y": "... C", "n": "", "k": "2 C"}
    assert shapes.mismatch(legends, {"x": (2, 5, 12), "w": (4,), "y": (7, 8, 4), "n": (), "k": (2, 4)}) is None
    assert "x has shape (2, 5, 13)" in str(shapes.mismatch(legends, {"x": (2, 5, 13)}))
    assert "w has shape (5,)" in str(shapes.mismatch(legends, {"x": (2, 5, 12), "w": (5,)}))
    assert "n has shape (1,)" in str(shapes.mismatch(legends, {"n": (1,)}))
    assert "k has shape (3, 4)" in str(shapes.mismatch(legends, {"k": (3, 4)}))
    assert shapes.mismatch({"a": "... C", "b": "..."}, {"a": (2, 3, 4), "b": (2, 3)}) is None
    assert "b has shape (3, 2)" in str(shapes.mismatch({"a": "... C", "b": "..."}, {"a": (2, 3, 4), "b": (3, 2)}))


def test_unavailable_says_nothing_where_kernels_run() -> None:
    assert perfkit.kernels.unavailable("cpu") is None
    assert "no versions for mps" in str(perfkit.kernels.unavailable("mps:0"))


def test_without_torch_the_catalog_is_there_and_loading_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfkit.kernels.importlib.util, "find_spec", lambda name: None)
    assert catalog()
    assert "PyTorch is not installed" in str(perfkit.kernels.unavailable())
    for name in ("load", "check", "bind", "direct"):
        with pytest.raises(Unavailable, match="PyTorch is not installed"):
            getattr(perfkit.kernels, name)


def test_outputs_are_allocated_by_their_letters():
    found = shapes.letters_of({"x": "... 3C", "w": "T C"}, {"x": (2, 5, 12), "w": (7, 4)})
    assert found == {"...": (2, 5), "C": 4, "T": 7}
    assert shapes.sized("... 2C 8 T", found) == (2, 5, 8, 8, 7)
    assert shapes.sized("", found) == ()
    with pytest.raises(KeyError):
        shapes.sized("C V", found)


@pytest.mark.parametrize("operation", [o for f in catalog() for o in f.operations], ids=lambda o: o.name)
def test_what_is_allocated_has_the_shapes_and_types_that_the_reference_gives(operation):
    exact, arguments = (operation.inputs(Inputs(dtype, 0), **operation.cases[-1]) for dtype in ("fp32", "bf16"))
    expected = as_tuple(operation.reference(*exact))[len(operation.signature.mutated) :]
    made = as_tuple(operation.allocate(*arguments))
    assert [o.shape for o in made] == [e.shape for e in expected]
    assert [o.dtype for o in made] == [
        TORCH_DTYPES[operation.dtypes.get(name, "bf16")] for name in operation.signature.outputs
    ]


class Elsewhere(Inputs):
    """Inputs on a device that is not the CPU: they have shapes and no numbers."""

    def normal(self, *shape, scale=1.0, mean=0.0):
        return torch.empty(shape, dtype=self.dtype, device="meta")

    def integers(self, low, high, *shape):
        return torch.empty(shape, dtype=torch.int64, device="meta")


@pytest.mark.parametrize("operation", [o for f in catalog() for o in f.operations], ids=lambda o: o.name)
def test_inputs_of_checks_lie_on_one_device(operation):
    """Tensors that an operation adds to the drawn numbers are on the same device: checks on a GPU draw there."""
    arguments = operation.inputs(Elsewhere("fp32", 0), **operation.cases[-1])
    assert {a.device.type for a in arguments if isinstance(a, torch.Tensor)} == {"meta"}
