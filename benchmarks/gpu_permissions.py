"""Check perfkit's messages to a user without rights on a machine with a GPU, each refusal a real one.

    sudo python benchmarks/gpu_permissions.py [--only TEXT]

Runs perfkit as a user without groups and capabilities that cannot gain any (as in most containers), and refuses it one
thing at a time: the GPU's device files, ncu's look into the home folder, the folder of the report. Root's rights are
used for that alone, in mount namespaces that end with their case: nothing of the machine changes. Each case has the
exit code and the words that it must have; exit code 1 where one has not. Whether the counters themselves are refused
(ERR_NVGPUCTRPERM) is the driver's setting, which this does not touch: where all users may read them, the last case
shows that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOBODY = "65534"
RIGHTLESS = [
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
    "--no-new-privs",
]  # fmt: skip
PROGRAM = "import torch; print((torch.ones(1 << 20, device='cuda') + 1).sum().item())"
TINY = ["run", "gpt2", "--preset", "tiny", "--steps", "3", "--backend", "eager"]
CAPTURE = ["capture", "--tool", "ncu", "--set", "basic"]
CLOSED = "may not open the GPU's device files: /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0"
SETTINGS = "may not look for its settings in the home folder"


@dataclass(frozen=True)
class Case:
    """A command, what is refused to it, and the exit code and the words that it must end with."""

    refused: str  # "devices", "home", "folder", "" for nothing
    command: list[str]
    code: int
    says: str


CASES = [
    Case("devices", ["doctor"], 0, "this user may not open /dev/nvidiactl"),
    Case("devices", ["ceilings", "--device", "cuda"], 2, CLOSED),
    Case("devices", [*TINY, "--device", "cuda"], 2, CLOSED),
    Case("devices", [*TINY, "--device", "cuda", "--profiler", "ncu"], 2, CLOSED),
    Case("devices", ["bench", "gelu", "--device", "cuda"], 2, CLOSED),
    Case("devices", [*CAPTURE, "--out", "{mine}/report", "--", "python3", "-c", PROGRAM], 2, CLOSED),
    Case("home", [*CAPTURE, "--out", "{mine}/report", "--", "python3", "-c", PROGRAM], 2, SETTINGS),
    Case("home", [*TINY, "--device", "cuda", "--profiler", "ncu", "--out", "{mine}/uncounted"], 1, SETTINGS),
    Case("folder", [*CAPTURE, "--out", "{other}/report", "--", "python3", "-c", PROGRAM], 2, "may not write into"),
    Case("", [*CAPTURE, "--out", "{mine}/report", "--", "python3", "-c", PROGRAM], 0, "hardware counters 100 %"),
]


def main() -> int:
    """Run the chosen cases; return 0 where all are as they should be, 1 where one is not, 2 without root or a tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose refusal or command holds this")
    arguments = parser.parse_args()
    lacks = [tool for tool in ("setpriv", "unshare", "mount", "ncu") if shutil.which(tool) is None]
    if os.geteuid() != 0 or lacks:
        print(f"This needs root{', and on the PATH ' + ', '.join(lacks) if lacks else ''}.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="perfkit-permissions-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        chosen = [case for case in CASES if arguments.only in f"{case.refused} {' '.join(case.command)}"]
        results = [as_it_should(case, folder / str(number)) for number, case in enumerate(chosen)]
    print(f"# {sum(results)} of {len(results)} as they should be")
    return int(not all(results))


def as_it_should(case: Case, folder: Path) -> bool:
    """Run one case in `folder`; print its command, exit code and the sentence that counts."""
    for name, mode in (("mine", 0o777), ("other", 0o755), ("home", 0o700 if case.refused == "home" else 0o777)):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)
    words = [word.format(mine=folder / "mine", other=folder / "other") for word in case.command]
    command = [*RIGHTLESS, *environment(folder), sys.executable, "-m", "perfkit", *words]
    if case.refused == "devices":
        command = ["unshare", "--mount", "sh", "-c", close_devices(folder / "dev"), "sh", *command]
    done = subprocess.run(command, cwd=folder / "mine", capture_output=True, text=True)
    said = " ".join((done.stdout + " " + done.stderr).split())
    right = done.returncode == case.code and " ".join(case.says.split()) in said
    shown = " ".join(words).replace(str(folder), "…")
    print(f"\n{case.refused or 'nothing'} refused: perfkit {shown}\nexit code {done.returncode}", flush=True)
    print(sentence(done.stderr, said, case.says) if right else f"NOT AS IT SHOULD BE\n{done.stdout}\n{done.stderr}")
    return right


def environment(folder: Path) -> list[str]:
    """The user's own home and caches, and this perfkit."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return ["env", f"HOME={folder / 'home'}", f"PERFKIT_CACHE={folder / 'mine'}", f"PYTHONPATH={path}"]


def close_devices(folder: Path) -> str:
    """A shell program that lays device files of root's alone over the GPU's, and becomes what follows."""
    return (
        f"mkdir -p {folder} && for d in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]*; do "
        f"n={folder}/$(basename $d); cp -a $d $n && chmod 0660 $n && mount --bind $n $d || exit 9; done; "
        'exec "$@"'
    )


def sentence(stderr: str, said: str, wanted: str) -> str:
    """perfkit's own line where it complained, else the words around those that were wanted."""
    own = [line for line in stderr.splitlines() if line.startswith("perfkit:")]
    place = said.index(" ".join(wanted.split()))
    return own[-1] if own else f"… {said[max(0, place - 40) : place + 80]} …"


if __name__ == "__main__":
    sys.exit(main())
