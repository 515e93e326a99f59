"""results.json: the record of a run, from which every report is made. Its schema is `results.schema.json`."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.catalogue import NO_MODEL
from conformance.disclaimed import SUITE
from conformance.judgement import decisive
from conformance.results.journal import RunHeader
from conformance.results.margin import worst_margin
from conformance.results.output import write_atomically
from conformance.results.plain import to_plain
from conformance.results.planted import Planted, block, void_reasons
from conformance.results.record import CaseResult, Counters, was_decided_afresh
from conformance.verdict import Verdict

SCHEMA_VERSION = 1

EXIT_MEANINGS = {
    0: "everything selected was executed or is rightly skipped, and passed",
    1: "there are failures",
    2: "the run was interrupted",
    5: "nothing was executed",
    6: "incomplete: nothing failed, but something selected could not run",
}
"""What the exit codes of a run that ended mean."""

BASELINE_MEANINGS = {
    **EXIT_MEANINGS,
    0: "no new failures; all else that was selected passed or is rightly skipped",
    1: "there are failures that the baseline does not have",
    6: "incomplete: no new failures, but something selected could not run",
}
"""The same for a run beside a baseline."""

AUDIT_MEANINGS = {
    1: "the audit saw something else run than was requested",
    6: "incomplete: nothing failed, but the audit names claims of the profile without an executed PASS",
}
"""The same where it is the audit of the profile that makes the exit code."""


def exit_code(
    results: Iterable[CaseResult], *, interrupted: bool = False, known: Collection[str] = (), void: bool = False
) -> int:
    """The exit code of a run with these results: a key of `EXIT_MEANINGS`.

    `known` are the ids of cases that may fail, because a baseline has them as failures. A `void` run is a failure:
    a planted fault was not found.

    An interrupted run says so whatever it found. Failures weigh more than what could not run; a run in which no
    case was executed is never a success, whatever the reason. What the engine refused though it was launched is
    incomplete; what the plan knew not to be supported is rightly skipped.
    """
    every = list(results)
    seen = {result.verdict for result in every}
    if interrupted:
        return 2
    if void or any(result.verdict.is_failure and result.id not in known for result in every):
        return 1
    if not any(verdict.is_executed for verdict in seen):
        return 5
    return 6 if any(result.verdict.is_incomplete or _is_refused(result) for result in every) else 0


def final_exit_code(document: Mapping[str, Any]) -> int:
    """What the process exits with: the code that the verdicts make, or, beside a baseline, that of new failures.

    An audit of the profile makes a pass incomplete, or, as what is incomplete, a failure; it excuses nothing.
    """
    code = int(document.get("baseline", document["run"])["exit_code"])
    audited = int(document.get("audit", {"exit_code": 0})["exit_code"])
    return audited if code == 0 or (code == 6 and audited == 1) else code


def _is_refused(result: CaseResult) -> bool:
    """Whether the plan wanted the case, as the profile claims it, and what was launched did not support it."""
    return result.verdict is Verdict.NOT_SUPPORTED and result.attempts > 0


def build_document(
    header: RunHeader,
    results: Sequence[CaseResult],
    *,
    finished: str,
    duration_s: float | None = None,
    resumed: Sequence[str] = (),
    interrupted: bool = False,
    counters: Counters | None = None,
    not_covered: Sequence[str] = (),
    planted: Sequence[Planted] | None = None,
    redact: Callable[[Any], Any] = to_plain,
) -> dict[str, Any]:
    """The content of results.json: JSON types only, cases in the plan's order.

    `finished` is ISO 8601, UTC, and so is each time in `resumed`, at which another process went on with the run;
    without `duration_s` the time from start to end is taken. `not_covered` are sentences on what a PASS of this
    backend does not cover; those that the results themselves tell are put before them. `planted` are
    the planted faults of a run that plants any. `redact` (`Redactor`) is applied to the whole.
    Raises ValueError where the results are not those of the plan: a case twice, one that was not planned, or, in a
    run that was not interrupted, one without a result.
    """
    planned = _in_plan_order(header, results, interrupted)
    # Before anything is derived: what is derived must follow from what a reader sees.
    ordered = [CaseResult.from_json(redact(result.to_json())) for result in planned]
    document = {
        "schema_version": SCHEMA_VERSION,
        "conformance_version": header.version,
        "run": {
            "backend": header.backend,
            "profile": {"path": header.profile_path, "sha256": header.profile_sha256},
            "plan_hash": header.plan_hash,
            "argv": list(header.argv),
            "started": header.started,
            "finished": finished,
            "duration_s": _seconds_between(header.started, finished) if duration_s is None else duration_s,
            "resumed": list(resumed),
            "exit_code": exit_code(ordered, interrupted=interrupted, void=bool(void_reasons(planted or ()))),
            "interrupted": interrupted,
            "planned": len(header.planned),
            "budget_minutes": header.budget_minutes,
            "estimate": dict(header.estimate),
            "counters": dataclasses.asdict(counters or Counters()),
        },
        "facts": to_plain(header.facts),
        "summary": summarise(ordered),
        "not_covered": [*_told_by(ordered, len(header.planned)), *not_covered],
        "cases": [result.to_json() for result in ordered],
    }
    if planted is not None:
        document["planted"] = block([Planted.from_json(redact(one.to_json())) for one in planted])
    redacted: dict[str, Any] = redact(to_plain(document))
    return redacted


def _in_plan_order(header: RunHeader, results: Sequence[CaseResult], interrupted: bool) -> list[CaseResult]:
    by_id = {result.id: result for result in results}
    twice = [case for case, count in Counter(result.id for result in results).items() if count > 1]
    unplanned = sorted(set(by_id) - set(header.planned))
    missing = [] if interrupted else [case for case in header.planned if case not in by_id]
    for cases, what in ((twice, "have two results"), (unplanned, "were not planned"), (missing, "have no result")):
        if cases:
            raise ValueError(f"{len(cases)} cases {what}, of {len(header.planned)} planned: {cases[:5]}")
    return [by_id[case] for case in dict.fromkeys(header.planned) if case in by_id]


def _seconds_between(started: str, finished: str) -> float:
    begin, end = (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (started, finished))
    return round((end - begin).total_seconds(), 3)


def summarise(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Counts per verdict, per suite, per target and per suite on a target, each with its worst margin."""
    suites: dict[str, list[CaseResult]] = {}
    targets: dict[str, list[CaseResult]] = {}
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        suites.setdefault(result.suite, []).append(result)
        targets.setdefault(result.target.id, []).append(result)
        groups.setdefault((result.suite, result.target.id), []).append(result)
    return {
        "verdicts": count_verdicts(results),
        "suites": [{"suite": suite, **_tally(members)} for suite, members in suites.items()],
        "targets": [{"target": target, **_tally(members)} for target, members in targets.items()],
        "groups": [
            {"suite": suite, "target": target, **_tally(members)} for (suite, target), members in groups.items()
        ],
    }


