"""The processor and memory that this process can use.

Read from /proc, /sys and the control groups on Linux; elsewhere what the system reports cheaply, and None for the rest.
Every reader takes the root of the file tree, so that any machine's files can be read on any other.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

import msgspec

from perfkit.hardware import cgroup
from perfkit.hardware.system import ROOT, kibibytes, number_of, printed, text_of

# Features that vector code asks for, named as in /proc/cpuinfo.
SIMD_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni",
    "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "amx_int8", "amx_fp16",
    "asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip


class Cache(msgspec.Struct, frozen=True):
    """One level of data cache: bytes of each instance, CPUs that share one, instances among the usable CPUs."""

    level: str  # L1d, L2, L3
    size: int
    shared_by: int
    instances: int

    @property
    def total(self) -> int:
        """Bytes over all instances that usable CPUs have."""
        return self.size * self.instances


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The processor as this process may use it. `physical` and `logical` count usable cores; None is unknown."""

    model: str
    vendor: str | None = None
    stepping: str | None = None  # family/model/stepping
    architecture: str = ""
    sockets: int | None = None
    physical: int | None = None
    logical: int
    quota: float | None = None  # cores' worth of time that the control group allows
    caches: tuple[Cache, ...] = ()
    simd: tuple[str, ...] = ()
    memory_bytes: int | None = None  # installed, or the control group's limit where that is smaller
    numa_nodes: int | None = None
    max_frequency_hz: float | None = None
    governor: str | None = None
    virtualization: str | None = None  # "hypervisor" or its name where it is known; None: none seen

    @property
    def usable(self) -> int:
        """Cores that a computation should use: physical ones, as many as the quota pays for, one at least."""
        cores = self.physical or self.logical
        return cores if self.quota is None else max(1, min(cores, int(self.quota)))

    def cache(self, level: str) -> Cache | None:
        """The cache called L1d, L2 or L3; None if missing or unknown."""
        return next((c for c in self.caches if c.level == level), None)


@functools.lru_cache(maxsize=1)
def read_cpu() -> Cpu:
    """This machine, read once."""
    if platform.system() == "Linux":
        return linux_cpu(ROOT, frozenset(os.sched_getaffinity(0)))
    return _other_cpu()


def current_clock(root: Path = ROOT) -> float | None:
    """Clock of the first CPU now, in Hz; in a virtual machine often the nominal one."""
    kilohertz = number_of(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    if kilohertz:
        return kilohertz * 1e3
    megahertz = first_cpu(root / "proc/cpuinfo").get("cpu MHz")
    return float(megahertz) * 1e6 if megahertz else None


def linux_cpu(root: Path, affinity: frozenset[int]) -> Cpu:
    """The machine whose /proc and /sys lie under `root`, for a process that may run on the CPUs in `affinity`."""
    facts = first_cpu(root / "proc/cpuinfo")
    topology = [_core_of(root, cpu) for cpu in sorted(affinity)]
    known = [core for core in topology if core is not None]
    complete = len(known) == len(affinity)
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    frequency = number_of(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    triple = [facts[key] for key in ("cpu family", "model", "stepping") if key in facts]
    return Cpu(
        model=facts.get("model name") or _arm_name(facts) or platform.machine(),
        vendor=facts.get("vendor_id") or facts.get("CPU implementer"),
        stepping="/".join(triple) or None,
        architecture=platform.machine(),
        sockets=len({socket for socket, _ in known}) if complete else None,
        physical=len(set(known)) if complete else None,
        logical=len(affinity),
        quota=cgroup.quota(root),
        caches=_caches(root, affinity),
        simd=tuple(flag for flag in SIMD_FLAGS if flag in flags),
        memory_bytes=_memory(root),
        numa_nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        max_frequency_hz=frequency * 1e3 if frequency else None,
        governor=text_of(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        virtualization=_virtualization(root, "hypervisor" in flags),
    )


def first_cpu(path: Path) -> dict[str, str]:
    """The `key : value` lines of the first processor in /proc/cpuinfo."""
    facts: dict[str, str] = {}
    for line in text_of(path).splitlines():
        key, colon, value = line.partition(":")
        if not colon and facts:
            break
        facts[key.strip()] = value.strip()
    return facts


def _arm_name(facts: dict[str, str]) -> str:
    """Arm kernels give numbers for a name; they identify the core as well as a name would."""
    part = facts.get("CPU part")
    return f"implementer {facts.get('CPU implementer', '?')} part {part}" if part else ""


def _core_of(root: Path, cpu: int) -> tuple[int, int] | None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    socket, core = number_of(folder / "physical_package_id"), number_of(folder / "core_id")
    return None if socket is None or core is None else (int(socket), int(core))


def _caches(root: Path, affinity: frozenset[int]) -> tuple[Cache, ...]:
    """Data caches by level; instances are counted over the CPUs in `affinity`."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for cpu in sorted(affinity):
        for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            kind, size, level = text_of(folder / "type"), text_of(folder / "size"), text_of(folder / "level")
            if kind not in ("Data", "Unified") or not size or not level:
                continue
            shared = text_of(folder / "shared_cpu_list") or str(cpu)
            name = "L1d" if level == "1" else f"L{level}"
            found.setdefault(name, {})[shared] = (_bytes(size), len(expand_list(shared)))
    return tuple(
        Cache(name, max(size for size, _ in each.values()), max(count for _, count in each.values()), len(each))
        for name, each in sorted(found.items())
    )


def _memory(root: Path) -> int | None:
    """MemTotal, or the control group's limit where that is smaller."""
    amounts = (kibibytes(root / "proc/meminfo", "MemTotal"), cgroup.memory_limit(root))
    return min((amount for amount in amounts if amount is not None), default=None)


def _virtualization(root: Path, flagged: bool) -> str | None:
    product = text_of(root / "sys/class/dmi/id/sys_vendor")
    for word, name in (("QEMU", "qemu"), ("VMware", "vmware"), ("Microsoft", "hyper-v"), ("Xen", "xen"),
                       ("Amazon", "aws"), ("Google", "google")):  # fmt: skip
        if flagged and word in product:
            return name
    return "hypervisor" if flagged else None


def _other_cpu() -> Cpu:
    """macOS and others: name, cores and memory from sysctl."""
    memory, physical = _sysctl("hw.memsize"), _sysctl("hw.physicalcpu")
    return Cpu(
        model=_sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        physical=int(physical) if physical.isdigit() else None,
        logical=os.cpu_count() or 1,
        memory_bytes=int(memory) if memory.isdigit() else None,
    )


def _sysctl(name: str) -> str:
    return printed(["sysctl", "-n", name], seconds=5)


def expand_list(text: str) -> list[int]:
    """The numbers of a kernel list such as "0-3,8"."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit():
            numbers.extend(range(int(first), int(last if dash else first) + 1))
    return numbers


def _bytes(text: str) -> int:
    """Bytes of a size such as 1024K."""
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
    return int(text.rstrip("KMG")) * factor
