"""The work of Triton kernels from their TTIR, against counts by hand.

The files of tests/fixtures/ttir are what Triton 3.7 made of kernels like those of its tutorials, and of one of
liger-kernel 0.8.5, without locations.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.capture.agent.recording import own_costs
from perfkit.capture.agent.recording.triton_launches import TritonLaunches
from perfkit.cost import TensorSpec as T
from perfkit.cost import own
from perfkit.cost.ttir import UnknownWork, ttir_cost

FOLDER = Path(__file__).parent.parent / "fixtures" / "ttir"
R, N, C = 4096, 1024, 4096
M, K = 512, 256
H, S, D = 16, 4096, 64
B, V = 64, 32_768
X, Q = T((R, N), "fp32"), T((H, S, D), "fp16")
W = T((N,), "fp32")
HEADS = T((128, 8, 64), "fp32")
ANGLES = T((128, 32), "fp32")
ROPE = {"x": HEADS, "cos": ANGLES, "sin": ANGLES, "y": HEADS, "H": 8}


def text(name: str) -> str:
    return (FOLDER / f"{name}.ttir").read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "grid", "flop", "read", "written"),
    [
        # Subtract, exp, divide, and the maximum and the sum of each row.
        ("softmax", {"x": X, "y": X, "stride": N, "n": N}, (R,), {"vector_fp32": 5 * R * N}, X.nbytes, X.nbytes),
        # Sum, subtract, square, sum, and three to normalise, scale and shift.
        ("layernorm", {"x": X, "y": X, "w": W, "b": W, "n": N, "eps": 1e-5}, (R,), {"vector_fp32": 7 * R * N},
         X.nbytes + 2 * W.nbytes, X.nbytes),
        ("matmul", {"a": T((M, K), "fp16"), "b": T((K, N), "fp16"), "c": T((M, N), "fp16"), "M": M, "N": N, "K": K},
         (8, 8), {"matrix_fp16": 2 * M * N * K}, 2 * (M * K + K * N), 2 * M * N),
        ("attention", {"q": Q, "k": Q, "v": Q, "o": Q, "T": S, "scale": 0.1}, (S // 64, H),
         {"matrix_fp16": 4 * H * S * S * D, "vector_fp32": 6 * H * S * S}, 3 * Q.nbytes, Q.nbytes),
        # Half of it, and the whole tiles of 64 on the diagonal.
        ("causal", {"q": Q, "k": Q, "v": Q, "o": Q, "T": S, "scale": 0.1}, (S // 64, H),
         {"matrix_fp16": 2 * H * S * (S + 64) * D, "vector_fp32": 3 * H * S * (S + 64)}, 3 * Q.nbytes, Q.nbytes),
        ("rope", ROPE, (128, 8),
         {"vector_fp32": 3 * HEADS.numel}, HEADS.nbytes + 2 * ANGLES.nbytes, HEADS.nbytes),
        # Maximum, subtract, exp and sum of each logit.
        ("cross_entropy", {"x": T((B, V), "bf16"), "target": T((B,), "int64"), "loss": W, "stride": V, "V": V}, (B,),
         {"vector_fp32": 4 * B * V}, 2 * B * V + 8 * B, 4 * B),
        # The same in a loop, with an early return for padding, and the gradient in place: subtract, exp, divide, twice
        # divide by the tokens, and subtract one. Values of the loops beside each other have the same names.
        ("early_return", {"X": T((B, V), "bf16"), "Y": T((B,), "int64"), "loss_ptr": T((B,), "fp32"), "xs": V,
         "n_cols": V, "n_non_ignore": B, "ignore_index": -100}, (B,),
         {"vector_fp32": 10 * B * V}, 2 * B * V + 8 * B, 2 * B * V + 4 * B),
        # The tutorial's gradient of a layer norm: 11 FLOP an element, and two sums of a group's rows under a lock, for
        # which programs wait in a loop.
        ("lock", {"DX": T((R, C), "fp16"), "DY": T((R, C), "fp16"), "X": T((R, C), "fp16"), "DW": T((64, C), "fp16"),
         "DB": T((64, C), "fp16"), "W": T((C,), "fp16"), "Mean": T((R,), "fp32"), "Rstd": T((R,), "fp32"),
         "Lock": T((128,), "int32"), "stride": C, "N": C}, (R,),
         {"vector_fp32": 11 * R * C + 2 * (R - 64) * C}, 4 * R * C + 4 * 64 * C + 2 * C + 8 * R + 512,
         2 * R * C + 4 * 64 * C + 512),
        # Liger's gradient of an RMS norm: 132 programs of at most 32 rows, of which the last four have none.
        ("rows_in_blocks", {"dY_ptr": T((R, C), "bf16"), "dX_ptr": T((R, C), "bf16"), "X_ptr": T((R, C), "bf16"),
         "W_ptr": T((C,), "bf16"), "RSTD_ptr": T((R,), "fp32"), "dW_ptr": T((132, C), "fp32"), "dY_row_stride": C,
         "dX_row_stride": C, "X_row_stride": C, "dW_row_stride": C, "n_rows": R, "n_cols": C, "offset": 0.0,
         "rows_per_program": 32}, (132,), {"vector_fp32": 9 * R * C + 132 * C, "vector_bf16": R * C},
         4 * R * C + 2 * C + 4 * R, 2 * R * C + 4 * 132 * C),
    ],
)  # fmt: skip
def test_counts_by_hand(
    name: str, arguments: dict[str, Any], grid: tuple[int, ...], flop: dict[str, float], read: int, written: int
) -> None:
    cost = ttir_cost(text(name), arguments, grid)
    assert cost.flop == pytest.approx(flop, rel=0.05)
    assert cost.bytes_read == pytest.approx(read, rel=0.001) and cost.bytes_written == written


def test_what_the_launch_does_not_say_is_unknown() -> None:
    q = {"q": Q, "k": Q, "v": Q, "o": Q, "scale": 0.1}
    with pytest.raises(UnknownWork, match="%T is not known"):
        ttir_cost(text("attention"), q, (64, H))
    with pytest.raises(UnknownWork, match="tensor of %"):
        ttir_cost(text("attention"), {**q, "q": None, "T": S}, (64, H))  # type: ignore[dict-item]
    loop = "scf.while : () -> () {\n      LINE\n      scf.condition(%c)\n    } do {\n      scf.yield\n    }"
    read = loop.replace("LINE", "%v = tt.load %x : tensor<64x!tt.ptr<f32>>")
    more = loop.replace("LINE", "%v = math.exp %x : tensor<64xf32>")
    for unknown in (read, more, "tt.call @noinline(%x) : (!tt.ptr<f32>) -> ()"):
        with pytest.raises(UnknownWork, match=unknown.split()[0]):
            ttir_cost(text("rope").replace("    tt.return", f"    {unknown}\n    tt.return"), ROPE, (128, 8))
    turns = "    cf.cond_br %c, ^bb1, ^bb2\n  ^bb1:\n    cf.br ^bb1\n  ^bb2:\n    tt.return"
    with pytest.raises(UnknownWork, match="loop of branches"):
        ttir_cost(text("rope").replace("    tt.return", turns), ROPE, (128, 8))
    with pytest.raises(UnknownWork, match="no function"):
        ttir_cost("module {\n}", {}, (1,))


IF = """    %k = arith.constant 64 : i32
    %if = arith.cmpi slt, CONDITION, %k : i32
    %s:2 = scf.if %if -> (f32, f32) {
      %e = math.exp %v : tensor<4096xf32>
      scf.yield %f, %f : f32, f32
    } else {
      %e = arith.mulf %v, %v : tensor<1024xf32>
      scf.yield %f, %f : f32, f32
    }
    tt.return"""


@pytest.mark.parametrize(
    ("condition", "more"),
    [("%t", 64 * 4096 * 8 + 64 * 1024 * 8), ("%H", 128 * 4096 * 8), ("%data", 128 * 4096 * 8)],
)
def test_a_branch_counts_where_it_is_taken(condition: str, more: int) -> None:
    """Half of the programs take it, or all; of one that depends on data the side with more work counts."""
    made = ttir_cost(text("rope").replace("    tt.return", IF.replace("CONDITION", condition)), ROPE, (128, 8))
    assert made.flop == {"vector_fp32": 3 * HEADS.numel + more}


KERNEL = SimpleNamespace(
    metadata=SimpleNamespace(name="softmax", num_warps=4), asm={"ttir": (FOLDER / "softmax.ttir").read_text()}, args=()
)


class Launcher:
    """What perfkit knows of Triton's JITFunction."""

    def __init__(self) -> None:
        def softmax(x: Any, y: Any, stride: int, n: int, B: int) -> None: ...

        self.fn = softmax

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        KERNEL.args = args
        return KERNEL


