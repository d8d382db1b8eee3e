"""Build the documentation as a site: the Markdown of the repository, and a page for each public module.

    python tools/docs_site.py [OUT]      site/ by default; `make docs` runs this

The pages are laid out in a temporary folder as in the repository, so that the same relative links work in both places.
A broken link, a link to a missing section, or a page that is in no menu fails the build (exit code 1), as does a public
module whose docstrings cannot be read.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "examples", "benchmarks/README.md")
# Modules that content files and a user's own code may import, in the order of the menu.
MODULES = ("perfkit", "perfkit.api", "perfkit.profiling", "perfkit.table", "perfkit.workloads", "perfkit.backends",
           "perfkit.kernels", "perfkit.functional", "perfkit.handwritten", "perfkit.timing", "perfkit.ranges",
           "perfkit.errors", "perfkit.units")  # fmt: skip
LINK = re.compile(r"\]\(([^)#:]+)[^)]*\)")


def main() -> int:
    """Lay the pages out, build the site strictly, and say where it is."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    with tempfile.TemporaryDirectory(prefix="perfkit-docs-") as pages:
        lay_out(Path(pages))
        settings = load_config(str(ROOT / "mkdocs.yml"), docs_dir=pages, site_dir=str(out), strict=True)
        assert isinstance(settings.nav, list)
        settings.nav += [
            {"API": [f"api/{module}.md" for module in MODULES]},
            {"Decisions": [f"docs/decisions/{page.name}" for page in sorted((ROOT / "docs/decisions").glob("*.md"))]},
        ]
        try:
            settings.plugins.on_startup(command="build", dirty=False)
            build(settings)
        except Abort as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            settings.plugins.on_shutdown()
    print(f"The documentation is in {out}/index.html: open it in a browser. To search it as well, serve it:")
    print(f"  {sys.executable} -m http.server --bind 127.0.0.1 --directory {out}")
    return 0


def lay_out(pages: Path) -> None:
    """Copy every page and every file that one links to, and write the API pages."""
    for name in PAGES:
        source, target = ROOT / name, pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for page in pages.rglob("*.md"):
        for link in LINK.findall(page.read_text()):
            linked = ROOT / page.parent.relative_to(pages) / link
            target = page.parent / link
            if linked.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(linked, target)
    api = pages / "api"
    api.mkdir()
    for module in MODULES:
        (api / f"{module}.md").write_text(f"# {module}\n\n::: {module}\n    options: {{show_root_heading: false}}\n")


if __name__ == "__main__":
    sys.exit(main())
