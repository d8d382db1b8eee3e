"""Each family against figures worked out by hand."""

from __future__ import annotations

import pytest

from perfkit.cost import Cost
from tests.support.cost.calls import cost, flop, t, traffic


class TestMatmul:
    def test_mm(self) -> None:
        assert cost("aten::mm", t(2, 3), t(3, 4)) == Cost({"matrix_fp32": 48.0}, 4 * (6 + 12), 4 * 8)

    def test_a_product_without_rows_reads_nothing(self) -> None:
        assert cost("aten::mm", t(0, 3), t(3, 4)) == Cost({"matrix_fp32": 0.0}, 0, 0)
        assert cost("aten::mm", t(2, 0), t(0, 4)) == Cost({"matrix_fp32": 0.0}, 0, 32)  # zeros are written

    def test_tf32_and_bf16_have_their_own_units(self) -> None:
        assert cost("aten::mm", t(2, 3), t(3, 4), precision="tf32").flop == {"matrix_tf32": 48.0}
        half = t(2, 3, dtype="bf16"), t(3, 4, dtype="bf16")
        assert cost("aten::mm", *half, precision="tf32") == Cost({"matrix_bf16": 48.0}, 2 * 18, 2 * 8)
        assert cost("aten::mm", t(2, 3, dtype="fp64"), t(3, 4, dtype="fp64")).flop == {"matrix_fp64": 48.0}

    def test_addmm_adds_its_bias_on_the_vector_units(self) -> None:
        found = cost("aten::addmm", t(4), t(2, 3), t(3, 4), 1, 1)
        assert found == Cost({"matrix_fp32": 48.0, "vector_fp32": 8.0}, 4 * (4 + 6 + 12), 32)

    def test_addmm_with_beta_zero_does_not_read_the_input(self) -> None:
        assert cost("aten::addmm", t(4), t(2, 3), t(3, 4), 0, 1) == Cost({"matrix_fp32": 48.0}, 72, 32)

    def test_addmm_scaled(self) -> None:
        assert cost("aten::addmm", t(4), t(2, 3), t(3, 4), 0.5, 2).flop["vector_fp32"] == 24

    def test_bmm_and_baddbmm(self) -> None:
        assert cost("aten::bmm", t(5, 2, 3), t(5, 3, 4)) == Cost({"matrix_fp32": 240.0}, 4 * 5 * 18, 4 * 40)
        assert cost("aten::baddbmm", t(1, 1, 1), t(5, 2, 3), t(5, 3, 4), 1, 1).flop["vector_fp32"] == 40

    def test_broadcast_factor_is_read_once(self) -> None:
        expanded = t(5, 3, 4, strides=(0, 4, 1))
        assert traffic("aten::bmm", t(5, 2, 3), expanded)[0] == 4 * (30 + 12)

    def test_linear_forms(self) -> None:
        expected = Cost({"matrix_fp32": 2.0 * 10 * 4 * 3, "vector_fp32": 40.0}, 4 * (30 + 12 + 4), 160)
        assert cost("aten::linear", t(2, 5, 3), t(4, 3), t(4)) == expected
        assert cost("mkldnn::_linear_pointwise", t(2, 5, 3), t(4, 3), t(4), None, (-1,), None) == expected
        assert cost("mkl::_mkl_linear", t(2, 5, 3), t(99, 1), t(4, 3), t(4), 10) == expected
        other = cost("mkldnn::_linear_pointwise", t(10, 3), t(10, 4), t(4, 3), t(4), None)
        assert other.flop == {"matrix_fp32": 240.0, "vector_fp32": 80.0}

    def test_vectors(self) -> None:
        assert flop("aten::mv", t(4, 6), t(6)) == 48
        assert flop("aten::dot", t(6), t(6)) == 12
        assert flop("aten::addmv", t(4), t(4, 6), t(6), 1, 1) == 52
        assert cost("aten::matmul", t(2, 1, 4, 6), t(3, 6, 5)) == Cost(
            {"matrix_fp32": 2.0 * 6 * 4 * 5 * 6}, 4 * (48 + 90), 4 * 120
        )

    def test_grouped_products(self) -> None:
        """As a mixture of experts multiplies: rows, columns, or the inner dimension belong to one of 3 experts each."""
        ends = t(3, dtype="int32")
        rows = cost("aten::_grouped_mm", t(16, 8), t(3, 8, 5), ends)
        assert rows == Cost({"matrix_fp32": 2.0 * 16 * 8 * 5}, 4 * (128 + 120) + 12, 4 * 80)
        assert flop("aten::_grouped_mm", t(3, 4, 8), t(8, 15), ends) == 2 * 4 * 8 * 15
        gradient = cost("aten::_grouped_mm", t(8, 16), t(16, 5), ends)
        assert gradient.flop == rows.flop and gradient.bytes_written == 4 * 3 * 8 * 5
        assert flop("aten::_grouped_mm", t(3, 4, 8), t(3, 8, 5), None) == 3 * 2 * 4 * 8 * 5
        a, b, one = t(16, 32, dtype="fp8"), t(3, 32, 8, dtype="fp8"), t(16)
        scaled = cost("aten::_scaled_grouped_mm", a, b, one, one, ends)
        assert scaled == Cost({"matrix_fp8": 2.0 * 16 * 32 * 8, "vector_fp32": 128.0}, 512 + 768 + 12 + 128, 2 * 128)

    def test_scaled_and_integer_products(self) -> None:
        one, a, b = t(dtype="fp32"), t(16, 32, dtype="fp8"), t(32, 8, dtype="fp8")
        assert cost("aten::_scaled_mm", a, b, one, one, None, None, 15) == Cost(
            {"matrix_fp8": 2.0 * 16 * 32 * 8, "vector_fp32": 128.0}, 512 + 256 + 8, 2 * 128
        )
        by_row = cost("aten::_scaled_mm", a, b, t(16, 1), t(1, 8), t(8, dtype="bf16"), None, 6, True)
        assert by_row == Cost({"matrix_fp8": 8192.0, "vector_fp32": 256.0}, 512 + 256 + 4 * (16 + 8) + 2 * 8, 4 * 128)
        # Scales in lists, of dtypes that a trace does not record: by rows fp32, by blocks of 32 numbers (recipe 3) fp8.
        lists = [(t(16, 1, dtype="bf16"),), (1,), (), (t(1, 8, dtype="bf16"),), (1,), ()]
        assert cost("aten::_scaled_mm_v2", a, b, *lists, None, 15, (), True) == Cost(
            {"matrix_fp8": 8192.0, "vector_fp32": 128.0}, 512 + 256 + 4 * (16 + 8), 2 * 128
        )
        lists = [(t(16),), (3,), (1,), (t(8),), (3,), (1,)]
        assert traffic("aten::_scaled_mm_v2", a, b, *lists, t(8, dtype="bf16"), 15, (), True)[0] == 512 + 256 + 24 + 16
        small = t(2, 3, dtype="int8"), t(3, 4, dtype="int8")
        assert cost("aten::_int_mm", *small) == Cost({"matrix_int8": 48.0}, 18, 32)


