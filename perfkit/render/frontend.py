"""The script and style of the TensorBoard plugin: the HTML report's own, joined with `reports/tensorboard/`.

The parts share one scope, as in the HTML report (`perfkit.render.html`); but the report comes later, by a request.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from perfkit import units
from perfkit.content import content_dir
from perfkit.render.modules import read_template

# Scripts of the report's page that the plugin has another form of, or no use for.
_PAGE_ONLY = {"answers.js", "trace.js", "views/together.js", "views/job.js", "../ranks/ranks.js", "main.js"}
_SCRIPTS = re.compile(r"\{\{script ([^}]*)\}\}")
PLUGIN_PARTS = ("server.js", "views.js", "plugin.js")
_ASSETS = (".js", ".css")


def script() -> str:
    """One ES module that exports `render`, as TensorBoard asks of a dynamic plugin."""
    reports = content_dir("reports")
    parts = [read_template(reports / "report" / name) for name in report_parts()]
    parts += [read_template(reports / "tensorboard" / name) for name in PLUGIN_PARTS]
    constants = {"LADDERS": units.LADDERS, "OVERVIEW": _overview(reports / "report" / "template.html")}
    head = [f"const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    return "".join([*head, *parts, "export { render };\n"])


def report_parts() -> list[str]:
    """Return the scripts of the report's page that the plugin uses, relative to `reports/report/`."""
    template = read_template(content_dir("reports") / "report" / "template.html")
    found = _SCRIPTS.search(template)
    return [name for name in (found[1].split() if found else []) if name not in _PAGE_ONLY]


def style() -> str:
    """The report's style, the plugin's, and the timeline's."""
    reports = content_dir("reports")
    files = ("report/style.css", "charts/style.css", "tensorboard/style.css", "timeline/timeline.css")
    return "".join(read_template(reports / file) for file in files)


def timeline_file(name: str) -> tuple[str, str] | None:
    """The text and media type of a file of the timeline's front end; None for any other name."""
    folder = content_dir("reports") / "timeline"
    if not folder.is_dir() or name not in {p.name for p in folder.iterdir() if p.suffix in _ASSETS and p.is_file()}:
        return None
    return read_template(folder / name), "text/css" if name.endswith(".css") else "text/javascript"


def _overview(template: Path) -> str:
    """The markup of the report's page that the overview fills: its body, without scripts, tabs and panels."""
    body = read_template(template).partition("<body>")[2].partition("</body>")[0]
    without_scripts = re.sub(r"<script\b.*?</script>|\{\{.*?\}\}", "", body, flags=re.DOTALL)
    return re.sub(
        r'<div class="sticky">.*?</div>|<div id="together"></div>|<a class="skip".*?</a>|<noscript>.*?</noscript>',
        "",
        without_scripts,
        flags=re.DOTALL,
    )
