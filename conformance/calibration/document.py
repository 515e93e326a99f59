"""calibration.json: what was measured, on what, by which command, and what follows; written whole, read strictly."""

from __future__ import annotations

import datetime
import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.calibration.measuring import Calibration
from conformance.calibration.sample import Question, Sample
from conformance.calibration.summary import Entry, Run
from conformance.names import UsageError
from conformance.nulls.null import Null
from conformance.results import strict_json
from conformance.results.printable import one_line

FORMAT = 1
_FAULTS = 5


@dataclass(frozen=True)
class Origin:
    """Where a calibration comes from: what limits.toml says of the measurements that rest on it."""

    device: str
    command: str
    started: str  # ISO 8601, UTC
    facts: Mapping[str, Any]
    version: str
    backend: str


def document(
    origin: Origin,
    nulls: Sequence[Null],
    found: Calibration,
    entries: Sequence[Entry],
    *,
    pooled: Sequence[str],
    seconds: float,
    interrupted: bool,
) -> dict[str, Any]:
    """The content of calibration.json; `pooled` are the other calibrations that `entries` rest on as well."""
    taken = found.taken
    return {
        "format": FORMAT,
        "conformance": origin.version,
        "backend": origin.backend,
        "device": origin.device,
        "command": origin.command,
        "started": origin.started,
        "duration_s": round(seconds, 1),
        "interrupted": interrupted,
        "facts": dict(origin.facts),
        "nulls": {null.id: null.description for null in nulls},
        "judgements": {
            "counted": taken.judgements,
            "identical": taken.identical,
            "inconclusive": taken.inconclusive,
        },
        "alarms": [asdict(alarm) for alarm in taken.alarms],
        "not_measured": [asdict(each) for each in found.not_measured],
        "not_varied": dict(sorted(found.skipped.items())),
        "samples": _grouped(taken.samples),
        "pooled": list(pooled),
        "entries": {entry.limit.name: _entry(entry) for entry in entries},
    }


def run_of(content: Mapping[str, Any]) -> Run:
    """Which limits a calibration.json measured, and how."""
    entries = frozenset(row["entry"] for row in content["samples"])
    return Run(content["device"], content["started"][:10], content["command"], entries)


def samples_of(content: Mapping[str, Any]) -> list[Sample]:
    """The samples in a calibration.json."""
    keys = ("attention", "dtype", "precision", "suite", "test", "model")
    return [
        Sample(
            row["entry"], row["figure"], Question(content["device"], *(row[key] for key in keys)), null, float(value)
        )
        for row in content["samples"]
        for null, value in row["values"].items()
    ]


def read(path: Path) -> dict[str, Any]:
    """Another calibration's file. Raises UsageError, with its faults, where it is none."""
    import jsonschema

    try:
        content: dict[str, Any] = strict_json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no calibration that can be read: {error}") from error
    schema = json.loads(_schema_text())
    faults = [
        f"{path}: {error.json_path}: {one_line(error.message, 300)}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(content)
    ]
    faults = faults or _undated(content, path)
    if faults:
        more = [f"{path}: and {len(faults) - _FAULTS} more faults"] if len(faults) > _FAULTS else []
        raise UsageError(*faults[:_FAULTS], *more)
    return content


def _undated(content: Mapping[str, Any], path: Path) -> list[str]:
    day = content["started"][:10]
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        return [f"{path}: $.started: {day} is no date"]
    return []


@functools.cache
def _schema_text() -> str:
    return importlib.resources.files(__package__).joinpath("calibration.schema.json").read_text("utf-8")


def _grouped(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for each figure of a question, with its value for every null: a tenth of the text of a row for each."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for sample in samples:
        asked = {key: value for key, value in asdict(sample.question).items() if key != "device"}
        key = (sample.entry, sample.figure, *asked.values())
        row = rows.setdefault(key, {"entry": sample.entry, "figure": sample.figure, **asked, "values": {}})
        row["values"][sample.null] = _digits(sample.value)
    return list(rows.values())


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "limit": entry.limit.value,
        "floor": entry.limit.floor,
        "samples": entry.samples,
        "p999": _digits(entry.p999),
        "worst": _digits(entry.worst),
        "margin": _digits(entry.margin),
        "proposed": entry.proposed,
        "left_out": [
            {
                "backend": each.backend,
                "samples": each.samples,
                "proposed_by_others": each.proposed,
                "p999": _digits(each.p999),
                "worst": _digits(each.worst),
                "holds": each.holds,
            }
            for each in entry.left_out
        ],
    }


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
