"""Ranks on several hosts: what meets where, and a whole run of two hosts that are one machine."""

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfkit.errors import RunFailed, UsageError
from perfkit.run.ranks import files, hosts, rendezvous
from perfkit.run.ranks.group import RankProcesses
from perfkit.run.ranks.meeting import Meeting, meeting_of
from perfkit.run.ranks.rendezvous import Rendezvous, begun
from perfkit.run_folder import Settings, read_manifest
from tests.run.test_ranks import free_ports

SMALL = Path(__file__).parents[1] / "support" / "run" / "small.py"
TWO = Settings(workload="small", preset="one", batch_size=32, ranks=2, parallel="ddp", hosts=2)


@pytest.mark.full
def test_two_hosts_make_one_run(tmp_path, run_cli):
    """Each has a working folder of its own, so that the run's folder, a relative path, is seen by the first alone."""
    meeting = ["--nnodes", "2", "--rdzv-endpoint", f"localhost:{free_ports(2)}"]
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


@pytest.fixture
def first():
    """Host 0 at a free port, in a run that ends well."""
    with Rendezvous(Meeting("localhost", free_ports(2))) as rendezvous:
        yield rendezvous


def second(first):
    return Meeting(first.meeting.host, first.meeting.port, 1)


def soon(what):
    """The first value of `what()` that is not empty."""
    until = time.monotonic() + 20
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.01)
    return found


def test_ranks_that_do_not_start_are_a_failure_of_their_own(tmp_path, monkeypatch, first):
    ending = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    monkeypatch.setattr("perfkit.run.ranks.group.torchrun", lambda *_: ending)
    with RankProcesses("eager", TWO, tmp_path / "eager" / "log.txt", {}, print, first) as group:
        group.begin("prepare", settings=TWO, backend="eager")
        with pytest.raises(RunFailed, match=r"eager's ranks did not start. Its last words: the port is taken"):
            group.result()


def test_ranks_of_a_host_that_has_left_are_not_waited_for(tmp_path, monkeypatch, first):
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr("perfkit.run.ranks.group.torchrun", lambda *_: waiting)
    other = begun(second(first), list)
    with RankProcesses("eager", TWO, tmp_path / "eager" / "log.txt", {}, print, first) as group:
        assert next(other) == 0
        other.close()
        group.begin("prepare", settings=TWO, backend="eager")
        with pytest.raises(RunFailed, match=r"Host 1 left the run before eager's ranks came"):
            group.result()


def test_a_host_that_comes_late_hears_of_every_backend():
    with Rendezvous(Meeting("localhost", free_ports(1))) as first:
        first.begin(0)
        other = begun(second(first), list)
        assert next(other) == 0
        first.begin(2)
        assert next(other) == 2
    assert list(other) == []


def test_host_0_that_goes_before_the_end_is_noticed():
    first = Rendezvous(Meeting("localhost", free_ports(1)))
    first.begin(0)
    other = begun(second(first), list)
    assert next(other) == 0
    first.__exit__(KeyboardInterrupt)
    with pytest.raises(RunFailed, match="Host 0 left the run"):
        next(other)


def test_failed_ranks_are_told_to_host_0_and_strangers_are_none_of_the_hosts(first):
    socket.create_connection((first.meeting.host, first.meeting.port)).close()
    failed = [[3], []]
    other = begun(second(first), lambda: failed.pop() if failed else [])
    first.begin(0)
    assert next(other) == 0
    first.begin(1)
    assert next(other) == 1
    assert soon(lambda: first.trouble(3)) == "Host 1's ranks ended by a failure" and not first.trouble(0)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (b"", "is not perfkit. Choose a free port"),
        (b"HTTP/1.1 400 Bad Request\n", "is not perfkit"),
        (b"perfkit 99\n", "Host 0 has perfkit 99, this host"),
    ],
)
def test_what_listens_there_is_looked_at(monkeypatch, says, said):
    monkeypatch.setattr(rendezvous, "_ANSWER_S", 0.5)
    with socket.create_server(("localhost", 0)) as listener, ThreadPoolExecutor() as pool:
        answer = pool.submit(lambda: listener.accept()[0].sendall(says))
        with pytest.raises(RunFailed, match=said):
            next(begun(Meeting("localhost", listener.getsockname()[1], 1), list))
        answer.result()


def test_a_taken_port_and_a_host_that_is_not_found_are_sentences(monkeypatch, first):
    with pytest.raises(RunFailed, match=f"cannot listen at port {first.meeting.port}: Address already in use"):
        Rendezvous(first.meeting)
    monkeypatch.setattr(rendezvous, "WAIT_S", 0)
    with pytest.raises(RunFailed, match=r"Host 0 was not found at localhost:1 within 0 s: Connection refused"):
        next(begun(Meeting("localhost", 1, 1), list))


def test_a_host_beside_the_first_starts_what_begins_and_ends_with_the_run(monkeypatch):
    ranks = {"good": "pass", "bad": "raise SystemExit(1)"}
    programs = iter(ranks.values())
    monkeypatch.setattr(hosts, "torchrun", lambda *_: [sys.executable, "-c", next(programs)])
    with ThreadPoolExecutor() as pool:
        with Rendezvous(Meeting("localhost", free_ports(1))) as first:
            other = pool.submit(hosts.serve, TWO, second(first), list(ranks))
            first.begin(0)
            first.begin(1)
            assert soon(lambda: first.trouble(1)) == "Host 1's ranks ended by a failure"
        with pytest.raises(RunFailed, match=r"The ranks of bad on this host ended by a failure"):
            other.result(60)


def test_a_backend_that_this_host_lacks_ends_its_part(first):
    first.begin(0)
    with pytest.raises(RunFailed, match="thunder is not available on this host"):
        hosts.serve(TWO, second(first), ["thunder"], ["thunder"])
    assert soon(lambda: first.trouble(0)) == "Host 1 left the run"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, ""), "2 hosts meet at --rdzv-endpoint HOST:PORT, and '' is not of this form"),
        ((0, "host0"), "'host0' is not of this form"),
        ((1, "host0:99999"), "'host0:99999' is not of this form"),
        ((2, "host0:29500"), "--node-rank 2 is not one of 2 hosts"),
    ],
)
def test_hosts_that_cannot_meet(given, said):
    with pytest.raises(UsageError, match=said):
        meeting_of(TWO, *given)


def test_one_host_meets_nobody():
    assert meeting_of(TWO.alone(), 0, "") is None
    with pytest.raises(UsageError, match="are for several hosts"):
        meeting_of(TWO.alone(), 0, "host0:29500")


def test_each_backend_has_a_port_of_its_own():
    first, second = (meeting_of(TWO, 1, "host0:29500").options(i) for i in (0, 1))
    assert "host0:29501" in first and "host0:29502" in second and first[first.index("--node-rank") + 1] == "1"


def test_what_a_rank_sends_is_written_beside_the_others(tmp_path):
    results = [{"trace": "rank0.json"}, {"trace": "rank1.json", files.SENT: b"made there"}, None]
    files.keep(tmp_path, results)
    assert (tmp_path / "rank1.json").read_bytes() == b"made there" and files.SENT not in results[1]
