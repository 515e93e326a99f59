"""The end of a run: its record and what is made from it, from what the journal holds, as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from conformance.results.baseline import compared
from conformance.results.document import build_document, write_document
from conformance.results.journal import RunHeader, Start
from conformance.results.junit import write_junit
from conformance.results.loading import Record
from conformance.results.output import JUNIT, RESULTS
from conformance.results.planted import Planted
from conformance.results.record import CaseResult


def conclude(
    output: Path,
    header: RunHeader,
    starts: Sequence[Start],
    results: Sequence[CaseResult],
    not_covered: Sequence[str],
    planted: Sequence[Planted] | None,
    redact: Callable[[Any], Any],
    junit: str,
    baseline: Record | None,
    audit: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write results.json and junit.xml, in the flavour `junit`, to `output`; the content of the former.

    `planted` are the planted faults, None for a run that plants none; `audit` is the profile's, where it was asked for.
    Raises `OutputError`.

    How long the run took is told by the monotonic clock, and when it ended follows from when its last process began:
    a clock that was set in between makes neither negative.
    """
    last = starts[-1]
    document = build_document(
        header,
        results,
        finished=last.ended,
        duration_s=round(sum(start.seconds for start in starts), 3),
        resumed=[start.started for start in starts[1:]],
        interrupted=last.interrupted,
        counters=reduce(add, (start.counters for start in starts)),
        not_covered=not_covered,
        planted=planted,
        redact=redact,
    )
    if baseline is not None:
        document = compared(document, baseline, redact)
    if audit is not None:
        document["audit"] = redact(audit)
    write_document(document, output / RESULTS)
    write_junit(document, output / JUNIT, junit)
    return document
