"""A tool and its program: whose output is whose, the limit of time, and that nothing stays behind."""

import os
import sys
import time

import pytest

from perfkit.capture.nsight.process import follow
from perfkit.errors import Unavailable


def run(script: str, limit_s: float | None = 60.0):
    told, printed = [], []
    ended = follow(
        [sys.executable, "-c", script], lambda line: line.startswith("=="), told.append, printed.append, {}, limit_s
    )
    return ended, told, printed


def test_lines_of_the_tool_and_of_the_program():
    ended, told, printed = run(
        "import sys\nprint('==A== one\\nhello'); print('world', file=sys.stderr)\n"
        "print('==B== end', end='', flush=True)\nsys.exit(3)"
    )
    assert ended.code == 3 and ended.said == ["==A== one", "==B== end"]
    assert sorted(printed) == ["hello", "world"] == sorted(ended.printed)
    assert ended.last_words.endswith(ended.printed[-1])
    assert told[-1] == "==B== end"


def test_a_line_is_told_while_it_grows():
    _, told, _ = run(
        "import sys, time\nfor part in ('==A== 0%', '...50%', '...100%\\n'):\n"
        "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.4)"
    )
    assert told[0] == "==A== 0%" and told[-1] == "==A== 0%...50%...100%" and len(told) >= 3


def test_output_that_is_no_text_and_no_line():
    ended, _, printed = run("import os; os.write(1, b'\\xff\\x00tail\\rmore')")
    assert printed == ["\ufffd\x00tail", "more"] and not ended.said


def test_the_limit_ends_the_tool_and_what_it_started(tmp_path):
    note = tmp_path / "pid"
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    ended, _, _ = run(script, limit_s=3.0)
    assert ended.timed_out and ended.code != 0
    assert not _runs(int(note.read_text()))


def test_a_child_that_keeps_the_stream_open_does_not_keep_perfkit(tmp_path):
    note = tmp_path / "pid"
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))"
    )
    ended, _, _ = run(script)
    assert ended.code == 0 and not ended.timed_out
    assert not _runs(int(note.read_text()))


def test_an_interruption_ends_the_tool_too(tmp_path):
    note = tmp_path / "pid"
    script = (
        f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); print('==', flush=True); time.sleep(600)"
    )

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow([sys.executable, "-c", script], lambda line: line.startswith("=="), interrupt, print)
    assert not _runs(int(note.read_text()))


def test_a_tool_that_is_not_there(tmp_path):
    with pytest.raises(Unavailable, match="cannot be started"):
        follow([str(tmp_path / "nothing")], bool, print, print)


def test_a_death_by_a_signal_is_named():
    ended, _, _ = run("import os; os.abort()")
    assert ended.how == "died with SIGABRT"


def _runs(pid: int) -> bool:
    """Return whether a process runs (a zombie that nobody waited for does not), within a moment."""
    for _ in range(50):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return False
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.1)
    return True