class TestElementwise:
    def test_add_broadcasts(self) -> None:
        assert cost("aten::add", t(4, 6), t(6), 1) == Cost({"vector_fp32": 24.0}, 4 * 30, 4 * 24)

    def test_alpha_is_one_more(self) -> None:
        assert flop("aten::add", t(4, 6), t(6), 2) == 48

    def test_in_place_reads_and_writes_the_same(self) -> None:
        assert traffic("aten::add_", t(4, 6), t(6), 1) == (4 * 30, 4 * 24)

    def test_a_number_moves_nothing(self) -> None:
        assert cost("aten::mul", t(4, 6), t(dtype="fp64")) == Cost({"vector_fp32": 24.0}, 96, 96)
        assert traffic("aten::mul", t(4, 6), 0.5) == (96, 96)

    def test_out_decides_the_dtype(self) -> None:
        assert traffic("aten::add", t(4, dtype="bf16"), t(4, dtype="bf16"), 1, t(4)) == (16, 16)
        assert traffic("aten::exp", t(4), t(0)) == (16, 16)

    def test_promotion(self) -> None:
        assert cost("aten::add", t(4, dtype="bf16"), t(4, dtype="fp16"), 1) == Cost({"vector_fp32": 4.0}, 16, 16)
        assert cost("aten::add", t(4, dtype="int64"), t(4), 1) == Cost({"vector_fp32": 4.0}, 48, 16)
        assert cost("aten::mul", t(4, dtype="int64"), t(dtype="fp64")).bytes_written == 16
        assert cost("aten::div", t(4, dtype="int64"), 2).flop == {"vector_fp32": 4.0}
        assert cost("aten::mul", t(4, dtype="bf16"), t(dtype="fp32")).flop == {"vector_bf16": 4.0}

    def test_comparisons_give_bool(self) -> None:
        assert cost("aten::gt", t(4, 6), 0) == Cost({"vector_fp32": 24.0}, 96, 24)
        assert cost("aten::eq", t(8, dtype="int64"), 0) == Cost({"vector_int": 8.0}, 64, 8)

    def test_selects(self) -> None:
        assert cost("aten::where", t(4, 6, dtype="bool"), t(4, 6), t(dtype="fp32")) == Cost(
            {"vector_fp32": 24.0}, 24 + 96, 96
        )
        assert cost("aten::masked_fill", t(2, 4, 4), t(4, 4, dtype="bool"), float("-inf")) == Cost(
            {"vector_fp32": 32.0}, 128 + 16, 128
        )

    def test_gelu_counts(self) -> None:
        assert flop("aten::gelu", t(10), "tanh") == 90
        assert flop("aten::gelu", t(10), "none") == flop("aten::gelu", t(10)) == 50
        assert flop("aten::gelu", t(10), None) == 90  # a trace does not say
        assert flop("aten::gelu_backward", t(10), t(10), "tanh") == 180
        assert flop("aten::gelu_backward", t(10), t(10), "none") == 110

    @pytest.mark.parametrize(("name", "count"), [("sigmoid", 4), ("silu", 5), ("tanh", 1), ("relu", 1), ("rsqrt", 2)])
    def test_unary_counts(self, name: str, count: int) -> None:
        assert cost(f"aten::{name}", t(10)) == Cost({"vector_fp32": 10.0 * count}, 40, 40)

    def test_optimizer_pieces(self) -> None:
        # Two alike factors may be one tensor, as Adam's g·g: it counts once.
        assert cost("aten::addcmul_", t(8), t(8), t(8), 0.001) == Cost({"vector_fp32": 24.0}, 64, 32)
        assert cost("aten::addcmul_", t(8), t(8), t(1), 0.001) == Cost({"vector_fp32": 24.0}, 68, 32)
        assert cost("aten::addcdiv_", t(8), t(8), t(8), 0.001) == Cost({"vector_fp32": 24.0}, 96, 32)
        assert flop("aten::addcdiv_", t(8), t(8), t(8), 1) == 16
        assert flop("aten::lerp_", t(8), t(8), 0.1) == 24
        assert flop("aten::clamp", t(8), -1, 1) == 16

    def test_foreach_is_the_sum(self) -> None:
        lists = (t(5, 4), t(3)), (t(5, 4), t(3))
        found = cost("aten::_foreach_addcdiv_", lists[0], lists[0], lists[1], (-0.1, -0.2))
        assert found == Cost({"vector_fp32": 3.0 * 23}, 4 * 3 * 23, 4 * 23)
        assert cost("aten::_foreach_mul_", lists[0], t()) == Cost({"vector_fp32": 23.0}, 92, 92)
        assert cost("aten::_foreach_norm", lists[0], 2) == Cost({"vector_fp32": 2.0 * 23 + 2}, 92, 8)


