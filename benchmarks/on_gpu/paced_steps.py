"""A host-bound training loop on a GPU: `python paced_steps.py FILE`, twice at a time (`beside.py`)."""

from __future__ import annotations

from benchmarks.on_gpu import beside, host_bound

_, step = host_bound.training()
step()
beside.run(step)
