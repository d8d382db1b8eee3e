"""ES modules as one classic script: for a file that must hold all it needs, under a policy that admits scripts by hash.

Each module becomes a function of its own, in the order in which they need each other; so names stay as private as in
modules. Understood is what `reports/timeline/` uses: `import { a, b } from "./file.js";` on one line, `export` before a
declaration, and `export { a, b };`. Everything else that modules can do is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from perfkit.errors import InputError

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";$', re.MULTILINE)
_DECLARED = re.compile(r"^export (?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
_LISTED = re.compile(r"^export \{([^}]*)\};$", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b", re.MULTILINE)


def read_template(path: Path) -> str:
    """The text of a template's file. Raises `InputError` when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"The report template lacks {path}.", "Install perfkit again, or correct the template."
        ) from error


def bundle(entry: Path) -> str:
    """An expression that gives the exports of the module `entry` as an object.

    Raises `InputError` for a file that is missing, or uses of modules what is not understood.
    """
    made: dict[str, str] = {}
    _add(entry, made, ())
    parts = [f"const {_variable(name)} = (() => {{\n{body}}})();\n" for name, body in made.items()]
    return f"(() => {{\n{''.join(parts)}return {_variable(entry.name)};\n}})()"


def _add(path: Path, made: dict[str, str], importing: tuple[str, ...]) -> None:
    if path.name in importing:
        raise InputError(f"{path} imports itself, by way of {', '.join(importing)}.", "Correct the template.")
    if path.name in made:
        return
    source = read_template(path)
    for found in _IMPORT.finditer(source):
        _add(path.parent / found[2], made, (*importing, path.name))
    made[path.name] = _body(path, source)


def _body(path: Path, source: str) -> str:
    names = _DECLARED.findall(source)
    for listed in _LISTED.findall(source):
        names += [name.strip() for name in listed.split(",")]
    source = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = {_variable(found[2])};", source)
    source = _LISTED.sub("", source)
    source = re.sub(r"^export (?=async |function|class|const|let)", "", source, flags=re.MULTILINE)
    if _LEFT.search(source):
        raise InputError(
            f"{path} imports or exports in a way that a report cannot embed.", "See perfkit/render/modules.py."
        )
    return f"{source}\nreturn {{ {', '.join(dict.fromkeys(names))} }};\n"


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
