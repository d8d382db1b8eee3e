"""Ranks on several hosts: what meets where, and a whole run of two hosts that are one machine."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfkit.capture.ranks import files, hosts
from perfkit.capture.ranks.group import Group
from perfkit.errors import RunFailed, UsageError
from perfkit.run_folder import Settings, read_manifest
from tests.capture.test_ranks import free_ports

SMALL = Path(__file__).parent / "small.py"
TWO = Settings(workload="small", preset="one", batch_size=32, ranks=2, parallel="ddp", hosts=2)


@pytest.mark.full
def test_two_hosts_make_one_run(tmp_path, run_cli):
    """Each has a working folder of its own, so that the run's folder, a relative path, is seen by the first alone."""
    meeting = ["--nnodes", "2", "--rdzv-endpoint", f"localhost:{free_ports(1)}"]
    work = ["run", SMALL, "--ranks", "2", "--steps", "2", "--warmup", "0", *meeting]
    for name in ("host0", "host1"):
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor() as pool:
        other = pool.submit(run_cli, [*work, "--node-rank", "1"], cwd=tmp_path / "host1")
        first = run_cli([*work, "--node-rank", "0", "--out", "run"], cwd=tmp_path / "host0")
        second = other.result()
    assert (first.rc, second.rc) == (0, 0), first.stdout + first.stderr + second.stderr
    assert "Host 1 of 2 waits for host 0 at localhost." in second.stderr
    found = read_manifest(tmp_path / "host0" / "run")
    eager = found.backend("eager")
    assert found.world.ranks == 2 and found.settings.hosts == 2 and eager.status == "ok"
    assert [len(rank.steps_ns) for rank in eager.ranks] == [2, 2]
    assert all((tmp_path / "host0" / "run" / "eager" / rank.trace).stat().st_size > 1000 for rank in eager.ranks)
    assert not (tmp_path / "host1" / "run").exists()


def test_ranks_that_do_not_start_are_a_failure_of_their_own(tmp_path, monkeypatch):
    ending = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    monkeypatch.setattr("perfkit.capture.ranks.group.torchrun", lambda *_: ending)
    with Group("eager", TWO, tmp_path / "eager" / "log.txt", {}, print, hosts.Meeting("localhost", 29500)) as group:
        group.begin("prepare", settings=TWO, backend="eager")
        with pytest.raises(RunFailed, match=r"eager's ranks did not start. Its last words: the port is taken"):
            group.result()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, ""), "2 hosts meet at --rdzv-endpoint HOST:PORT, and '' is none"),
        ((0, "host0"), "'host0' is none"),
        ((1, "host0:99999"), "'host0:99999' is none"),
        ((2, "host0:29500"), "--node-rank 2 is none of 2 hosts"),
    ],
)
def test_hosts_that_cannot_meet(given, said):
    with pytest.raises(UsageError, match=said):
        hosts.meeting(TWO, *given)


def test_one_host_meets_nobody():
    assert hosts.meeting(TWO.alone(), 0, "") is None
    with pytest.raises(UsageError, match="are for several hosts"):
        hosts.meeting(TWO.alone(), 0, "host0:29500")


def test_each_backend_has_a_port_of_its_own():
    first, second = (hosts.meeting(TWO, 1, "host0:29500").options(i) for i in (0, 1))
    assert "host0:29500" in first and "host0:29501" in second and first[first.index("--node-rank") + 1] == "1"


def test_what_a_rank_sends_is_written_beside_the_others(tmp_path):
    results = [{"trace": "rank0.json"}, {"trace": "rank1.json", files.SENT: b"made there"}, None]
    files.keep(tmp_path, results)
    assert (tmp_path / "rank1.json").read_bytes() == b"made there" and files.SENT not in results[1]
