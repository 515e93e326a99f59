"""A baseline: the record of an earlier run, beside which only new failures count against a later one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.names import UsageError
from conformance.results.comparison import compare, verdicts
from conformance.results.document import exit_code
from conformance.results.loading import Record, read_record
from conformance.results.output import RESULTS
from conformance.results.planted import is_void
from conformance.results.record import CaseResult


def read_baseline(path: Path, backend: str, output: Path | None = None) -> Record:
    """Read the baseline for a run of `backend` into the folder `output`; raises UsageError where it cannot be one."""
    record = read_record(path)
    recorded = record.document["run"]["backend"]
    if recorded != backend:
        raise UsageError(
            f"{record.path}: run.backend is {recorded!r}, but this run is of {backend!r}; "
            "a baseline must be a run of the same backend"
        )
    if output is not None and record.path.resolve() == (output / RESULTS).resolve():
        raise UsageError(
            f"{record.path}: a run into {output} replaces this baseline, and each failure would be new only once; "
            "keep it elsewhere, or give --output another folder"
        )
    return record


def compared(document: Mapping[str, Any], baseline: Record, redact: Callable[[Any], Any]) -> dict[str, Any]:
    """`document`, the content of a results.json, with the comparison under `baseline`; all else stays as it is."""
    changes = compare(verdicts(baseline.document), verdicts(document))
    results = [CaseResult.from_json(case) for case in document["cases"]]
    known = {change.case for change in changes.known}
    before = baseline.document["run"]
    block = {
        "file": str(baseline.path),
        "sha256": baseline.sha256,
        "conformance_version": baseline.document["conformance_version"],
        "started": before["started"],
        "plan_hash": before["plan_hash"],
        "exit_code": exit_code(
            results, interrupted=document["run"]["interrupted"], known=known, void=is_void(document)
        ),
        **changes.to_json(),
    }
    return {**document, "baseline": redact(block)}


def differences(baseline: Record, plan_hash: str, planned: Sequence[str]) -> list[str]:
    """Sentences on what makes the baseline's run another one than that of these planned cases; empty if nothing."""
    document, sentences = baseline.document, []
    run, cases = document["run"], {case["id"] for case in document["cases"]}
    if run["plan_hash"] != plan_hash:
        missing, gone = len(set(planned) - cases), len(cases - set(planned))
        sentences.append(
            f"the plan of the baseline {baseline.path} differs (suites, profile, catalogue, selection or version): "
            f"of this run's {len(planned)} cases {missing or 'none'} are not in it; "
            f"of its {len(cases)} cases {gone or 'none'} are not in this run"
        )
    if run["interrupted"]:
        sentences.append(
            f"the run of the baseline {baseline.path} was interrupted: {len(cases)} of its {run['planned']} cases "
            "have a verdict; what fails of the rest counts as new"
        )
    return sentences
