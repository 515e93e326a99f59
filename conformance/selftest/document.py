"""selftest.json: the record of a selftest. Its schema is `selftest.schema.json`."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import __version__
from conformance.false_alarms import CONFIDENCE
from conformance.results.output import write_atomically
from conformance.results.plain import to_plain
from conformance.selftest.elsewhere import RULES
from conformance.selftest.plot import svg
from conformance.selftest.tally import Verdict, cell, cells, suite_cells
from conformance.selftest.trial import Finding

SCHEMA_VERSION = 1
SELFTEST = "selftest.json"
PLOT = "selftest.svg"


def document(
    backend: str,
    plan_hash: str,
    argv: Sequence[str],
    facts: Mapping[str, Any],
    findings: Sequence[Finding],
    notes: Sequence[str],
    verdict: Verdict,
    *,
    started: str,
    seconds: float,
    redact: Callable[[Any], Any] = to_plain,
) -> dict[str, Any]:
    """The content of selftest.json: JSON types only. `started` is ISO 8601, UTC; `redact` is applied to the whole."""
    made: dict[str, Any] = redact(
        to_plain(
            {
                "schema_version": SCHEMA_VERSION,
                "conformance_version": __version__,
                "backend": backend,
                "plan_hash": plan_hash,
                "argv": list(argv),
                "started": started,
                "duration_s": round(seconds, 3),
                "exit_code": verdict.exit_code,
                "reasons": list(verdict.reasons),
                "notes": list(notes),
                "confidence": CONFIDENCE,
                "facts": dict(facts),
                "rules": [{"id": one.id, "description": one.description, "source": one.source} for one in RULES],
                "total": cell(findings).to_json(),
                "suites": [one.to_json() for one in suite_cells(findings)],
                "cells": [one.to_json() for one in cells(findings)],
                "trials": [one.to_json() for one in findings],
            }
        )
    )
    return made


def schema() -> dict[str, Any]:
    """The published JSON schema (draft 2020-12) of selftest.json."""
    text = importlib.resources.files(__package__).joinpath("selftest.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def write(made: Mapping[str, Any], findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Write selftest.json and selftest.svg, each whole or not at all; their paths. Raises `OutputError`."""
    files = [folder / SELFTEST, folder / PLOT]
    write_atomically(files[0], (json.dumps(made, indent=1, allow_nan=False) + "\n").encode("ascii"))
    title = f"conformance {__version__} selftest of {made['backend']}: detection against false alarms"
    write_atomically(files[1], svg(cell(findings), suite_cells(findings), title))
    return files
