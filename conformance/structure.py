"""Structure of a TOML document against a JSON schema: every fault at once, each saying where, what and what else."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.names import did_you_mean

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_DATES = ("added", "expires")

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


def structure_faults(document: Any, schema_file: Path) -> list[str]:
    """All faults, as "WHERE: WHAT; WHAT WOULD BE RIGHT", in the order of the document's keys."""
    from jsonschema import Draft202012Validator

    schema = json.loads(schema_file.read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    found: dict[str, None] = dict.fromkeys(not_finite(document))
    for error in sorted(validator.iter_errors(_plain(document)), key=lambda error: [str(p) for p in error.path]):
        found.update(dict.fromkeys(_describe(error)))
    return list(found)


def not_finite(value: Any, path: tuple[Any, ...] = ()) -> Iterator[str]:
    """A sentence for each nan and inf: TOML has them; JSON, in which plans and results are told, has not."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where(path)}: {value} is no number that can be reckoned with; give a finite one"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from not_finite(each, (*path, key))


def where(path: Any) -> str:
    """A path into a document as people write it: `quirks[0].effect.skip`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the file"


def _describe(error: ValidationError) -> Iterator[str]:
    place = where(error.absolute_path)
    schema = error.schema if isinstance(error.schema, dict) else {}
    meaning = str(schema.get("description", ""))
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = schema.get("properties", {})
        for key in error.instance:
            if key not in known:
                yield f"{place}: unknown key {key!r}; {did_you_mean(key, known)}"
    elif error.validator == "required" and isinstance(error.instance, dict):
        for key in schema.get("required", ()):
            if key not in error.instance:
                part = schema.get("properties", {}).get(key, {}).get("description", "")
                yield f"{place}: {key!r} is missing" + (f"; it is {part}" if part else "")
    elif error.validator == "enum":
        hint = did_you_mean(str(error.instance), map(str, schema["enum"]))
        yield f"{place}: {error.instance!r} is not one of the known values; {hint}"
    elif error.validator == "type":
        kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        right = meaning or " or ".join(_TYPES[kind] for kind in kinds)
        yield f"{place}: {error.instance!r} is {_kind(error.instance)}; it should be {right}"
    elif error.validator in ("minItems", "minProperties", "minLength"):
        yield f"{place}: is empty" + (f"; it should be {meaning}" if meaning else "")
    elif error.validator == "uniqueItems":
        yield f"{place}: {error.instance!r} names something twice; name it once"
    else:
        yield f"{place}: {error.instance!r} will not do" + (f"; it should be {meaning}" if meaning else "")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    for kind, name in (
        (str, "text"),
        (int, "a whole number"),
        (float, "a number"),
        (list, "a list"),
        (dict, "a table"),
        (datetime.date, "a date"),
    ):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def _plain(value: Any) -> Any:
    """The dates that belong in a profile as JSON's: text. A date anywhere else is no text, and is reported as such."""
    if isinstance(value, dict):
        return {key: _as_text(each) if key in _DATES else _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value
