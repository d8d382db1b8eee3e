"""The documentation as a site: every link leads somewhere, and a page loads nothing from the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|link|iframe)[^>]*\s(?:src|href)=\"(https?://[^\"]+)\"[^>]*>")


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "tools/docs_site.py", out], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_the_network(tmp_path):
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    written = {p.relative_to(ROOT).with_suffix(".html") for p in (ROOT / "docs").rglob("*.md") if p.name != "README.md"}
    assert {p.relative_to(tmp_path / "site") for p in pages} >= written
    loaded = {url for page in pages for url in LOADED.findall(page.read_text())}
    assert not loaded
    assert "Absent is NaN" in (tmp_path / "site/api/perfkit.table.html").read_text()


@pytest.mark.full
def test_a_broken_link_fails_the_build(tmp_path):
    for name in ("mkdocs.yml", "LICENSE", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name in ("docs", "examples", "benchmarks", "perfkit", "workloads"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/docs_site.py").write_bytes((ROOT / "tools/docs_site.py").read_bytes())
    with (tmp_path / "README.md").open("a") as page:
        page.write("\n[gone](docs/no-such-page.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1 and "no-such-page.md" in done.stderr