class TestNormalizationAndSoftmax:
    def test_layer_norm(self) -> None:
        # 6 rows of 8: 7 per element, 5 a row; statistics are two numbers a row.
        assert cost("aten::native_layer_norm", t(2, 3, 8), (8,), t(8), t(8), 1e-5) == Cost(
            {"vector_fp32": 7.0 * 48 + 5 * 6}, 4 * (48 + 16), 4 * (48 + 12)
        )
        assert flop("aten::native_layer_norm", t(2, 3, 8), (8,), None, None, 1e-5) == 5 * 48 + 5 * 6

    def test_layer_norm_backward(self) -> None:
        arguments = t(6, 8), t(6, 8), (8,), t(6, 1), t(6, 1), t(8), t(8)
        whole = cost("aten::native_layer_norm_backward", *arguments, (True, True, True))
        assert whole == Cost({"vector_fp32": 13.0 * 48 + 2 * 6}, 4 * (96 + 12 + 8), 4 * (48 + 16))
        inputs = cost("aten::native_layer_norm_backward", *arguments, (True, False, False))
        assert inputs.total_flop == 10 * 48 + 12 and inputs.bytes_written == 4 * 48

    def test_other_norms(self) -> None:
        x = t(2, 4, 3, 3)
        assert flop("aten::native_group_norm", x, t(4), t(4), 2, 4, 9, 2, 1e-5) == 7 * 72 + 5 * 4
        batch = x, t(4), t(4), t(4), t(4)
        assert flop("aten::native_batch_norm", *batch, True, 0.1, 1e-5) == 7 * 72 + 5 * 4 + 6 * 4
        assert flop("aten::native_batch_norm", *batch, False, 0.1, 1e-5) == 4 * 72 + 3 * 4
        for library in ("cudnn", "miopen"):
            assert flop(f"aten::{library}_batch_norm", *batch, True, 0.1, 1e-5) == 7 * 72 + 5 * 4 + 6 * 4
        assert flop("aten::_fused_rms_norm", t(6, 8), (8,), t(8), 1e-5) == 4 * 48 + 4 * 6

    def test_softmax(self) -> None:
        assert cost("aten::_softmax", t(2, 4, 8), -1, False) == Cost({"vector_fp32": 5.0 * 64}, 256, 256)
        assert flop("aten::_log_softmax", t(16, 50), 1, False) == 5 * 800 + 16
        assert cost("aten::_softmax_backward_data", t(8, 8), t(8, 8), -1, 6) == Cost({"vector_fp32": 256.0}, 512, 256)
        assert traffic("aten::_softmax", t(8, dtype="bf16"), 0, True) == (16, 32)


