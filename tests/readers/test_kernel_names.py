"""Short names of kernels, of names as profilers write them."""

from __future__ import annotations

import pytest

from perfkit.readers.kernel_names import short_name, short_name_by_tool

NATIVE, ANONYMOUS = "at::native::", "at::native::(anonymous namespace)::"
NAMES = {
    "aten::addmm": "addmm",
    "tiny": "tiny",
    "triton_poi_fused_gelu_view_2": "triton_poi_fused_gelu_view_2",
    "triton_(1)": "triton_",
    "Memcpy DtoH (Device -> Pinned)": "Memcpy DtoH",
    "Memset (Device)": "Memset",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(cutlass_80_simt_sgemm_128x128_8x4_nn_align1"
    "::Params)": "cutlass_80_simt_sgemm_128x128_8x4_nn_align1",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, true>(cublasLt::cublasSplitKParams<float>, float const*)": (
        "splitKreduce_kernel"
    ),
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, true, 7>(cublasGemvParams<float>)": (
        "gemvx::kernel"
    ),
    f"void {ANONYMOUS}multi_tensor_apply_kernel<{ANONYMOUS}TensorListMetadata<1>, {ANONYMOUS}BinaryOpScalarFunctor<"
    f"float, 1, 1, 0>, std::plus<float>, float>({ANONYMOUS}TensorListMetadata<1>)": (
        "multi_tensor_apply BinaryOpScalarFunctor plus"
    ),
    f"void {ANONYMOUS}multi_tensor_apply_kernel<{ANONYMOUS}FusedOptimizerTensorListMetadata<4>, {ANONYMOUS}"
    f"FusedAdamMathFunctor<float, 4, ({NATIVE}ADAM_MODE)1, false>, float const*, double>(int)": (
        "multi_tensor_apply FusedAdamMathFunctor"
    ),
    f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}GeluCUDAKernelImpl(at::TensorIteratorBase&)"
    "::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)": "GeluCUDAKernelImpl",
    f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}AUnaryFunctor<float, float, float, {NATIVE}"
    "binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)": "MulFunctor",
    f"void {NATIVE}elementwise_kernel<128, 2, {NATIVE}gpu_kernel_impl_nocast<{ANONYMOUS}"
    "masked_fill_kernel(at::TensorIterator&)::{lambda()#1}> >(int)": "masked_fill_kernel",
    f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}FillFunctor<float>, std::array<char*, 1ul> >(int)": (
        "FillFunctor"
    ),
    f"void {ANONYMOUS}CatArrayBatchedCopy<{ANONYMOUS}OpaqueType<4u>, unsigned int, 3, 64, 64>({ANONYMOUS}"
    "OpaqueType<4u>*)": "CatArrayBatchedCopy",
    f"void {ANONYMOUS}cunn_SoftMaxForward<4, float, {ANONYMOUS}LogSoftMaxForwardEpilogue>(float*)": (
        "cunn_SoftMaxForward"
    ),
    "_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernel_for_sm9xINS_4gemm6kernel13GemmUniversalINS5_": (
        "GemmUniversal"
    ),
    "_ZN2at6native13reduce_kernelILi512ELi1EEEvT1_": "reduce_kernel",
    "_Z4gemmPf": "gemm",
    "_ZN7cutlass13device_kernelI": "device_kernel",
    "_Z": "_Z",
    "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<int"
    ">>>(int)": "GemmUniversal",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_1XEEEEvv": (
        "FmhaBatchPrefillWithPagedKVCacheKernel"
    ),
    "void ck_tile::kentry<256, 1, ck_tile::FmhaBwdDQDKDVKernel<int>>(int)": "FmhaBwdDQDKDVKernel",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2>>>>(int)": (
        "FlashAttnFwdSm90"
    ),
    "void cutlass::device_kernel<a::fp8_dptp128c_acc::GemmKernel>(a::fp8_dptp128c_acc::GemmKernel::Params)": (
        "fp8_dptp128c_acc::GemmKernel"
    ),
    "_ZN1a3fp810GemmKernelEv": "fp8::GemmKernel",
    "void deep_ep::internode::dispatch<false, 8>(int4*)": "internode::dispatch",
    "void deep_ep::internode_ll::dispatch<false, 8>(int4*)": "internode_ll::dispatch",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "intranode::notify_dispatch",
    "kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmemalign16o64": "quackrmsnormRMSNorm",
    "kernel_cutlass_kernel___main__DenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK1": "DenseGemmKernel",
    "void k_bin_bcast<&(op_add(float, float)), float, float>(float const*)": "k_bin_bcast op_add",
    "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>("
    "c10::BFloat16 const&)), true>(int)": "act_and_mul_kernel silu_kernel",
    "void f<(lambda)1>(int)": "f",
    "void unbalanced<a<b, c": "unbalanced",
    "<<<>>>": "<<<>>>",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda n: NAMES[n] or "empty")
def test_a_kernel_is_called_by_what_it_does(name: str) -> None:
    assert short_name(name) == NAMES[name]


def test_a_very_long_name_is_no_hindrance() -> None:
    assert short_name(f"void f<{'a<' * 200_000}") == "f"
    assert short_name("_Z" + "13device_kernelI" * 1000 + "4gemm") == "gemm"


def test_the_tools_own_short_name_serves_where_the_name_is_no_declaration() -> None:
    assert short_name_by_tool("_Z4gemmPf", "gemm") == "gemm"
    assert short_name_by_tool("void cutlass::Kernel2<my_gemm>(int)", "Kernel2") == "my_gemm"
    assert short_name_by_tool("plain", "") == "plain"
