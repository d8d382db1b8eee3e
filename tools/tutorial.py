"""Fill the tutorial (docs/tutorial-slow-dlrm.md) with what its commands print, and draw its pictures from their runs.

    python tools/tutorial.py --run FOLDER     run the page's commands in FOLDER first, on an idle machine
    python tools/tutorial.py FOLDER           the commands ran there: only fill in and draw

In the page a comment `<!-- shown of NAME: START .. END -->` stands before each block of output. NAME is the folder that
the command's --out names (or the command's own name); START is a pattern found in the first line that is shown, END one
with which the first line begins that no longer is (nothing: to the end).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.conftest import find_chromium  # noqa: E402
from tests.support.docs.commands import commands  # noqa: E402

PAGE = ROOT / "docs" / "tutorial-slow-dlrm.md"
SHOWN = re.compile(r"(<!-- shown of (\w+): (.+?) \.\. (.*?) -->\n```text\n)(.*?)(```\n)", re.DOTALL)
WIDTH = "100"
# Picture → the page that it is of, and the part of it.
PICTURES = {
    "tutorial-findings.png": ("lists/report.html", ".panel:not([hidden]) .card:has(.findings)"),
    "tutorial-sizes.png": ("sizes/sweep.html", ".chart"),
}


def name_of(command: str) -> str:
    """Return the name of a command's output: the last part of its --out, else the command's own name."""
    out = re.search(r"--out (?:\S*/)?(\w+)", command)
    return out[1] if out else command.split()[1]


def run(markdown: str, folder: Path) -> None:
    """Run the page's commands in `folder`, and keep what each prints as NAME.txt. Raises where one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": WIDTH, "NO_COLOR": "1"}
    for command in commands(markdown):
        arguments = command.text.split()[1:]
        print(command.text, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "perfkit", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE,
            text=True, check=True,
        )  # fmt: skip
        (folder / f"{name_of(command.text)}.txt").write_text(done.stdout, encoding="utf-8")


def filled(markdown: str, folder: Path) -> str:
    """Return the page with every block of output rewritten from the files in `folder`.

    Raises `SystemExit` where a command has left no output, or no line of it is as the comment says.
    """

    def block(found: re.Match[str]) -> str:
        lines = part(folder / f"{found[2]}.txt", found[3], found[4])
        return "\n".join([found[1].rstrip(), *lines, found[6]])

    return SHOWN.sub(block, markdown)


def part(file: Path, start: str, end: str) -> list[str]:
    """The lines of `file` from the first where `start` is found to the next that begins with `end` ("": to the end)."""
    if not file.is_file():
        raise SystemExit(f"{file} is missing: run with --run.")
    lines = file.read_text(encoding="utf-8").splitlines()
    first = next((i for i, line in enumerate(lines) if re.search(start, line)), None)
    if first is None:
        raise SystemExit(f"{start!r} is in no line of {file}.")
    rest = lines[first + 1 :]
    last = next((i for i, line in enumerate(rest) if end and re.match(end, line)), len(rest))
    return "\n".join(line.rstrip() for line in [lines[first], *rest[:last]]).rstrip().splitlines()


def draw(folder: Path, out: Path) -> None:
    """Draw `PICTURES` from the runs in `folder` with Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for name, (source, selector) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1100, "height": 2400})
            page.goto((folder / "runs" / source).resolve().as_uri())
            page.wait_for_selector("html[data-ready]")
            page.wait_for_timeout(600)  # for a chart to settle
            page.locator(selector).first.screenshot(path=out / name)
            page.close()
        browser.close()


def main() -> None:
    """Fill the tutorial with the figures of its runs, which `--run` makes first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="run the commands first")
    options = parser.parse_args()
    markdown = PAGE.read_text(encoding="utf-8")
    if options.run:
        run(markdown, options.folder)
    draw(options.folder, PAGE.parent / "images")
    PAGE.write_text(filled(markdown, options.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
