"""Measure time and memory to read torch.profiler traces, compared with HolisticTraceAnalysis.

    python benchmarks/reading/kineto_speed.py TRACE.json.gz --hta-python /tmp/hta/bin/python

TRACE should be a real one of about 100 000 events. perfkit reads it into its whole kernel table (`read_trace`);
HolisticTraceAnalysis only parses it (`hta.common.trace_parser.parse_trace_dataframe`). Every measurement is a process
of its own; imports are excluded from the time, and the memory is the process's peak. Runs are interleaved and the
median is taken. The trace is then repeated to 1 and 5 million events, which perfkit alone reads.

HolisticTraceAnalysis lives in an environment of its own, for it needs other versions than perfkit pins:

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0

Exits with 1 where a limit of `LIMITS` is missed. Without --hta-python only perfkit is measured.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMITS = {"times as fast": 7.0, "of its memory": 0.6}
LARGE = {1_000_000: (5.0, 350.0), 5_000_000: (20.0, 900.0)}  # events → seconds, MB

PERFKIT = """
import sys, time, resource
from pathlib import Path
import msgspec, numpy, pandas, pyarrow, pyarrow.compute, pyarrow.pandas_compat, pyarrow.vendored.version
from perfkit.readers.kineto.trace import read_trace
start = time.perf_counter()
table = read_trace(Path(sys.argv[1]))
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, len(table))
"""
HTA = """
import sys, time, resource, logging
logging.disable(logging.CRITICAL)
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
start = time.perf_counter()
found = parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, len(found[1]))
"""


def measured(python: str, program: str, trace: Path) -> tuple[float, float, int]:
    """Seconds, peak MB and rows of `program` on `trace` in a process of its own."""
    done = subprocess.run([python, "-c", program, str(trace)], capture_output=True, text=True, check=True)
    seconds, peak, rows = done.stdout.split()[-3:]
    return float(seconds), float(peak), int(rows)


def repeated(trace: Path, folder: Path, events: int) -> Path:
    """`trace` repeated to about `events` events in a gzip file: each copy later, with its own correlation ids."""
    text = gzip.decompress(trace.read_bytes()).decode() if trace.suffix == ".gz" else trace.read_text()
    opening = re.search(r'"traceEvents"\s*:\s*\[', text)
    if opening is None:
        raise SystemExit(f"{trace} is not a trace with a list of events")
    head, body = text[: opening.end()], text[opening.end() : text.rindex("]")]
    count = body.count('"ph"')
    starts = [float(t) for t in re.findall(r'"ts": ([\d.]+)', body)]
    span = max(starts) - min(starts) + 1e6
    target = folder / f"{events}.json.gz"
    with gzip.open(target, "wt", compresslevel=1) as file:
        file.write(head)
        for i in range(max(1, round(events / count))):
            if i:
                file.write(",")
            file.write(_later(body, i, span))
        file.write("]}")
    return target


def _later(body: str, copy: int, span: float) -> str:
    """The events `copy` spans later, with correlation ids of their own; whole µs stay whole as text too."""
    moved = re.sub(r'"ts": ([\d.]+)', lambda m: f'"ts": {float(m[1]) + copy * span:.{3 if "." in m[1] else 0}f}', body)
    return re.sub(r'"correlation": (\d+)', lambda m: f'"correlation": {int(m[1]) + copy * 10_000_000}', moved)


def compare(trace: Path, hta: str, rounds: int) -> bool:
    """Print both sides; True when the limits hold."""
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(measured(hta, HTA, trace))
        ours.append(measured(sys.executable, PERFKIT, trace))
    (time, memory), (their_time, their_memory) = (
        [statistics.median(c) for c in zip(*((r[0], r[1]) for r in runs), strict=True)] for runs in (ours, theirs)
    )
    print(f"HolisticTraceAnalysis: parsed in {their_time:.2f} s, {their_memory:.0f} MB")
    print(f"perfkit: whole table of {ours[0][2]} rows in {time:.3f} s, {memory:.0f} MB")
    ratio = statistics.median(t[0] / o[0] for o, t in zip(ours, theirs, strict=True))
    print(f"perfkit is {ratio:.1f} times as fast, in {memory / their_memory:.2f} of the memory")
    return ratio >= LIMITS["times as fast"] and memory / their_memory <= LIMITS["of its memory"]


def large(trace: Path, events: int, rounds: int) -> bool:
    """Read the trace repeated to `events`; True when the limits hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = repeated(trace, Path(folder), events)
        runs = [measured(sys.executable, PERFKIT, path) for _ in range(rounds)]
    seconds, memory = (statistics.median(values) for values in list(zip(*runs, strict=True))[:2])
    most_seconds, most_memory = LARGE[events]
    print(
        f"{events:,} events: {runs[0][2]:,} rows in {seconds:.1f} s (limit {most_seconds:.0f}), "
        f"{memory:.0f} MB (limit {most_memory:.0f})"
    )
    return seconds <= most_seconds and memory <= most_memory


def main() -> int:
    """Time the reader, and HTA's where asked for; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument(
        "--hta-python", default="", help="the Python of an environment with HolisticTraceAnalysis 0.5.0"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-large", action="store_true", help="leave out the repeated traces")
    options = parser.parse_args()
    good = [compare(options.trace, options.hta_python, options.rounds)] if options.hta_python else []
    if not options.no_large:
        good += [large(options.trace, events, max(1, options.rounds // 2)) for events in LARGE]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
