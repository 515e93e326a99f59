"""What a server says of itself in /openapi.json: its paths, and the fields that each takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_DEEP = 16


@dataclass(frozen=True)
class Offer:
    """`paths` is None where a server does not describe itself; `fields` are the names in a path's request."""

    paths: frozenset[str] | None = None
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offer:
        """What an OpenAPI document says; nothing where it is none."""
        paths = document.get("paths")
        if not isinstance(paths, dict) or not paths:
            return cls()
        return cls(
            frozenset(map(str, paths)),
            {str(path): frozenset(_names(_request(entry), document, _DEEP)) for path, entry in paths.items()},
        )

    def takes(self, path: str, name: str) -> bool | None:
        """Whether the path's request has a field of that name; None where nobody says."""
        return name in self.fields[path] if self.fields.get(path) else None


def _request(entry: Any) -> Any:
    for key in ("post", "requestBody", "content", "application/json", "schema"):
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry


def _names(schema: Any, document: Mapping[str, Any], depth: int) -> Iterator[str]:
    """The properties of a schema and of all that it refers to or is one of."""
    if not isinstance(schema, dict) or depth == 0:
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from map(str, properties)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        found: Any = document
        for part in reference[2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        yield from _names(found, document, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key) or () if isinstance(schema.get(key), list) else ():
            yield from _names(each, document, depth - 1)
