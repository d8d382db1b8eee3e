"""Writes the parts of docs/ that are made from the code."""

from tools.pages import DOCS, MADE, fresh

for name in MADE:
    (DOCS / name).write_text(fresh(name), encoding="utf-8")