class TestAttention:
    def test_forward(self) -> None:
        q = t(2, 4, 8, 16)
        found = cost("aten::_scaled_dot_product_flash_attention_for_cpu", q, q, q, 0.0, True, None, None)
        pairs = 2 * 4 * 8 * 9 / 2
        assert found.flop == {"matrix_fp32": 2.0 * pairs * 32, "vector_fp32": 6.0 * pairs}
        assert (found.bytes_read, found.bytes_written) == (4 * 3 * 1024, 4 * (1024 + 64))

    def test_backward_has_five_products(self) -> None:
        q, sums = t(2, 4, 8, 16), t(2, 4, 8)
        name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
        found = cost(name, q, q, q, q, q, sums, 0.0, False, None, None)
        assert found.flop["matrix_fp32"] == 5 * 2.0 * 512 * 16
        assert found.bytes_written == 4 * 3 * 1024

    def test_fewer_key_heads_and_inner_layout(self) -> None:
        q, k = t(2, 4, 8, 16), t(2, 1, 32, 16)
        outer = cost("aten::_scaled_dot_product_flash_attention", q, k, k, 0.0, False, False, None)
        assert outer.flop["matrix_fp32"] == 4.0 * 2 * 4 * 8 * 32 * 16
        inner_q, inner_k = t(2, 8, 4, 16), t(2, 32, 1, 16)
        inner = cost("aten::_flash_attention_forward", inner_q, inner_k, inner_k, None, None, 8, 32, 0.0, False, False)
        assert inner.flop["matrix_fp32"] == 4.0 * 2048 * 16

    def test_mask_is_read_and_added(self) -> None:
        q, mask = t(2, 4, 8, 16), t(2, 4, 8, 8, strides=(0, 0, 8, 1))
        found = cost("aten::_scaled_dot_product_efficient_attention", q, q, q, mask, True, 0.0, False)
        assert found.flop["vector_fp32"] == 7 * 512 and found.bytes_read == 4 * (3 * 1024 + 64)


class TestEmbedding:
    def test_rows_never_tables(self) -> None:
        found = cost("aten::embedding", t(50257, 768), t(4, 64, dtype="int64"))
        assert found == Cost({"vector_fp32": 0.0}, 256 * 768 * 4 + 256 * 8, 256 * 768 * 4)

    def test_a_small_table_bounds_the_rows(self) -> None:
        assert traffic("aten::index_select", t(3, 16), 0, t(128, dtype="int64")) == (3 * 64 + 1024, 128 * 64)

    def test_backward(self) -> None:
        found = cost("aten::embedding_dense_backward", t(2, 8, 16), t(2, 8, dtype="int64"), 50, -1, False)
        assert found == Cost({"vector_fp32": 256.0}, 4 * 256 + 128 + 4 * 256, 4 * 256)

    def test_bag(self) -> None:
        indices, offsets = t(12, dtype="int64"), t(6, dtype="int64")
        bag = t(30, 4), indices, offsets, False
        assert cost("aten::_embedding_bag", *bag, 0, False, None, False, -1) == Cost(
            {"vector_fp32": 48.0}, 4 * 48 + 8 * 18, 4 * 24
        )
        assert flop("aten::_embedding_bag", *bag, 1, False, None, False, -1) == 48 + 24
        assert flop("aten::_embedding_bag", *bag, 0, False, t(12), False, -1) == 96
        assert traffic("aten::_embedding_bag", *bag, 0, False, None, True, -1)[1] == 4 * 20

    def test_bag_backward(self) -> None:
        indices = t(12, dtype="int64")
        arguments = t(6, 4), indices, indices, t(6), t(6), 30, False, 0, None, -1
        found = cost("aten::_embedding_bag_dense_backward", *arguments)
        assert found == Cost({"vector_fp32": 48.0}, 4 * 24 + 2 * 96 + 4 * 48, 4 * 48)


