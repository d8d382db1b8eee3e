"""Measuring the ceilings of a device: what runs in which order, in processes of their own."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

import perfkit
from perfkit.errors import PerfkitError, Unavailable, UsageError
from perfkit.hardware import native_bench
from perfkit.hardware.assemble import DeviceFacts, assemble, unsettled
from perfkit.hardware.ceilings import BUSY, Ceilings
from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.cpu import Cpu, read_cpu
from perfkit.hardware.gpu import Gpu, gpu_use, read_gpus
from perfkit.hardware.identity import fingerprint, version_of
from perfkit.hardware.observation import Effort, Observation, Progress, cpu_plan, method_of
from perfkit.hardware.peaks import cpu_bounds, peaks_of
from perfkit.hardware.subprocesses import import_path, json_lines, thread_settings
from perfkit.hardware.torch_operators import CeilingRequest

TIME_LIMIT = 120.0  # for torch's part; it plans for far less
SAMPLED_S = 0.3
LOOKS, PERIOD_S = 4, 0.4  # at a GPU: NVML's figures cover up to a second


def measure(device: str, threads: int, progress: Progress | None = None, plan: Effort | None = None) -> Ceilings:
    """Measure the ceilings of `device` ("cpu", "cuda:0", …) with `threads` threads: about 20 s on two cores.

    Raises `Unavailable` without torch or without that GPU, `RunFailed` when torch's process dies.
    """
    if version_of("torch") is None:
        raise Unavailable("Measuring ceilings needs torch.", "Install it: pip install 'perfkit[run]'.")
    say = progress or (lambda text: None)
    start, load = time.monotonic(), used_by_others(device)
    ceilings = _measure_cpu(threads, say, plan) if device == "cpu" else _measure_gpu(device, threads, say)
    ceilings.duration_s, ceilings.load = time.monotonic() - start, load
    if load is not None and load > BUSY:
        what = "CPU" if device == "cpu" else "GPU"
        ceilings.warnings.append(
            f"other programs used {load:.0%} of the {what} when its ceilings were measured: they may be too low"
        )
    return ceilings


def _measure_cpu(threads: int, say: Progress, plan: Effort | None) -> Ceilings:
    cpu = read_cpu()
    caches = cache_bytes(cpu, threads)
    plan = plan or cpu_plan(int(max(caches.values(), default=0)), cpu.memory_bytes)
    seen, problem = _observe_cpu(plan, threads, int(caches.get("L2", 2**21)), say)
    peaks = cpu_bounds(cpu, threads)
    machine = DeviceFacts(
        fingerprint=fingerprint(threads),
        device="cpu",
        device_name=cpu.model,
        threads=threads,
        caches=caches,
        bounds=peaks.values,
        x86=cpu.architecture in ("x86_64", "AMD64"),
        software=_software("cpu"),
    )
    ceilings = assemble(seen, machine, _now())
    if not problem and threads > 1:
        ceilings.region_s = _between_threads("a parallel region", native_bench.region_s, plan, threads, say)
        ceilings.handover = _between_threads("what other threads wrote", native_bench.handover, plan, threads, say)
    if problem:
        ceilings.warnings.append(f"{problem} So torch's operators alone set the roofs, which may be too low.")
    return ceilings


def _observe_cpu(plan: Effort, threads: int, stream_from: int, say: Progress) -> tuple[list[Observation], str]:
    """Everything seen, and the sentence that says why the compiled programs did not run.

    Their rounds lie apart, torch's part between: load that comes and goes then shows as rounds that disagree. Working
    sets where they do get more rounds.
    """
    start = time.monotonic()
    seen, problem = _native_round(plan, threads, stream_from, 0, say)
    request = CeilingRequest(device="cpu", threads=threads, plan=plan, patterns="all" if problem else "check")
    seen += [o for o in _torch(request, say) if isinstance(o, Observation)]
    if problem:
        return seen, problem
    for number in range(1, plan.rounds):
        seen += _native_round(plan, threads, stream_from, number, say)[0]
    for number in range(plan.rounds, plan.rounds + plan.more_rounds):
        again = unsettled(o for o in seen if o.by == "c")
        if not again or time.monotonic() - start > plan.more_until_s:
            break
        say(f"memory · round {number + 1}, {len(again)} working sets")
        main = plan.main_memory if plan.main_memory in again else None
        some = msgspec.structs.replace(
            plan, sizes=tuple(s for s in again if s != main), main_memory=main, pattern_s=2 * plan.pattern_s
        )
        seen += native_bench.bandwidth(some, threads, stream_from, number)
    return seen, ""


def _native_round(
    plan: Effort, threads: int, stream_from: int, number: int, say: Progress
) -> tuple[list[Observation], str]:
    """One round of the compiled programs, and the sentence that says why it is missing."""
    try:
        say(f"vector units · round {number + 1}")
        seen = list(native_bench.vector(plan, threads, number))
        say(f"memory · round {number + 1}")
        return seen + list(native_bench.bandwidth(plan, threads, stream_from, number)), ""
    except PerfkitError as error:
        return [], error.message


def _between_threads(
    name: str, measured: Callable[[Effort, int], float | None], plan: Effort, threads: int, say: Progress
) -> float | None:
    """Return what a compiled program measured with several threads; None if it could not be measured."""
    say(name)
    try:
        return measured(plan, threads)
    except PerfkitError:
        return None


def _measure_gpu(device: str, threads: int, say: Progress) -> Ceilings:
    request = CeilingRequest(device=device, threads=threads, plan=Effort(sizes=(), main_memory=None))
    lines = list(_torch(request, say))
    seen = [line for line in lines if isinstance(line, Observation)]
    gpu = next(line for line in lines if isinstance(line, Gpu))
    peaks = peaks_of(_with_clocks(gpu))
    machine = DeviceFacts(
        fingerprint=fingerprint(threads),
        device=device,
        device_name=gpu.name,
        threads=threads,
        caches={"L2": float(gpu.l2_bytes)} if gpu.l2_bytes else {},
        datasheet=peaks.values,
        datasheet_source="; ".join(sorted(set(peaks.how.values()))),
        software=_software(device),
    )
    return assemble(seen, machine, _now())


def _with_clocks(gpu: Gpu) -> Gpu:
    """Return torch's properties of a GPU, with NVML's clocks if it lists a board of that name."""
    twin = next((g for g in read_gpus() if g.name == gpu.name), None)
    if twin is None:
        return gpu
    known = {name: value for name, value in msgspec.structs.asdict(twin).items() if value is not None}
    return msgspec.structs.replace(gpu, **{k: v for k, v in known.items() if getattr(gpu, k) is None})


def _torch(request: CeilingRequest, say: Progress) -> Iterator[Observation | Gpu]:
    """Run `perfkit.hardware.torch_bench` and yield what it saw."""
    command = [sys.executable, "-m", "perfkit.hardware.torch_bench", msgspec.json.encode(request).decode()]
    environment = {**thread_settings(request.threads), **import_path()}
    yield from _decoded(json_lines(command, environment, TIME_LIMIT, "torch's measurement"), say)


def _decoded(lines: Iterable[dict], say: Progress) -> Iterator[Observation | Gpu]:
    for line in lines:
        if "progress" in line:
            say(line["progress"])
        elif "unavailable" in line:
            hint = line.get("hint", "Use --device cpu, or look at `perfkit doctor`.")
            raise Unavailable(line["unavailable"], hint)
        elif "gpu" in line:
            yield msgspec.convert(line["gpu"], Gpu)
        else:
            yield msgspec.convert(line, Observation)


def cache_bytes(cpu: Cpu, threads: int) -> dict[str, float]:
    """Bytes of each level of data cache that `threads` threads, one a core, have together."""
    cores = max(1, cpu.physical or cpu.logical)
    return {c.level: float(c.size * max(1, round(c.instances * min(1.0, threads / cores)))) for c in cpu.caches}


def check_device(device: str) -> str:
    """The device's full name: "cuda" means "cuda:0". Raises `UsageError` for anything but cpu and cuda[:N]."""
    kind, _, index = device.partition(":")
    if device == "cpu" or (kind == "cuda" and (index.isdigit() or device == "cuda")):
        return "cuda:0" if device == "cuda" else device
    raise UsageError(f"{device!r} is not a device.", "Use cpu, cuda, or cuda:N.")


def _software(device: str) -> dict[str, str]:
    compiler = find_compiler()
    return {
        "perfkit": perfkit.__version__,
        "torch": version_of("torch") or "",
        "compiler": compiler.version if compiler else "",
        "method": method_of(device),
    }


def used_by_others(device: str) -> float | None:
    """Share of the CPUs' time, or of a GPU's, that others use just now, 0 to 1; None if unknown.

    Kernels of perfkit's own that have ended count until NVML's period is over: the least of several looks is others'.
    """
    if device == "cpu":
        return load_a_core()
    index = int(device.partition(":")[2] or 0)
    least = gpu_use(index)
    for _ in range(LOOKS - 1):
        if least is None or least <= BUSY:
            break
        time.sleep(PERIOD_S)
        least = min(least, gpu_use(index) or 0.0)
    return least


def load_a_core() -> float | None:
    """Share of the CPUs' time that others use just now, 0 to 1; None if unknown.

    Sampled rather than read from the load average, which remembers for minutes what ended before (an installation).
    """
    try:
        import psutil
    except ImportError:
        return None
    return float(psutil.cpu_percent(interval=SAMPLED_S)) / 100


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