class Tensor:
    """What perfkit knows of a tensor."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.dtype = shape, "torch.float32"


def test_launches_are_noted_while_steps_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "triton.runtime.jit", SimpleNamespace(JITFunction=Launcher))
    plain, launches, function = Launcher.run, TritonLaunches(), Launcher()
    launches.begin()
    for rows in (R, R, 2 * R):
        x = Tensor(rows, N)
        kernel = function.run(x, x, N, n=N, B=1024, grid=lambda named: (named["x"].shape[0],), warmup=False)
        assert kernel.args == (x, x, N)
    function.run(Tensor(7, N), Tensor(7, N), N, n=N, B=1024, grid=(7,), warmup=True)
    launches.end()
    assert Launcher.run is plain
    found = launches.costs()
    assert [(name, launch["grid"]) for name, launch, _ in found] == [("softmax", [R, 1, 1]), ("softmax", [2 * R, 1, 1])]
    functions, problems = own.of_recorded(found, own_costs.call_of)
    call = own_costs.call_of("softmax", {"grid": [R, 1, 1], "block": [128, 1, 1]})
    assert own.own_cost(functions["softmax"], call).bytes == 2 * X.nbytes and not problems
    # Two launches that a trace does not distinguish have no work.
    found.append(["softmax", found[0][1], [{}, 1.0, 1.0]])
    functions, problems = own.of_recorded(found, own_costs.call_of)
    with pytest.raises(own.WrongCost):
        own.own_cost(functions["softmax"], call)
    assert "launches of one grid" in problems["softmax"]
