"""Memory that a container's limit leaves, in both versions of control groups."""

from __future__ import annotations

import pytest

from perfkit.run import cgroup, memory


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """`make(membership, {file: content})`: control groups as the process would see them."""

    def make(membership, files):
        monkeypatch.setattr(cgroup, "_ROOT", tmp_path / "cgroup")
        monkeypatch.setattr(cgroup, "_MEMBERSHIP", tmp_path / "membership")
        (tmp_path / "membership").write_text(membership)
        for name, content in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    return make


def test_version_2_and_a_narrower_group_above(groups):
    groups(
        "0::/ci/job\n",
        {
            "ci/job/memory.max": "max\n", "ci/job/memory.current": "100\n",
            "ci/memory.max": "2000\n", "ci/memory.current": "700\n", "ci/memory.stat": "anon 1\ninactive_file 50\n",
        },
    )  # fmt: skip
    assert cgroup.free_bytes() == 1350
    assert memory.available_bytes() == 1350


def test_version_1(groups):
    groups(
        "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
        {
            "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5",
            "memory/docker/abc/memory.limit_in_bytes": "1000", "memory/docker/abc/memory.usage_in_bytes": "400",
            "memory/docker/abc/memory.stat": "cache 1\ntotal_inactive_file 30",
        },
    )  # fmt: skip
    assert cgroup.free_bytes() == 630


@pytest.mark.parametrize("membership", ["", "damaged", "0::/gone\n", "7:memory:/gone\n"])
def test_without_a_limit_nothing_is_said(groups, membership):
    groups(membership, {})
    assert cgroup.free_bytes() is None


def test_a_group_that_is_full_leaves_nothing(groups):
    groups("0::/\n", {"memory.max": "10", "memory.current": "12"})
    assert cgroup.free_bytes() == 0
