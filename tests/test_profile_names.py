"""The effects of CUDA and HIP calls by name, as traces and exports of Nsight Systems write them, and pass words."""

import pytest

from perfkit.profile_names import (
    ALLOCATION,
    COPY,
    DRIVER,
    LAUNCH,
    NO_EFFECT,
    QUERY,
    STREAM_WAIT,
    SYNC,
    WAIT,
    blocks_host,
    cause_of_call,
    effect_of_call,
    pass_of,
    waits_for_device,
)

CALLS = {
    WAIT: "cudaDeviceSynchronize cudaStreamSynchronize_v3020 cudaEventSynchronize cuCtxSynchronize cudaMemcpy "
    "cudaMemcpy2D cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 hipMemcpy hipMemcpyWithStream hipStreamSynchronize",
    STREAM_WAIT: "cudaStreamWaitEvent cuStreamWaitEvent hipStreamWaitEvent cuStreamWaitValue32_v2",
    QUERY: "cudaEventQuery cudaStreamQuery cuEventQuery hipEventQuery hipStreamQuery",
    ALLOCATION: "cudaMalloc cudaFree cudaFreeAsync cudaHostAlloc cuMemAlloc_v2 cuMemCreate cuMemMap hipMalloc hipFree",
    COPY: "cudaMemcpyAsync cudaMemcpy2DAsync cuMemcpyHtoDAsync_v2 cudaMemcpyPeer cuMemcpyDtoD_v2 hipMemcpyAsync",
    LAUNCH: "cudaLaunchKernel cuLaunchKernelEx cudaGraphLaunch hipModuleLaunchKernel cudaMemsetAsync",
    NO_EFFECT: "cudaEventRecord cudaFuncGetAttributes cuModuleLoadData cudaStreamBeginCapture",
}


@pytest.mark.parametrize(("effect", "name"), [(effect, n) for effect, names in CALLS.items() for n in names.split()])
def test_the_effect_of_a_call(effect: str, name: str) -> None:
    assert effect_of_call(name) == effect
    assert blocks_host(name) == (effect == WAIT)


@pytest.mark.parametrize(
    ("name", "cause"),
    [("cudaStreamSynchronize", SYNC), ("cudaEventQuery", DRIVER), ("cudaStreamWaitEvent", DRIVER),
     ("cudaMemcpyAsync", LAUNCH), ("cudaFree", "CUDA allocation"), ("cudaMemGetInfo", DRIVER)],
)  # fmt: skip
def test_the_cause_of_time_in_a_call(name: str, cause: str) -> None:
    assert cause_of_call(name) == cause


def test_a_wait_for_one_stream_is_none_for_the_device() -> None:
    assert waits_for_device("cudaDeviceSynchronize") and waits_for_device("cuCtxSynchronize")
    assert not waits_for_device("cudaStreamSynchronize") and not waits_for_device("cudaEventSynchronize")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("perfkit:pass:prefill", "prefill"), ("## forward ##", "forward"), ("model_forward", "forward"),
     ("Backward pass", "backward"), ("bwd", "backward"), ("zero_grad", "optimizer"), ("optimizer.step", "optimizer"),
     ("forward_pre_hook", None), ("backward of nothing", None)],
)  # fmt: skip
def test_the_pass_of_a_range(name: str, expected: str | None) -> None:
    assert pass_of(name) == expected
