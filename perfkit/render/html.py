"""The report as one HTML file that needs nothing else: data, charts, style and script inside, the network barred.

The look is a template folder (`reports/report/`). `template.html` names what goes where: `{{include FILE}}`,
`{{style FILE}}`, `{{script FILE…}}`, `{{modules FILE}}`, `{{data}}`, `{{answers}}`, `{{title}}`, `{{csp}}`.
The charts are drawn by `reports/charts/`. The content security policy admits exactly the scripts that are in the file,
by their hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

import msgspec

from perfkit import units
from perfkit.analysis.results import Report
from perfkit.content import content_dir
from perfkit.errors import InputError
from perfkit.render import modules
from perfkit.render.cells import clean
from perfkit.render.modules import read_template
from perfkit.render.views import Answers, encoded

TEMPLATE = "report"
ROWS = 200  # of a table that the page draws as it is
_INCLUDE = re.compile(r"\{\{include ([\w./-]+)\}\}\n")
_PLACE = re.compile(r"\{\{(\w+)((?: [\w./-]+)*)\}\}")


def render(report: Report, template: Path | None = None, answers: Answers | None = None) -> str:
    """The whole page. `template` is a folder; the built-in one when left out.

    `answers` hold what its views show next to the report (`perfkit.render.views.answers`). Raises `InputError` when the
    template is incomplete.
    """
    return page(template or content_dir("reports") / TEMPLATE, report.title, data(report), answers)


def page(folder: Path, title: str, content: str, answers: Answers | None = None) -> str:
    """The template in `folder` with `title` and `content` (JSON that is safe in a script); raises as `render` does."""
    hashes: list[str] = []
    parts = _Parts(folder, title, content, hashes, answers or Answers())
    template = _INCLUDE.sub(lambda found: read_template(folder / found[1]), read_template(folder / "template.html"))
    pieces = _PLACE.split(template)
    made = [pieces[0]]
    for name, arguments, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        made += [parts.place(name, arguments.split()), text]
    policy = _policy(hashes)
    return "".join(policy if piece is _POLICY else piece for piece in made)


_POLICY = "(the policy: it is known when all scripts are)"


class _Parts:
    """The content of each place of a template."""

    def __init__(self, folder: Path, title: str, content: str, hashes: list[str], answers: Answers) -> None:
        self.folder, self.title, self.content, self.hashes, self.answers = folder, title, content, hashes, answers

    def place(self, name: str, files: list[str]) -> str:
        """Return what replaces a place and its files. Raises `InputError` for an unknown one."""
        match name:
            case "csp":
                return _POLICY
            case "title":
                return html.escape(clean(self.title))
            case "data":
                return self.content
            case "answers":
                return _safe(msgspec.json.encode(self.answers))
            case "modules" if len(files) == 1:
                return self._script(f"globalThis.perfkitTimeline = {modules.bundle(self.folder / files[0])};")
            case "style":
                return f"<style>\n{self._joined(files)}</style>"
            case "script":
                return self._script(_SCRIPT.replace("BODY", self._joined(files)))
        where = self.folder / "template.html"
        raise InputError(f"{where} has an unknown place {{{{{name}}}}}.", "docs/reports.md lists the places.")

    def _joined(self, files: list[str]) -> str:
        return "".join(read_template(self.folder / file) for file in files)

    def _script(self, source: str) -> str:
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        self.hashes.append(f"'sha256-{digest}'")
        return f"<script>{source}</script>"


# The files of a template's script share one scope of their own, and start with the report and the scales.
_SCRIPT = """(() => {
"use strict";
const { report: REPORT, page: PAGE, ladders: LADDERS } = JSON.parse(document.getElementById("data").textContent);
BODY})();
"""


def data(report: Report) -> str:
    """The report and the scales as JSON that is safe inside a script element: no < of it can end the element."""
    return embedded(lean(report), report_data(report))


def embedded(report: object, page: object = None) -> str:
    """Return the data of a template's script: `report`, its page and the scales, long texts cut, without <."""
    return _safe(encoded({"report": report, "page": page, "ladders": units.LADDERS}))


def lean(report: Report) -> Report:
    """The report without what its page makes for itself: it sorts the kernels by headroom when asked to."""
    backends = [msgspec.structs.replace(b, headroom=[]) for b in report.backends]
    return msgspec.structs.replace(report, backends=backends)


def report_data(report: Report) -> dict[str, object]:
    """The sections of the report in their order, as what its page's script draws."""
    from perfkit.render.page import page_data
    from perfkit.render.report import ReportLength, report_page

    return page_data(report_page(report, ReportLength(rows=ROWS)), views=True)


def _safe(content: bytes) -> str:
    return content.replace(b"<", b"\\u003c").decode()


def _policy(hashes: list[str]) -> str:
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )
