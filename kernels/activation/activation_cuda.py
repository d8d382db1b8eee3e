"""Launches of activation.cu: N rows of M columns. A function for each activation, direction and version."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil
from perfkit.kernels.cuda.host import HostFunction

Float = Argument
PACKS = 1  # accesses to each tensor by one thread, under way at once


def _forward_v1(name: str) -> HostFunction:
    def launch(
        host: Host, x: Argument, z: Argument, bias: Argument, y: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        host.launch(f"forward_v1<{name}, T>", ceil(N * M, block), block, x, z, bias, y, N * M, M, alpha)

    return launch


def _forward_v2(name: str) -> HostFunction:
    def launch(
        host: Host, x: Argument, z: Argument, bias: Argument, y: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        width = host.width(M, x, z, bias, y)
        kernel, grid = f"forward_v2<{name}, T, {width}, {PACKS}>", ceil(N * M, block * width * PACKS)
        host.launch(kernel, grid, block, x, z, bias, y, N * M, M, alpha)

    return launch


def _backward_from_y_v1(name: str) -> HostFunction:
    def launch(
        host: Host, dy: Argument, y: Argument, dx: Argument, dz: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        host.launch(f"backward_from_y_v1<{name}, T>", ceil(N * M, block), block, dy, y, dx, dz, N * M, alpha)

    return launch


def _backward_from_y_v2(name: str) -> HostFunction:
    def launch(
        host: Host, dy: Argument, y: Argument, dx: Argument, dz: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        width = host.width(0, dy, y, dx, dz)
        kernel, grid = f"backward_from_y_v2<{name}, T, {width}, {PACKS}>", ceil(N * M, block * width * PACKS)
        host.launch(kernel, grid, block, dy, y, dx, dz, N * M, alpha)

    return launch


def _backward_v1(name: str) -> HostFunction:
    def launch(
        host: Host, dy: Argument, x: Argument, z: Argument, bias: Argument, dx: Argument, dz: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        host.launch(f"backward_v1<{name}, T>", ceil(N * M, block), block, dy, x, z, bias, dx, dz, N * M, M, alpha)

    return launch


def _backward_v2(name: str) -> HostFunction:
    def launch(
        host: Host, dy: Argument, x: Argument, z: Argument, bias: Argument, dx: Argument, dz: Argument,
        N: int, M: int, alpha: Float, *, block: int = 256,
    ) -> None:  # fmt: skip
        width = host.width(M, dy, x, z, bias, dx, dz)
        kernel, grid = f"backward_v2<{name}, T, {width}, {PACKS}>", ceil(N * M, block * width * PACKS)
        host.launch(kernel, grid, block, dy, x, z, bias, dx, dz, N * M, M, alpha)

    return launch


multiply_add_relu_forward_v1, multiply_add_relu_forward_v2 = _forward_v1("Relu"), _forward_v2("Relu")
multiply_add_sigmoid_forward_v1, multiply_add_sigmoid_forward_v2 = _forward_v1("Sigmoid"), _forward_v2("Sigmoid")
multiply_add_gelu_forward_v1, multiply_add_gelu_forward_v2 = _forward_v1("Gelu"), _forward_v2("Gelu")
multiply_add_silu_forward_v1, multiply_add_silu_forward_v2 = _forward_v1("Silu"), _forward_v2("Silu")
multiply_add_relu_backward_v1, multiply_add_relu_backward_v2 = _backward_from_y_v1("Relu"), _backward_from_y_v2("Relu")
multiply_add_sigmoid_backward_v1 = _backward_from_y_v1("Sigmoid")
multiply_add_sigmoid_backward_v2 = _backward_from_y_v2("Sigmoid")
multiply_add_gelu_backward_v1, multiply_add_gelu_backward_v2 = _backward_v1("Gelu"), _backward_v2("Gelu")
multiply_add_silu_backward_v1, multiply_add_silu_backward_v2 = _backward_v1("Silu"), _backward_v2("Silu")