class TestConvolution:
    def test_forward(self) -> None:
        # 4 images, 3 → 8 channels, 3×3 window, 8×8 → 4×4.
        expected = {"matrix_fp32": 2.0 * 4 * 16 * 8 * 3 * 9, "vector_fp32": 4.0 * 8 * 16}
        direct = cost("aten::mkldnn_convolution", t(4, 3, 8, 8), t(8, 3, 3, 3), t(8), (1, 1), (2, 2), (1, 1), 1)
        assert direct == Cost(expected, 4 * (768 + 216 + 8), 4 * 512)
        general = t(4, 3, 8, 8), t(8, 3, 3, 3), t(8), (2, 2), (1, 1), (1, 1), False, (0, 0), 1
        assert cost("aten::convolution", *general) == direct

    def test_libraries_order_their_arguments_unlike_each_other(self) -> None:
        """MIOpen's have a bias at 2: read as cuDNN's, the FLOP were unknown on every AMD GPU."""
        x, weight, bias, out = t(4, 3, 8, 8), t(8, 3, 3, 3), t(8), t(4, 8, 4, 4)
        padding, stride, one = (1, 1), (2, 2), (1, 1)
        cudnn = cost("aten::cudnn_convolution", x, weight, padding, stride, one, 1, False, False, True)
        assert cudnn.matrix_flop == 2.0 * 4 * 16 * 8 * 3 * 9 and cudnn.bytes_written == 4 * 512
        assert cost("aten::miopen_convolution", x, weight, bias, padding, stride, one, 1, False, False) == cudnn
        grouped = t(4, 8, 8, 8), t(8, 1, 3, 3), None, padding, stride, one, 8, False, False
        assert cost("aten::miopen_depthwise_convolution", *grouped).matrix_flop == 2.0 * 4 * 16 * 8 * 9
        for library in ("cudnn", "miopen"):
            relu = cost(f"aten::{library}_convolution_relu", x, weight, bias, stride, padding, one, 1)
            assert relu.matrix_flop == cudnn.matrix_flop and relu.bytes_read == cudnn.bytes_read + 4 * 8
            added = cost(f"aten::{library}_convolution_add_relu", x, weight, out, 1.0, bias, stride, padding, one, 1)
            assert added.bytes_read == relu.bytes_read + 4 * 512

    def test_transposed(self) -> None:
        arguments = t(2, 8, 5, 5), t(8, 4, 2, 2), None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1
        found = cost("aten::convolution", *arguments)
        assert found.total_flop == 2 * 2 * 25 * 8 * 4 * 4 and found.bytes_written == 4 * 2 * 4 * 100
        cudnn = t(2, 8, 5, 5), t(8, 4, 2, 2), (0, 0), (0, 0), (2, 2), (1, 1), 1, False, False, True
        assert cost("aten::cudnn_convolution_transpose", *cudnn) == found
        miopen = t(2, 8, 5, 5), t(8, 4, 2, 2), t(4), (0, 0), (0, 0), (2, 2), (1, 1), 1, False, False
        assert cost("aten::miopen_convolution_transpose", *miopen) == found

    def test_backward(self) -> None:
        arguments = t(4, 8, 4, 4), t(4, 3, 8, 8), t(8, 3, 3, 3), (8,), (2, 2), (1, 1), (1, 1), False, (0, 0), 1
        one = 2.0 * 4 * 16 * 8 * 27
        whole = cost("aten::convolution_backward", *arguments, (True, True, True))
        assert whole == Cost({"matrix_fp32": 2 * one, "vector_fp32": 512.0}, 4 * (512 + 216 + 768), 4 * (768 + 216 + 8))
        assert flop("aten::convolution_backward", *arguments, (False, True, False)) == one

    def test_pooling(self) -> None:
        assert cost("aten::max_pool2d_with_indices", t(1, 2, 8, 8), (2, 2), (), (0, 0), (1, 1), False) == Cost(
            {"vector_fp32": 4.0 * 32}, 512, 4 * 32 + 8 * 32
        )
        assert flop("aten::avg_pool2d", t(1, 2, 8, 8), (2, 2), (2, 2), (0, 0)) == 5 * 32


