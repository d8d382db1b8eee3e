"""Run programs alone and under `perfkit capture` in turns, and name what differs.

    python benchmarks/measuring/unharmed.py [--rounds 2] [--json] PROGRAM…
    python benchmarks/measuring/unharmed.py "tests/support/programs/unharmed/endings.py raise 12"

A PROGRAM is a script, or a word in quotes with its arguments; one that does not end in .py begins with its own
interpreter ("python -m torch.distributed.run … ranks.py"). Compared are

    output, errors   standard output and error; in errors the frames of perfkit in a traceback are left out
    exit code
    counters         of Dynamo, of all processes that ended by Python's exit
    threads          of Python, alive when a process ends; hooks (sys.setprofile and settrace) and warnings' filters
    left             after a complete recording (its last step is the one with source lines) no function of perfkit may
                     stand in torch when the program's threads have ended; asked where steps were recorded: a launcher
                     that runs none waits for one to its end
    before, after    medians of step times before and after the recording, where the program writes them: seconds, one
                     a line, to the file that the environment variable UNHARMED_STEPS names

What differs between two runs alone is compared without its digits, and where that differs too, it is no difference:
"differs alone as well". A step is slower when its ratio passes the limit and every run under capture was slower than
every one alone. One line a program; exit code 1 when one differs. A program takes 2 × rounds runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).resolve().parent / "probe"
STARTED = """PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$UNHARMED_PROBE" exec "$@" >"$UNHARMED/out" 2>"$UNHARMED/err" """
OWN = str(ROOT / "perfkit") + os.sep
FRAME = re.compile(rf'  File "{re.escape(OWN)}[^\n]*\n(?:    [^\n]*\n)*')
DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
BEFORE, AFTER = 1.03, 1.02  # limits of step times
COLD = 3  # steps at the start that are not timed


@dataclass
class Run:
    """One run of a program. `steps` are its step times in seconds, empty where it writes none."""

    code: int
    seen: dict[str, Any]  # what is compared, by its name
    steps: list[float] = field(default_factory=list)
    recorded: int = 0  # steps in the run folder
    complete: bool = False  # the program did not end before the step with source lines, which is the last
    said: str = ""  # by perfkit


