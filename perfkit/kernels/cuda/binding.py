"""Call the kernels that a host function recorded, on the data pointers of tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.errors import RunFailed, Unavailable
from perfkit.kernels.c.binding import BoundCKernel
from perfkit.kernels.cuda import dependent_launch, maps
from perfkit.kernels.cuda.availability import unavailable
from perfkit.kernels.cuda.build import Cubin, cubin
from perfkit.kernels.cuda.host import Argument, GpuLimits, Host, HostFunction, HostLaunch, Panels, record
from perfkit.kernels.declare import Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor

ITEM_SIZES = {"fp32": 4, "bf16": 2}
BLOCKS = (64, 128, 256, 512, 1024)  # what a sweep tries
_MOST_PROGRAMS = 256  # a scalar that changes at each call (a step number) must not fill the memory


class BoundKernel:
    """One implementation in one precision; call it with tensors (inputs, then outputs) and scalars.

    It launches on the current stream of the tensors' GPU, waits for nothing, and may be captured into a CUDA graph
    after a first call with the same sizes, which compiles.
    """

    def __init__(
        self, operation: Operation, source: Path, function: HostFunction, dtype: str, block: int | None = None
    ) -> None:
        self.operation = operation
        self.source = source
        self.function = function
        self.dtype = dtype
        self.block = block
        self._programs: dict[Any, _CompiledLaunches | BoundCKernel] = {}

    @property
    def sweep(self) -> list[Mapping[str, int]]:
        """Every block size worth trying, if the host function takes one; `using` takes one."""
        takes = "block" in inspect.signature(self.function).parameters
        return [{"block": block} for block in BLOCKS] if takes else []

    def parameters(self, scalars: Sequence[int | float]) -> Mapping[str, int]:
        """The block size that a call uses, if its host function takes one."""
        taken = inspect.signature(self.function).parameters.get("block")
        return {} if taken is None else {"block": self.block or taken.default}

    def using(self, block: int) -> BoundKernel:
        """Return the kernel with another block size."""
        return BoundKernel(self.operation, self.source, self.function, self.dtype, block)

    def __call__(self, tensors: Sequence[Tensor], scalars: Sequence[int | float]) -> None:
        """Launch. Raises `RunFailed` when the source does not compile, or a launch fails."""
        values: list[Any] = [t.data_ptr() for t in tensors]
        low = 0
        for pointer in values:
            low |= pointer
        misaligned = tuple(p & 15 for p in values) if low & 15 else len(values)
        device = tensors[0].get_device()
        key = (device, misaligned, *[s for s in scalars if not isinstance(s, float)])
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            offsets = [p & 15 for p in values]
            host = record(self.function, device_facts(device), ITEM_SIZES[self.dtype], offsets, scalars, self.block)
            if host.instead:
                self._programs[key] = self._other(host.instead)
            else:
                self._programs[key] = _CompiledLaunches(host, self.source, self.dtype, device)
            program = self._programs[key]
        if not isinstance(program, _CompiledLaunches):
            return program(tensors, scalars)
        values += [s for s in scalars if isinstance(s, float)]
        try:
            program.run(values)
        except Exception as error:
            if not type(error).__module__.startswith("cupy"):
                raise
            raise RunFailed(
                f"{self.operation.qualified_name} could not be launched in {self.dtype}: {error}.",
                "Try another block size; an error of an earlier kernel shows here too.",
            ) from error

    def _other(self, name: str) -> BoundCKernel:
        """The highest version of the operation in another language, for calls that this one leaves to it."""
        from perfkit.kernels.languages import language  # which imports this

        found = [i for i in self.operation.implementations if i.language == name and self.dtype in i.dtypes]
        implementation = max(found, key=lambda i: i.version)
        return language(implementation).launcher(self.operation, implementation, self.dtype)


class _CompiledLaunches:
    """The launches of one host function on one GPU, compiled and ready."""

    def __init__(self, host: Host, source: Path, dtype: str, device: int) -> None:
        import torch

        self.device = device
        self.scratches = host.scratches
        # The functions that Inductor's generated code calls; they take a tenth of the public functions' time.
        self._current_device = torch._C._cuda_getDevice
        self._current_stream = torch._C._cuda_getCurrentRawStream
        guards: Any = torch._C._dynamo.guards  # its memory is the current GPU's: `run` sees to it that it is this one
        self._empty = lambda size: guards._empty_strided_cuda((size,), (1,), torch.uint8)
        self.steps: list[tuple[Any, ...]] = []
        if host.steps:
            built = cubin(source, dtype, host.device.arch, [step.kernel for step in host.steps])
            self.steps = [self._step(step, built) for step in host.steps]

    def _step(self, step: HostLaunch, built: Cubin) -> Any:
        kernel = _kernel(built.path, built.symbols[step.kernel], self.device, step.shared)
        places = [(i, a.place) for i, a in enumerate(step.arguments) if isinstance(a, Argument)]
        panels = [(i, a) for i, a in enumerate(step.arguments) if isinstance(a, Panels)]
        constants = [0 if isinstance(a, Argument) else a for a in step.arguments]
        return kernel, step.grid, (step.block,), constants, places, panels, step.shared, step.early

    def run(self, values: list[Any]) -> None:
        if self._current_device() == self.device:
            self._run(values)
        else:
            import cupy
            import torch

            with torch.cuda.device(self.device), cupy.cuda.Device(self.device):
                self._run(values)

    def _run(self, values: list[Any]) -> None:
        kept = [self._empty(size) for size in self.scratches]
        values += [scratch.data_ptr() for scratch in kept]
        stream = _stream(self._current_stream(self.device))
        for kernel, grid, block, constants, places, panels, shared, may_be_early in self.steps:
            arguments = constants.copy()
            for position, place in places:
                arguments[position] = values[place]
            if panels:
                for i, of in panels:
                    arguments[i] = maps.tensor_map(arguments[i], of.matrices, of.rows, of.columns, of.copied)
                maps.launch(kernel.ptr, grid, block[0], shared, stream.ptr, arguments)
            elif may_be_early and dependent_launch.allowed():
                dependent_launch.launch(kernel.ptr, grid, block[0], shared, stream.ptr, arguments)
            else:
                kernel(grid, block, arguments, shared_mem=shared, stream=stream)


@functools.cache
def _stream(pointer: int) -> Any:
    """CuPy's name for PyTorch's stream."""
    import cupy

    return cupy.cuda.ExternalStream(pointer)


@functools.cache
def _kernel(path: Path, symbol: str, device: int, shared: int) -> Any:
    """A kernel of a cubin, loaded on a GPU; with more shared memory than 48 KiB where asked for.

    Raises `RunFailed` when the driver refuses it.
    """
    import cupy

    with cupy.cuda.Device(device):
        try:
            kernel = cupy.RawModule(path=str(path)).get_function(symbol)
            if shared + kernel.shared_size_bytes > 48 << 10:
                kernel.max_dynamic_shared_size_bytes = shared
            return kernel.kernel
        except cupy.cuda.driver.CUDADriverError as error:
            path.unlink(missing_ok=True)  # it may be damaged: the next process builds it again
            raise RunFailed(
                f"The CUDA driver cannot load {path}: {error}.", "Run again; if it stays, update the driver."
            ) from error


@functools.cache
def device_facts(index: int) -> GpuLimits:
    """The facts of a GPU of this machine."""
    import cupy
    import torch

    found = torch.cuda.get_device_properties(index)
    shared = cupy.cuda.Device(index).attributes["MaxSharedMemoryPerBlockOptin"]
    return GpuLimits(f"sm_{found.major}{found.minor}", found.multi_processor_count, int(shared))


def host_function(source: Path, symbol: str) -> HostFunction:
    """The function `symbol` of the Python file next to `source`. Raises `RunFailed` when it is missing."""
    file = host_file(source)
    function = getattr(load_content_module("kernels", file), symbol, None) if file.is_file() else None
    if not callable(function):
        raise RunFailed(
            f"{file} defines no host function called {symbol}, which {source.name} needs.",
            "Write it: perfkit/kernels/cuda/host.py shows how.",
        )
    return function


def host_file(source: Path) -> Path:
    """Return `x_cuda.py` in the folder of `x.cu`."""
    return source.with_name(f"{source.stem}_cuda.py")


def launcher(operation: Operation, implementation: Implementation, dtype: str) -> BoundKernel:
    """Bind `implementation` for `dtype`; its kernels compile at the first call with given sizes.

    Raises `Unavailable` when CUDA kernels cannot run here, `RunFailed` when it has no host function.
    """
    reason = unavailable()
    if reason:
        raise Unavailable(reason)
    source = operation.source_path(implementation)
    return BoundKernel(operation, source, host_function(source, implementation.symbol), dtype)
