"""Operators that touch no data themselves: views, composites, allocations, and waits; and collectives."""

from __future__ import annotations

from perfkit.cost.registry import ANY, Operator, full_name

VIEWS = """
alias as_strided as_strided_ chunk _conj conj detach detach_ diagonal dsplit expand expand_as flatten hsplit imag
_indices indices lift lift_fresh lift_fresh_copy mH moveaxis movedim mT narrow _neg_view numpy_T permute positive
_nnz is_coalesced sparse_dim dense_dim _coalesced_ crow_indices col_indices ccol_indices row_indices
_fw_primal _make_dual _unpack_dual
ravel real _reshape_alias reshape_as resolve_conj resolve_neg select slice split split_with_sizes squeeze squeeze_
swapaxes swapdims T t t_ tensor_split transpose transpose_ unbind unflatten unfold unsafe_chunk unsafe_split
unsafe_split_with_sizes _unsafe_view unsqueeze unsqueeze_ _values values view view_as view_as_complex view_as_real
vsplit
_c10d_functional::_wrap_tensor_autograd
"""

COMPOSITES = """
absolute adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d affine_grid_generator
affine_grid_generator_backward allclose alpha_dropout atleast_1d atleast_2d atleast_3d _autocast_to_full_precision
_autocast_to_reduced_precision avg_pool1d _backward bartlett_window batch_norm _batch_norm_impl_index
_batch_norm_impl_index_backward bilinear binary_cross_entropy_with_logits blackman_window block_diag broadcast_tensors
broadcast_to can_cast cdist celu celu_ chain_matmul cholesky_solve clip clip_ coalesce column_stack combinations
concatenate conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss
cosine_similarity cpu cross_entropy_loss ctc_loss cuda cudnn_is_acceptable data det diag diag_embed diff divide divide_
dropout dropout_ dstack einsum embedding_backward _embedding_bag_backward _embedding_bag_sparse_backward
embedding_sparse_backward _euclidean_dist eye feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift
fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2
fft_rfftfreq fft_rfftn float_power full full_like _fused_sdp_choice gather_backward greater greater_equal grid_sampler
group_norm gru gru_cell hamming_window hann_window _has_compatible_shallow_copy_type
_has_same_storage_numel hinge_embedding_loss hstack
index_select_backward inner instance_norm inverse is_complex is_floating_point is_pinned is_same_size isclose isfinite
isinf istft kaiser_window kl_div kron l1_loss less less_equal _linalg_check_errors linalg_cholesky _linalg_det
linalg_det linalg_eigh linalg_eigvalsh linalg_inv linalg_inv_ex linalg_ldl_factor linalg_lu linalg_lu_factor
linalg_matrix_exp linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv
_linalg_slogdet linalg_slogdet linalg_solve _linalg_solve_ex linalg_solve_ex linalg_svd linalg_svdvals linalg_vecdot
log_sigmoid logdet lstm lstm_cell matrix_exp matrix_power max_pool1d_with_indices max_pool2d max_pool3d meshgrid
multi_head_attention_forward multiply multiply_ _native_multi_head_attention negative negative_ new_full new_ones
new_zeros nll_loss nll_loss2d nll_loss_nd _nnpack_available nonzero_numpy not_equal numel ones ones_like outer
output_nr
pad pairwise_distance _pin_memory pin_memory pinverse poisson_nll_loss promote_types
quantile rand rand_like randint randint_like randn randn_like record_stream relu6 relu6_ repeat_interleave
requires_grad_ reshape result_type retain_grad rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack selu
selu_ set_ size slogdet softmin
sparse_coo_tensor _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors sparse_mask special_softmax stft
storage_offset stride subtract subtract_ svd sym_numel sym_size sym_storage_offset sym_stride take_along_dim tensordot
thnn_conv2d tile to to_dense _transformer_encoder_layer_fwd triplet_margin_loss type_as
value_selecting_reduction_backward vander _version vstack _weight_norm zeros zeros_like
"""

ALLOCATIONS = """
_efficientzerotensor empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_
_resize_output_
scalar_tensor _empty_affine_quantized _empty_per_channel_affine_quantized
"""

SYNCS = "item _local_scalar_dense is_nonzero _assert_async _assert_scalar _is_all_true _is_any_true"
SYNC_COLLECTIVES = "c10d::barrier c10d::monitored_barrier_ _c10d_functional::wait_tensor c10d_functional::wait_tensor"
# A library's thread does what they ask for: their own time does not depend on what is sent.
ASKING = """
c10d::allreduce_ c10d::allreduce_coalesced_ c10d::reduce_ c10d::broadcast_ c10d::allgather_ c10d::_allgather_base_
c10d::allgather_coalesced_ c10d::allgather_into_tensor_coalesced_ c10d::reduce_scatter_ c10d::_reduce_scatter_base_
c10d::reduce_scatter_tensor_coalesced_ c10d::gather_ c10d::scatter_ c10d::alltoall_ c10d::alltoall_base_ c10d::send
c10d::recv_ c10d::recv_any_source_
"""
FUNCTIONAL = """
_c10d_functional::all_reduce _c10d_functional::all_reduce_ _c10d_functional::all_reduce_coalesced
_c10d_functional::all_reduce_coalesced_ _c10d_functional::all_gather_into_tensor
_c10d_functional::all_gather_into_tensor_out _c10d_functional::all_gather_into_tensor_coalesced
_c10d_functional::reduce_scatter_tensor _c10d_functional::reduce_scatter_tensor_out
_c10d_functional::reduce_scatter_tensor_coalesced _c10d_functional::all_to_all_single _c10d_functional::broadcast
_c10d_functional::broadcast_ _c10d_functional_autograd::all_gather_into_tensor
_c10d_functional_autograd::reduce_scatter_tensor _c10d_functional_autograd::all_to_all_single
"""
# Copies of FSDP and DDP around their collectives, by operators inside.
COPIES = """
fsdp::all_gather_copy_in fsdp::split_with_sizes_copy fsdp::chunk_cat
torch.distributed.ddp.reducer::copy_bucket_to_grad torch::distributed::reducer::mul_out
"""
DISPATCHES = (
    "record_param_comms profiler::_record_function_enter profiler::_record_function_enter_new "
    "profiler::_record_function_exit prim::device "
    "prims::normal"  # Python reference operators: what works is what they call, on the meta device nothing
)


def operators() -> list[Operator]:
    """Return operators without work of their own, and collectives, whose own time does not depend on what they send."""
    kinds = {"view": VIEWS, "dispatch": COMPOSITES + DISPATCHES, "allocation": ALLOCATIONS, "sync": SYNCS}
    plain = [Operator(full_name(name), kind, "other") for kind, names in kinds.items() for name in names.split()]
    waits = [Operator(name, "sync", "collective") for name in SYNC_COLLECTIVES.split()]
    collectives = [Operator(name, "work", "collective", None, "unknown", "unknown") for name in ASKING.split()]
    functional = [
        Operator(name, "work", "collective", None, "unknown", "unknown", (ANY,)) for name in FUNCTIONAL.split()
    ]
    copies = [Operator(name, "work", "copy", None, "unknown", "unknown", (ANY,)) for name in COPIES.split()]
    return [*plain, *waits, *collectives, *functional, *copies]