class TestReduction:
    def test_sum(self) -> None:
        assert cost("aten::sum", t(16, 48), (0,), True, None) == Cost({"vector_fp32": 768.0}, 3072, 192)
        assert traffic("aten::sum", t(16, 48)) == (3072, 4)
        assert traffic("aten::sum", t(4, dtype="bool")) == (4, 8)

    def test_others(self) -> None:
        assert flop("aten::mean", t(4, 6), (1,), False, None) == 28
        assert flop("aten::var", t(4, 6), (1,), 1, False) == 4 * 24 + 2 * 4
        assert cost("aten::argmax", t(4, 6), 1, False) == Cost({"vector_fp32": 24.0}, 96, 32)
        assert cost("aten::max", t(4, 6), 1, False) == Cost({"vector_fp32": 24.0}, 96, 16 + 32)
        assert traffic("aten::max", t(4, 6)) == (96, 4)
        assert flop("aten::linalg_vector_norm", t(4, 6), 2.0, (1,), False, None) == 2 * 24 + 4
        assert traffic("aten::cumsum", t(4, 6), 1, None) == (96, 96)


def test_weight_norm() -> None:
    v, g = t(4, 6), t(4, 1)
    assert cost("aten::_weight_norm_interface", v, g, 0) == Cost({"vector_fp32": 3.0 * 24 + 8}, 112, 112)
    backward = cost("aten::_weight_norm_interface_backward", v, v, g, g, 0)
    assert backward == Cost({"vector_fp32": 5.0 * 24 + 16}, 96 + 96 + 16 + 16, 112)


class TestLoss:
    def test_nll(self) -> None:
        x, target = t(16, 50), t(16, dtype="int64")
        forward = cost("aten::nll_loss_forward", x, target, None, 1, -100)
        assert forward == Cost({"vector_fp32": 17.0}, 4 * 16 + 8 * 16, 8)
        backward = cost("aten::nll_loss_backward", t(), x, target, None, 1, -100, t())
        assert backward == Cost({"vector_fp32": 32.0}, 4 + 128, 64)

    def test_pointwise(self) -> None:
        for reduction in (0, 1):  # the mean of them is an operator of its own
            assert cost("aten::mse_loss", t(6, 5), t(6, 5), reduction) == Cost({"vector_fp32": 60.0}, 240, 120)
        assert flop("aten::binary_cross_entropy", t(6, 5), t(6, 5), None, 1) == 240
        assert flop("aten::binary_cross_entropy", t(6, 5), t(6, 5), t(5), 1) == 270
        assert flop("aten::binary_cross_entropy_backward", t(), t(6, 5), t(6, 5), None, 1) == 180

    def test_ctc(self) -> None:
        """Ten times, two sequences of at most three letters, of five: 2 · 10 · 7 states."""
        x, targets = t(10, 2, 5), t(2, 3, dtype="int64")
        forward = cost("aten::_ctc_loss", x, targets, (10, 10), (3, 2), 0, False)
        assert forward == Cost({"vector_fp32": 13.0 * 140}, 4 * 10 * 2 * 4 + 48, 4 * 140 + 8)
        together = t(5, dtype="int64")
        assert flop("aten::_ctc_loss", x, together, (10, 10), (3, 2), 0, False) == 13 * 140
        assert flop("aten::_ctc_loss", x, together, t(2, dtype="int64"), t(2, dtype="int64"), 0, False) == 13 * 140
        backward = cost("aten::_ctc_loss_backward", t(2), x, targets, (10, 10), (3, 2), t(2), t(2, 10, 7), 0, False)
        assert backward == Cost({"vector_fp32": 20.0 * 140 + 6 * 100}, 8 + 400 + 48 + 8 + 560, 400)
