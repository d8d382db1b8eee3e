"""Launch order of activities that begin in another order: collectives that wait in a stream of their own."""

from __future__ import annotations

import numpy as np

import perfkit
from perfkit.readers.launch_order import launch_order
from tests.support.readers import nsys_exports as nsys
from tests.support.readers.traces import event, write

KERNELS = (  # name, launched, start, end, stream
    ("first", 10, 20, 40, 7),
    ("all_reduce", 12, 90, 95, 17),
    ("second", 14, 40, 60, 7),
    ("third", 16, 60, 100, 7),
)
ORDER = {name: place for place, (name, *_) in enumerate(KERNELS)}


def test_activities_come_in_the_order_of_their_calls():
    known = np.array([True, True, True, True])
    assert launch_order(np.array([10, 14, 16, 12]), known, np.array([7, 7, 7, 17])).tolist() == [0, 2, 3, 1]


def test_what_one_call_launched_keeps_the_order_of_its_starts():
    known = np.ones(3, bool)
    assert launch_order(np.array([5, 5, 5]), known, np.array([1, 2, 1])).tolist() == [0, 1, 2]


def test_an_activity_without_a_call_comes_after_the_one_before_it_in_its_stream():
    known = np.array([False, True, True, False])
    assert launch_order(np.array([0, 20, 10, 0]), known, np.array([2, 1, 2, 1])).tolist() == [0, 2, 1, 3]


def test_without_calls_the_start_orders():
    assert launch_order(np.zeros(3, np.int64), np.zeros(3, bool), np.array([1, 2, 1])).tolist() == [0, 1, 2]


def test_of_a_trace(tmp_path):
    events = [event("cpu_op", "aten::mm", 0, 30)]
    for number, (name, launched, start, end, stream) in enumerate(KERNELS, 1):
        events.append(event("cuda_runtime", "cudaLaunchKernel", launched, launched + 1, correlation=number))
        more = {"device": 0, "stream": stream, "correlation": number}
        events.append(event("kernel", name, start, end, pid=0, tid=stream, **more))
    frame = perfkit.read(write(tmp_path / "trace.json", events)).table.frame
    assert dict(zip(frame["name"], frame["order"], strict=True)) == ORDER
    assert frame["start_ns"].is_monotonic_increasing


def test_of_an_export_of_nsys(tmp_path):
    strings = nsys.Strings()
    tables = {
        nsys.KERNEL: [],
        nsys.CALL: [],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.2"}],
    }
    for number, (name, launched, start, end, stream) in enumerate(KERNELS, 1):
        tables[nsys.KERNEL].append(nsys.kernel(strings, name, start, end, number, streamId=stream))
        tables[nsys.CALL].append(nsys.call(strings, "cudaLaunchKernel_v7000", launched, launched + 1, number))
    frame = nsys.table_of(tmp_path, tables | {"StringIds": strings.rows()}).frame
    assert dict(zip(frame["name"], frame["order"], strict=True)) == ORDER
