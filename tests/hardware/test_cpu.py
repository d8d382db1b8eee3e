from __future__ import annotations

import platform

import pytest

from perfkit.hardware.cpu import current_clock, expand_list, linux_cpu, read_cpu
from tests.support.hardware.fakes import write, xeon

ALL = frozenset(range(8))


def test_a_two_socket_machine(tmp_path):
    cpu = linux_cpu(xeon(tmp_path), ALL)
    assert (cpu.model, cpu.vendor, cpu.stepping) == ("Intel(R) Xeon(R) Platinum 8480+", "GenuineIntel", "6/143/8")
    assert (cpu.sockets, cpu.physical, cpu.logical, cpu.usable) == (2, 4, 8, 4)
    assert cpu.numa_nodes == 2
    assert cpu.simd == (
        "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    )  # fmt: skip
    assert cpu.max_frequency_hz == 3.8e9
    assert cpu.governor == "powersave"
    assert cpu.memory_bytes == 263856740 * 1024
    assert cpu.virtualization is None
    assert current_clock(tmp_path) == 2.1e9


def test_caches_count_instances_and_sharing_and_leave_out_instructions(tmp_path):
    cpu = linux_cpu(xeon(tmp_path), ALL)
    assert [(c.level, c.size, c.shared_by, c.instances) for c in cpu.caches] == [
        ("L1d", 48 * 1024, 2, 4),
        ("L2", 2048 * 1024, 2, 4),
        ("L3", 105 * 2**20, 4, 2),
    ]
    l2, l4 = cpu.cache("L2"), cpu.cache("L4")
    assert l2 is not None
    assert l2.total == 4 * 2048 * 1024
    assert l4 is None


def test_affinity_limits_what_is_usable(tmp_path):
    """CPUs 0 and 4 are two threads of one core; 1 is its neighbour on the same socket."""
    cpu = linux_cpu(xeon(tmp_path), frozenset({0, 1, 4}))
    assert (cpu.sockets, cpu.physical, cpu.logical) == (1, 2, 3)
    l3 = cpu.cache("L3")
    assert l3 is not None
    assert l3.instances == 1


@pytest.mark.parametrize(
    ("files", "quota", "usable"),
    [
        ({"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/cpu.max": "250000 100000\n"}, 2.5, 2),
        ({"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/cpu.max": "max 100000\n"}, None, 4),
        # A limit of the parent holds too, and a container may see only the mount point of its group.
        (
            {
                "proc/self/cgroup": "0::/outer/app\n",
                "sys/fs/cgroup/outer/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/outer/app/cpu.max": "300000 100000\n",
            },
            0.5,
            1,
        ),
        ({"proc/self/cgroup": "0::/../host/path\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3.0, 3),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            1.5,
            1,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            None,
            4,
        ),
    ],
)
def test_quota_of_control_groups(tmp_path, files, quota, usable):
    cpu = linux_cpu(write(xeon(tmp_path), files), ALL)
    assert (cpu.quota, cpu.usable) == (quota, usable)


def test_memory_limit_of_a_control_group(tmp_path):
    files = {"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": f"{8 * 2**30}\n"}
    assert linux_cpu(write(xeon(tmp_path), files), ALL).memory_bytes == 8 * 2**30


def test_a_machine_that_tells_nothing_is_unknown_not_zero(tmp_path):
    cpu = linux_cpu(tmp_path, frozenset({0, 1}))
    assert (cpu.physical, cpu.sockets, cpu.memory_bytes, cpu.numa_nodes, cpu.max_frequency_hz) == (None,) * 5
    assert (cpu.caches, cpu.simd, cpu.quota, cpu.governor) == ((), (), None, None)
    assert cpu.model == platform.machine()
    assert cpu.usable == 2
    assert current_clock(tmp_path) is None


def test_arm_is_named_by_its_numbers(tmp_path):
    info = "processor\t: 0\nFeatures\t: fp asimd bf16 sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
    cpu = linux_cpu(write(tmp_path, {"proc/cpuinfo": info}), frozenset({0}))
    assert cpu.model == "implementer 0x41 part 0xd4f"
    assert cpu.simd == ("asimd", "bf16", "sve")


def test_virtual_machines_are_recognised(tmp_path):
    info = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: avx2 hypervisor\n\n"
    root = write(tmp_path, {"proc/cpuinfo": info})
    assert linux_cpu(root, frozenset({0})).virtualization == "hypervisor"
    write(root, {"sys/class/dmi/id/sys_vendor": "QEMU\n"})
    assert linux_cpu(root, frozenset({0})).virtualization == "qemu"


def test_lists_of_the_kernel():
    assert expand_list("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert expand_list("") == []


def test_this_machine_has_a_name_and_a_core():
    cpu = read_cpu()
    assert cpu.model
    assert cpu.usable >= 1
    assert cpu is read_cpu()