def run(words: Sequence[str], options: argparse.Namespace, captured: bool) -> Run:
    """Run a program once, in a shell that sends its streams to files, the same in both cases."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),  # alone as well
            "UNHARMED": scratch,
            "UNHARMED_PROBE": str(PROBE),
            "UNHARMED_PERFKIT": OWN,
            "UNHARMED_STEPS": str(folder / "steps"),
            # What comes from Inductor's cache counts nothing, and under capture all is generated anew.
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        started = ["sh", "-c", STARTED, "sh", *words]
        if captured:
            order = ["--warmup", str(options.warmup), "--steps", str(options.steps), "--out", str(folder / "run")]
            started = [sys.executable, "-m", "perfkit", "capture", *order, "--", *started]
        ended = subprocess.run(
            started, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=options.limit
        )
        code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
        return _read(folder, code, ended.stderr)


def _read(folder: Path, code: int, said: str) -> Run:
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    records = [record for record in records if record.pop("torch")]
    recorded, complete = _recorded(folder / "run")
    left = sorted({name for record in records for name in record.pop("left")})
    names = ("counters", "threads", "hooks", "filters")
    seen: dict[str, Any] = {name: sorted((one[name] for one in records), key=json.dumps) for name in names}
    out, errors = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    seen |= {"output": out, "errors": FRAME.sub("", errors), "exit code": code, "left": left}
    times = folder / "steps"
    steps = [float(line) for line in times.read_text().split()] if times.is_file() else []
    return Run(code, seen, steps, recorded, complete, said)


def _recorded(folder: Path) -> tuple[int, bool]:
    """The number of steps that the first process of a run folder recorded, and whether the step with lines came too."""
    manifest = folder / "run.json"
    if not manifest.is_file():
        return 0, False
    said = json.loads(manifest.read_text())
    backends = said["backends"]
    return len(backends[0]["profiled_ns"]) if backends else 0, "No source lines: the program ended" not in str(said)


def compare(alone: Sequence[Run], captured: Sequence[Run], steps: int) -> tuple[dict[str, str], list[str]]:
    """Return what differs, each with how, and what differs alone as well; `steps` are a complete recording."""
    differences: dict[str, str] = {}
    unsteady = []
    complete = all(one.recorded >= steps and one.complete for one in captured)
    if not alone[0].code:  # perfkit documents that it exits with 1 where it recorded nothing
        for one in captured:
            one.seen["exit code"] = 0 if not one.recorded and one.code == 1 else one.code
    for name in alone[0].seen:
        if name == "left" and not complete:
            continue
        for plain in (lambda value: value, _without_digits):
            first, *others = [plain(one.seen[name]) for one in alone]
            if all(other == first for other in others):
                different = [one.seen[name] for one in captured if plain(one.seen[name]) != first]
                if different:
                    differences[name] = _difference(alone[0].seen[name], different[0], plain)
                break
        else:
            unsteady.append(name)
    return differences, unsteady


def _without_digits(value: Any) -> Any:
    return DIGITS.sub("0", value) if isinstance(value, str) else value


def _difference(one: Any, other: Any, plain: Callable[[Any], Any]) -> str:
    """The first line in which two texts differ, made `plain`, or both values."""
    if isinstance(one, str) and isinstance(other, str):
        lines = [*one.splitlines(), "(the end)"], [*other.splitlines(), "(the end)"]
        pair = next(
            (pair for pair in zip(*lines, strict=False) if plain(pair[0]) != plain(pair[1])),
            ("a line's end", "another"),
        )
        return f"{_short(pair[0])} became {_short(pair[1])}"
    if isinstance(one, list) and isinstance(other, list):
        gone, new = [x for x in one if x not in other], [x for x in other if x not in one]
        return f"{_short(gone)} became {_short(new)}" if gone or new else f"{len(one)} became {len(other)}"
    return f"{one} became {other}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f'"{text[:100]}…"' if len(text) > 100 else f'"{text}"'


def pace(alone: Sequence[Run], captured: Sequence[Run], options: argparse.Namespace) -> dict[str, Any]:
    """Medians of step times in seconds before and after the recording, of each run, and their ratios."""
    first = options.warmup + options.steps + 1 + COLD  # one step more warms the profiler up
    result: dict[str, Any] = {}
    for name, span, limit in (("before", slice(COLD, options.warmup), BEFORE), ("after", slice(first, None), AFTER)):
        sides = [[statistics.median(one.steps[span]) for one in runs if one.steps[span]] for runs in (alone, captured)]
        if not all(sides):
            continue
        ratio = statistics.median(sides[1]) / statistics.median(sides[0])
        slower = ratio > limit and min(sides[1]) > max(sides[0])
        result[name] = {"alone": sides[0], "captured": sides[1], "ratio": ratio, "slower": slower}
    return result


def command(program: str) -> list[str]:
    """The words of a program as it is given."""
    words = shlex.split(program)
    if words[0].endswith(".py"):
        return [sys.executable, *words]
    return [sys.executable if word == "python" else word for word in words]


def judged(program: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program in turns, and say what differs."""
    alone, captured = [], []
    for _ in range(options.rounds):
        alone.append(run(command(program), options, captured=False))
        captured.append(run(command(program), options, captured=True))
    differences, unsteady = compare(alone, captured, options.steps)
    times = pace(alone, captured, options)
    differences |= {
        f"steps {name}": f"{one['ratio']:.3f} times as long" for name, one in times.items() if one["slower"]
    }
    return {
        "program": program,
        "exit code": alone[0].code,
        "recorded": [one.recorded for one in captured],
        "differences": differences,
        "differs alone as well": unsteady,
        "steps": times,
        "said": _last(captured) if not captured[0].recorded else "",
    }


def _last(captured: Sequence[Run]) -> str:
    """The last words of perfkit, which say why it recorded nothing."""
    lines = [line.strip() for line in captured[0].said.splitlines() if line.strip()]
    return " ".join(lines[-2:])


def line(verdict: dict[str, Any]) -> str:
    """One line about a program."""
    parts = [f"{name}: {how}" for name, how in verdict["differences"].items()] or ["unharmed"]
    parts += [f"differs alone as well: {', '.join(verdict['differs alone as well'])}"] * bool(
        verdict["differs alone as well"]
    )
    parts += [f"steps {name} {one['ratio']:.3f}" for name, one in verdict["steps"].items() if not one["slower"]]
    parts.append(f"recorded {'/'.join(str(count) for count in verdict['recorded'])}")
    return f"{verdict['program']}  exit code {verdict['exit code']}; " + "; ".join(parts)


def main(arguments: Iterable[str] | None = None) -> int:
    """Run and print; return 1 when a program differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="a script, in quotes with its arguments")
    parser.add_argument("--rounds", type=int, default=2, help="runs alone, and as many under capture (default 2)")
    parser.add_argument("--warmup", type=int, default=10, help="perfkit's --warmup (default 10)")
    parser.add_argument("--steps", type=int, default=3, help="perfkit's --steps (default 3)")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a run may take (default 300)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a program")
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    if options.rounds < 2:
        parser.error("At least two rounds are needed, to see what differs alone.")
    differ = 0
    for program in options.programs:
        verdict = judged(program, options)
        differ += bool(verdict["differences"])
        print(json.dumps(verdict) if options.json else line(verdict), flush=True)
    if not options.json:
        print(f"{differ} of {len(options.programs)} programs differ.")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
