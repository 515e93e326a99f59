"""Pins: the commits that were fetched, written into a catalogue, so that everybody fetches the same ones."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path

from conformance.names import UsageError, unknown
from conformance.whole_file import whole_file

_TABLE = re.compile(r"\s*\[")
_HUB = re.compile(r"\s*hub\s*=")


def write_pins(catalogue: Path, commits: Mapping[str, str]) -> list[str]:
    """Put `revision` under the `hub` of each model of a models.toml that has none; the names that were written.

    Nothing else in the file changes. Raises UsageError where it is no catalogue of these models, or where one is
    pinned to another commit: a pin is changed by hand.
    """
    import tomli

    try:
        text = catalogue.read_bytes().decode("utf-8")  # with the ends of lines as they are
        before = tomli.loads(text)
        models = dict(before["models"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{catalogue}: no catalogue ({type(error).__name__}: {error}); give a models.toml") from None
    faults = [f"{catalogue}: {unknown('model', name, models)}" for name in commits if name not in models]
    faults += [
        f"{catalogue}: models.{name}.revision: {models[name]['revision']}, but fetched was {commit}; change it by hand"
        for name, commit in commits.items()
        if models.get(name, {}).get("revision", commit) != commit
    ]
    if faults:
        raise UsageError(*faults)
    missing = {name: commit for name, commit in commits.items() if "revision" not in models[name]}
    lines: list[str] = []
    current: str | None = None
    for line in text.splitlines(keepends=True):
        lines.append(line)
        if _TABLE.match(line):
            current = _model_of(line)
        elif current in missing and _HUB.match(line):
            end = line[len(line.rstrip("\r\n")) :] or "\n"
            lines.append(f"revision = {json.dumps(missing[current])}{end}")
    after = copy.deepcopy(before)
    for name, commit in missing.items():
        after["models"][name]["revision"] = commit
    written = "".join(lines)
    if tomli.loads(written) != after:
        names = ", ".join(missing)
        raise UsageError(f"{catalogue}: cannot be written to safely; add the revisions of {names} by hand")
    if missing:
        try:
            with whole_file(catalogue) as file:
                file.write(written.encode())
        except OSError as error:
            raise UsageError(f"{catalogue}: cannot be written ({error.strerror or error})") from error
    return list(missing)


def _model_of(line: str) -> str | None:
    """The model whose table a line like `[models."NAME"]` opens; None for other tables."""
    import tomli

    try:
        models = tomli.loads(line).get("models", {})
    except ValueError:
        return None
    return next(iter(models)) if isinstance(models, dict) and len(models) == 1 else None
