"""`models list`: the models of the catalogue, what they hold, where they are, and to which commit they are pinned."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from conformance.cli import OK
from conformance.cli.model_choice import chosen, selects
from conformance.names import printable
from conformance.size import in_words

if TYPE_CHECKING:
    from conformance.catalogue import Catalogue, Model
    from conformance.models.places import Place


def list_models(options: argparse.Namespace, catalogue: Catalogue) -> int:
    """Print those that were chosen, or all, as lines or as JSON; and what is incomplete or missing."""
    from conformance.models.lock import read_lock
    from conformance.models.places import locate

    lock = read_lock()
    models = chosen(options, catalogue) if selects(options) else list(catalogue.models)
    rows = [_row(model, locate(model, lock)) for model in models]
    if options.json:
        print(json.dumps(rows, indent=2))
        return OK
    lines = [("MODEL", "TIER", "ROLES", "ARCHITECTURE", "PARAMETERS", "DISK", "WHERE", "COMMIT")]
    lines += [
        (
            row["name"],
            row["tier"],
            ", ".join(row["roles"]),
            row["architecture"],
            "?" if row["parameters"] is None else _short(row["parameters"]),
            "?" if row["bytes"] is None else in_words(row["bytes"]),
            row["where"],
            row["revision"][:12] if row["revision"] else "-" if row["tier"] == "embedded" else "not pinned",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print(printable("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()))
    problems = [row["problem"] for row in rows if row["where"] == "incomplete"]
    for problem in problems:
        print(printable(problem))
    missing = sum(row["where"] == "missing" for row in rows)
    if missing:
        print(f"{missing} missing: python -m conformance models fetch NAME ..., or --all")
    return OK


def _row(model: Model, place: Place) -> dict[str, Any]:
    from dataclasses import replace

    from conformance.engines.shape import BYTES, parameters, read_shape

    shape = read_shape(replace(model, folder=place.folder).config_file)
    published = "generation" if model.architecture.endswith("ForCausalLM") else model.roles[0]
    count = None if shape is None else parameters(shape, published)
    size = sum(file.size for file in place.entry.files.values()) if place.entry is not None else None
    if size is None and shape is not None and count is not None:
        size = count * BYTES.get(shape.stored, 2)
    return {
        "name": model.name,
        "tier": model.tier,
        "roles": list(model.roles),
        "architecture": model.architecture,
        "hub": model.hub,
        "parameters": count,
        "bytes": size,
        "where": place.where,
        "folder": str(place.folder),
        "revision": place.revision,
        "pinned_by": "catalogue" if model.revision else "lock" if place.revision else None,
        "problem": place.problem,
    }


def _short(count: int) -> str:
    return f"{count / 1e9:.2f} G" if count >= 1e8 else f"{count / 1e6:.1f} M"
