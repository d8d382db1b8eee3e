"""How fast the timeline opens and pans in headless Chromium, under software rendering.

1 million generated events (goal: open in under 3 s, pan at 45 frames a second or more, on two cores): four threads
with six nested levels and four streams of kernels. Opening is timed in the page, from the bytes in memory to the first
frame; and also from the request of the page. Panning moves the window by 1 % a frame for two seconds at three
zooms; printed are frames a second, and the script's share of a frame, which says more on a busy machine. Then a search,
a click, and the sums over the whole capture, each until its result is known. Each figure is the median of `--runs` (3).
Takes a minute on an idle machine. `--events N`; `--trace PATH` opens a trace or the first backend of a run folder
instead, and times reading it too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from perfkit.readers import read  # noqa: E402
from perfkit.readers.kineto.recorded import HostTrace, host_traces  # noqa: E402
from perfkit.render.timeline import packed  # noqa: E402
from perfkit.table import build  # noqa: E402
from tests.conftest import find_chromium  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

THREADS, LEVELS, STREAMS = 4, 6, 4
FAMILIES = ["matmul", "elementwise", "reduction", "normalization", "attention", "copy"]
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>timeline</title>
<link rel="stylesheet" href="/timeline/timeline.css"><style>:root { color-scheme: light }</style>
<body style="margin: 12px"><div id="here"></div><script type="module">
import { mount } from "/timeline/timeline.js";
const buffer = await (await fetch("/data.bin")).arrayBuffer();
const begun = performance.now();
const shown = await mount(document.getElementById("here"), buffer, { hash: false });
await new Promise((drawn) => { const wait = () => shown.frames ? drawn() : requestAnimationFrame(wait); wait(); });
const now = performance.now();
Object.assign(globalThis, { shown, opened: now - begun, loaded: now, events: shown.data.count });
</script></body></html>"""
PAN = """async ([share, seconds]) => {
  const whole = shown.data.to - shown.data.from;
  shown.show({ from: shown.data.from + whole * 0.3, to: shown.data.from + whole * (0.3 + share) });
  const draw = shown.frame.bind(shown);
  let frames = 0, script = 0, step = 0.01;
  shown.frame = () => { const at = performance.now(); draw(); script += performance.now() - at; frames++; };
  const begun = performance.now();
  while (performance.now() - begun < 1000 * seconds) {
    const before = shown.view.from;
    shown.pan(step);
    if (shown.view.from === before) step = -step;
    await new Promise(requestAnimationFrame);
  }
  delete shown.frame;
  return [frames / ((performance.now() - begun) / 1000), script / frames];
}"""

ACTIONS = {
    "search ms": "shown.search('matmul')",
    "select ms": "shown.select(shown.data.count - 1)",
    "sums of everything ms": "shown.selectSpan(shown.data)",
}
TIMED = "() => { const at = performance.now(); ACTION; return performance.now() - at; }"


def generated(events: int) -> bytes:
    """A timeline of about `events`: a fifth are kernels."""
    random = np.random.default_rng(0)
    kernels = events // 5
    host = _host(events - kernels, random)
    length = np.rint(random.exponential(8_000, kernels) + 1_000)
    stream = random.integers(0, STREAMS, kernels)
    start = np.empty(kernels)
    for s in range(STREAMS):
        mine = stream == s
        start[mine] = np.cumsum(length[mine] + 2_000) - length[mine]
    order = np.argsort(start, kind="stable")
    family = random.integers(0, len(FAMILIES), kernels)
    names = [f"void {FAMILIES[f]}_kernel_{n}<float>(float*)" for f, n in zip(family[order], order % 97, strict=True)]
    table = build({
        "name": names,
        "family": [FAMILIES[f] for f in family[order]], "kind": ["gpu_kernel"] * kernels,
        "device": ["cuda:0"] * kernels,
        "stream": stream[order].tolist(), "order": list(range(kernels)), "start_ns": start[order],
        "duration_ns": length[order], "step": [0] * kernels,
    })  # fmt: skip
    return packed(table, "generated", {"profile": host})["profile"]


def _host(events: int, random: np.random.Generator) -> HostTrace:
    each = events // (THREADS * LEVELS)
    lane = np.repeat(np.arange(THREADS), each * LEVELS)
    depth = np.tile(np.arange(LEVELS), THREADS * each)
    top = np.cumsum(np.rint(random.exponential(30_000, THREADS * each).reshape(THREADS, each)) + 5_000, axis=1).ravel()
    start = np.repeat(top, LEVELS) + 100 * depth
    end = start + 4_000 - 300 * depth
    nothing = np.empty(0, np.int64)
    return HostTrace(
        [f"aten::operator_{i}" for i in range(300)], random.integers(0, 300, len(lane)), np.zeros(len(lane), np.int8),
        lane, [f"thread {i}" for i in range(THREADS)], depth, start, end, nothing, nothing,
    )  # fmt: skip


def measured(page: Page, url: str, seconds: float) -> dict[str, float]:
    """One opening and a pan at each zoom."""
    page.goto(url)
    page.wait_for_function("globalThis.opened", timeout=120_000)
    found: dict[str, float] = {"open ms": page.evaluate("opened"), "page ms": page.evaluate("loaded")}
    for share in (0.6, 0.1, 0.001):
        frames, script = page.evaluate(PAN, [share, seconds])
        found[f"frames/s at {share:.1%}"] = frames
        found[f"script ms a frame at {share:.1%}"] = script
    for name, action in ACTIONS.items():
        found[name] = page.evaluate(TIMED.replace("ACTION", action))
    return found


def main() -> None:
    """Draw a timeline in Chromium at every zoom, and print how long a frame takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of panning at each zoom")
    options = parser.parse_args()
    begun = time.perf_counter()
    content = _of_trace(options.trace) if options.trace else generated(options.events)
    print(f"columns made in {time.perf_counter() - begun:.1f} s, {len(content) / 1e6:.1f} MB")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data.bin").write_bytes(content)
        (root / "index.html").write_text(PAGE)
        (root / "timeline").symlink_to(ROOT / "reports" / "timeline")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _report(f"http://127.0.0.1:{server.server_address[1]}/index.html", options)
        server.shutdown()


def _of_trace(path: Path) -> bytes:
    begun = time.perf_counter()
    source = read(path)
    hosts = host_traces(source)
    print(f"{path.name} read in {time.perf_counter() - begun:.1f} s")
    return next(iter(packed(source, path.name, hosts).values()))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _report(url: str, options: argparse.Namespace) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        print(f"Chromium {browser.version}, 1280 × 900")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        runs = [measured(page, url, options.seconds) for _ in range(options.runs)]
        print(f"{page.evaluate('events'):,} events")
        for name in runs[0]:
            values = [run[name] for run in runs]
            print(f"{name:32} {statistics.median(values):8.1f}   ({min(values):.1f} to {max(values):.1f})")
        browser.close()


if __name__ == "__main__":
    main()
