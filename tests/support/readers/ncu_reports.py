"""Made-up pieces of Nsight Compute's formats: containers for structural checks, and results as read."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.readers.ncu.results import NcuResult


def varint(value: int) -> bytes:
    """A number in base 128, as protocol buffers write it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def result_of(size: int, identity: int = 1) -> bytes:
    """A result of `size` bytes: its process, its number, and one metric with a text as long as it must be."""
    head = b"\x08\x07\x10" + varint(identity)
    for text in range(size):
        value = b"\x0a" + varint(text) + b"t" * text
        metric = b"\x08\x00\x12" + varint(len(value)) + value
        if len(whole_result := head + b"\x6a" + varint(len(metric)) + metric) == size:
            return whole_result
    raise ValueError(f"no result has {size} bytes")


def block(
    results: Sequence[bytes] = (), sources: Sequence[bytes] = (), extra: bytes = b"", names: bytes = b""
) -> bytes:
    """A block: fields 1 (sources), 2 (results), 4 (names), 5 (length of the payload), then what `extra` adds."""
    payload = b"".join(len(message).to_bytes(4, "little") + message for message in (*sources, *results))
    header = b"\x08" + varint(len(sources)) + b"\x10" + varint(len(results)) + b"\x22" + varint(len(names)) + names
    header += b"\x28" + varint(len(payload)) + extra
    return len(header).to_bytes(4, "little") + header + payload


def report(*blocks: bytes) -> bytes:
    return b"NVR\0" + (2).to_bytes(4, "little") + b"\x08\x07" + b"".join(blocks)


def whole() -> bytes:
    """Three results of 300, 200 and 200 bytes, each with one metric, in two blocks; a source between them."""
    first = block([result_of(300)], names=b"\x0a\x01m")
    return report(block(), first, block(sources=[b"y" * 9]), block([result_of(200, 2), result_of(200, 3)]))


HOPPER: dict[str, float | str] = {
    "device__attribute_display_name": "NVIDIA H100 80GB HBM3",
    "device__attribute_compute_capability_major": 9.0,
    "device__attribute_compute_capability_minor": 0.0,
    "device__attribute_multiprocessor_count": 132.0,
    "device__attribute_max_gpu_frequency_khz": 1.98e6,
    "device__attribute_max_mem_frequency_khz": 2.619e6,
    "device__attribute_fb_bus_width": 5120.0,
    "launch__grid_dim_x": 64.0,
    "launch__grid_dim_y": 2.0,
    "launch__grid_dim_z": 1.0,
    "launch__block_dim_x": 128.0,
    "launch__block_dim_y": 1.0,
    "launch__block_dim_z": 1.0,
    "launch__registers_per_thread": 40.0,
    "launch__waves_per_multiprocessor": 4.0,
    "gpu__time_duration.sum": 100_000.0,
    "dram__cycles_elapsed.avg.per_second": 2.6e9,
    "dram__cycles_elapsed.avg": 260_000.0,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 50.0,
    "sm__cycles_elapsed.avg.per_second": 1.5e9,
    "smsp__cycles_elapsed.avg": 150_000.0,
}
FP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"


def result(**more: float | str) -> NcuResult:
    """A `basic` result on an H100; `more` adds metrics, with `__` for themselves and `_DOT_` for points."""
    values = {**HOPPER, **{name.replace("_DOT_", "."): value for name, value in more.items()}}
    return NcuResult(name="void ns::scale<float>(float*, int)", function="scale", metrics=len(values), values=values)


def with_values(values: dict[str, float | str]) -> NcuResult:
    return NcuResult(name="k(int)", function="k", metrics=len(values), values=values)
