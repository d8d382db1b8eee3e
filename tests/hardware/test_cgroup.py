"""Memory that a container's limit leaves, in both versions of control groups."""

from __future__ import annotations

import pytest

from perfkit.hardware import cgroup
from perfkit.run import memory
from tests.support.hardware.fakes import write


@pytest.fixture
def groups(tmp_path):
    """`make(membership, {file: content})`: the root of control groups as the process would see them."""

    def make(membership, files):
        content = {"proc/self/cgroup": membership} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
        return write(tmp_path, content)

    return make


def test_version_2_and_a_narrower_group_above(groups, monkeypatch):
    root = groups(
        "0::/ci/job\n",
        {
            "ci/job/memory.max": "max\n", "ci/job/memory.current": "100\n",
            "ci/memory.max": "2000\n", "ci/memory.current": "700\n", "ci/memory.stat": "anon 1\ninactive_file 50\n",
        },
    )  # fmt: skip
    assert cgroup.free_bytes(root) == 1350
    assert cgroup.memory_limit(root) == 2000
    monkeypatch.setattr(memory, "ROOT", root)
    assert memory.available_bytes() == 1350


def test_version_1(groups):
    root = groups(
        "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
        {
            "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5",
            "memory/docker/abc/memory.limit_in_bytes": "1000", "memory/docker/abc/memory.usage_in_bytes": "400",
            "memory/docker/abc/memory.stat": "cache 1\ntotal_inactive_file 30",
        },
    )  # fmt: skip
    assert cgroup.free_bytes(root) == 630


@pytest.mark.parametrize("membership", ["", "damaged", "0::/gone\n", "7:memory:/gone\n"])
def test_without_a_limit_nothing_is_said(groups, membership):
    assert cgroup.free_bytes(groups(membership, {})) is None


def test_a_group_that_is_full_leaves_nothing(groups):
    assert cgroup.free_bytes(groups("0::/\n", {"memory.max": "10", "memory.current": "12"})) == 0
