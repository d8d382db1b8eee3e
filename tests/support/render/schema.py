"""A JSON Schema of the few keywords that docs/brief-schema.json uses: validation, and its fields with their types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "brief-schema.json").read_text())
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
_KNOWN = {"$schema", "$defs", "title", "description", "type", "const", "enum", "required", "additionalProperties",
          "properties", "items", "minItems", "maxItems", "$ref"}  # fmt: skip


def wrong(value: Any, schema: Mapping[str, Any] = SCHEMA, at: str = "answer") -> Iterator[str]:
    """Where `value` is not as the schema says, in sentences."""
    schema = _resolved(schema)
    assert set(schema) <= _KNOWN, f"{at}: keywords that this test does not know"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is {value!r}, not {schema['const']!r}"
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{at} is {value!r}, no {kind}"
    elif kind == "object":
        known = schema.get("properties", {})
        yield from (f"{at} lacks {name}" for name in schema.get("required", []) if name not in value)
        yield from (f"{at} has {name}, which the schema does not know" for name in value if name not in known)
        for name in set(value) & set(known):
            yield from wrong(value[name], known[name], f"{at}.{name}")
    elif kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{at} has {len(value)} entries"
        for number, one in enumerate(value):
            yield from wrong(one, schema["items"], f"{at}[{number}]")


def fields(schema: Mapping[str, Any] = SCHEMA, at: str = "") -> Iterator[str]:
    """Every field as `path: type`; `!` marks one that is always there."""
    schema = _resolved(schema)
    if schema.get("type") == "array":
        yield from fields(schema["items"], f"{at}[]")
    elif schema.get("type") == "object":
        for name, one in schema.get("properties", {}).items():
            always = "!" if name in schema.get("required", []) else ""
            yield from fields(one, f"{at}.{name}{always}".lstrip("."))
    else:
        yield f"{at}: {schema.get('type') or ' | '.join(schema['enum'])}"


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found
