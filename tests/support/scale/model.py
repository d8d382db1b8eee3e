"""A run of one rank made by hand: two blocks and a head, whose times and sizes are round numbers."""

from __future__ import annotations

import pandas as pd

from perfkit.hardware.ceilings import Ceilings, to_json
from perfkit.run_folder import CEILINGS, KERNELS, BackendRun, Manifest, Settings, WorkloadFacts, write_manifest
from perfkit.table import KernelTable, conform

MB = 1_000_000  # numbers; 4 MB in fp32
SIZES = {"emb.weight": 10 * MB, "h.0.fc.weight": 2 * MB, "h.1.fc.weight": 2 * MB, "head.weight": 5 * MB}
# pass, layer, module, ms
ROWS = [
    ("encoder", None, "emb", 1.0), ("forward", 0, "h.0.fc", 4.0), ("forward", 1, "h.1.fc", 4.0),
    ("classifier", None, "head", 2.0), ("backward", None, "head", 4.0), ("backward", 1, "h.1.fc", 8.0),
    ("backward", 0, "h.0.fc", 8.0), ("backward", None, "emb", 1.0), ("optimizer", None, "optimizer", 8.0),
]  # fmt: skip
STEP_NS = 40e6
FACTS = {"step_ns": [42e6], "per_step": [{"launched_ns": 10e6}], "profiler_estimate": {}}


def run_folder(folder, device="cuda:0", backend="eager", sizes=SIZES, collectives=(), sends=(), **settings):
    """Write the run, and give its folder. Main memory moves a TB/s, so that 4 MB are copied in 8 µs.

    `sends`: the passes at whose end a collective takes a millisecond.
    """
    rows, now = [], 0.0
    talks = [(name, None, "", 1.0) for name in sends]
    for order, (name, layer, module, ms) in enumerate([*ROWS[:8], *talks[:1], *ROWS[8:], *talks[1:]]):
        kind = "cpu_op" if device == "cpu" else "gpu_kernel"
        rows.append({"name": "k", "short_name": "k", "kind": kind, "device": device, "order": order, "step": 0,
                     "pass": name, "layer": layer, "module": module, "start_ns": now,
                     "collective": None if module else "all_reduce", "duration_ns": ms * 1e6})  # fmt: skip
        now += ms * 1e6
    table = KernelTable(conform(pd.DataFrame(rows)), facts=FACTS if device != "cpu" else {})
    (folder / backend).mkdir(parents=True)
    table.write(folder / backend / KERNELS)
    ceilings = Ceilings(fingerprint="f", device=device, device_name="NVIDIA H100", measured_at="now", threads=1,
                        bandwidth=[(1e9, 1e12)], compute={}, collectives=list(collectives))  # fmt: skip
    (folder / CEILINGS).write_bytes(to_json(ceilings))
    given = {"workload": "mlp", "preset": "one", "device": device, "batch_size": 8}
    manifest = Manifest(
        perfkit="0",
        created="now",
        command=[],
        settings=Settings(**{**given, **settings}),
        workload=WorkloadFacts(
            title="two blocks", parameters=19 * MB, samples_per_step=8, parameter_sizes=sizes, frozen=[]
        ),
        backends=[BackendRun(name=backend, samples_ns=[STEP_NS] * 3, peak_memory_bytes=1e9)],
    )
    write_manifest(folder, manifest)
    return folder