def count_verdicts(results: Iterable[CaseResult]) -> dict[str, int]:
    """How many cases have each verdict that occurs, in the order of the enumeration."""
    counts = Counter(result.verdict for result in results)
    return {str(verdict): counts[verdict] for verdict in Verdict if counts[verdict]}


def _tally(results: Sequence[CaseResult]) -> dict[str, Any]:
    worst = worst_margin(
        (result.id, figure)
        for result in results
        for judgement in decisive(result.judgements)
        for figure in judgement.figures
    )
    return {"verdicts": count_verdicts(results), "worst": None if worst is None else worst.to_json()}


def _told_by(results: Sequence[CaseResult], planned: int) -> list[str]:
    """Sentences on what the results themselves show not to be covered."""
    sentences = []
    if len(results) < planned:
        sentences.append(f"{planned - len(results)} of {planned} planned cases have no result.")
    for verdict in Verdict:
        if verdict.is_failure or verdict is Verdict.PASS:
            continue
        members = [result for result in results if result.verdict is verdict and not _is_refused(result)]
        if members:
            sentences.append(f"{_cases(len(members), 'is', 'are')} {verdict}: {_reasons(members)}.")
    refused = [result for result in results if _is_refused(result)]
    if refused:
        claims = "the profile claims it" if len(refused) == 1 else "the profile claims them"
        sentences.append(
            f"{_cases(len(refused), 'was', 'were')} refused by the engine although {claims}: {_reasons(refused)}."
        )
    second = [result.id for result in results if result.verdict is Verdict.PASS and was_decided_afresh(result)]
    if second:
        sentences.append(
            f"{_cases(len(second), 'was', 'were')} just beyond a limit on the suite's own prompts and decided on four "
            f"times as many fresh ones, where all limits hold: {', '.join(second)}."
        )
    # What is disclaimed was called to see it refused: nothing is thereby covered.
    executed = [result for result in results if result.verdict.is_executed and result.suite != SUITE.name]
    if executed:
        models = sorted({result.model for result in executed} - {NO_MODEL})
        if models:
            told = ", ".join(models)
            sentences.append(f"Only these models were run: {told}. Other weights and sizes are not covered.")
        targets = sorted({result.target.id for result in executed})
        sentences.append(f"Only these targets were run: {', '.join(targets)}. Nothing is said of any other.")
    return sentences


def _reasons(results: Sequence[CaseResult]) -> str:
    reasons = Counter(result.reason or "no reason given" for result in results)
    if len(reasons) == 1:  # the sentence has counted them
        return next(iter(reasons))
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())


def _cases(count: int, one: str, several: str) -> str:
    return f"1 case {one}" if count == 1 else f"{count} cases {several}"


def write_document(document: Mapping[str, Any], path: Path | str) -> None:
    """Write results.json to `path`, whole or not at all; raises `OutputError`."""
    # ASCII only: a lone surrogate in an engine's text has no UTF-8, but it has a JSON escape.
    write_atomically(Path(path), (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("ascii"))
