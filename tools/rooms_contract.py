"""An import-linter contract that reads like the design's table: each room, and the rooms that it may import.

Rooms are the direct children of the root package. A listed room that does not exist is ignored; a room that exists
and is not listed is one, so that the table stays whole.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

ANY = "*"


def parse_room(line: str) -> tuple[str, frozenset[str]]:
    """`"render: analysis, content"` → the room and what it may import besides itself and the shared rooms."""
    room, _, allowed = line.partition(":")
    return room.strip(), frozenset(name.strip() for name in allowed.split(",") if name.strip())


def forbidden_imports(
    imports: set[tuple[str, str]], table: dict[str, frozenset[str]], shared: frozenset[str]
) -> list[tuple[str, str]]:
    """Return the `imports`, pairs of rooms (importer, imported), that the table does not allow, sorted."""
    return sorted(
        (importer, imported)
        for importer, imported in imports
        if importer != imported and imported not in shared and not {imported, ANY} & table.get(importer, frozenset())
    )


class RoomsContract(Contract):
    """Options: `rooms`, lines of `room: allowed, allowed…` (`*` allows all); `shared`, rooms that all may import."""

    type_name = "rooms"

    # Declared as fields; the base class replaces each by the option's value.
    rooms: Any = fields.ListField(subfield=fields.StringField())
    shared: Any = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare every import between rooms, lazy ones included, with the table."""
        table = dict(parse_room(line) for line in self.rooms)
        (root,) = self.session_options["root_packages"]
        links = {
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if importer.startswith(f"{root}.") and imported.startswith(f"{root}.")
        }
        rooms_of = {link: (link[0].split(".")[1], link[1].split(".")[1]) for link in links}
        bad = set(forbidden_imports(set(rooms_of.values()), table, frozenset(self.shared)))
        broken = sorted(link for link, rooms in rooms_of.items() if rooms in bad)
        unlisted = sorted(child for child in graph.find_children(root) if child.split(".")[1] not in table)
        return ContractCheck(kept=not broken and not unlisted, metadata={"broken": broken, "unlisted": unlisted})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that the table forbids, and each room that it does not know."""
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}", bold=False)
        for room in check.metadata["unlisted"]:
            output.print_error(f"{room} is not in the table of rooms (pyproject.toml)", bold=False)
        output.new_line()
