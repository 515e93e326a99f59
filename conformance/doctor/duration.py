"""How long will the run take?"""

from __future__ import annotations

from conformance.doctor.finding import Finding, ok, warning
from conformance.duration import in_words
from conformance.estimate import Estimate, beyond_budget


def check(estimate: Estimate, budget_minutes: float | None) -> Finding:
    """The estimate, against the named run's budget where there is one."""
    record = estimate.record()
    text = f"the run: {in_words(record)}"
    figures = {"estimated_s": record["duration_s"], "learnt_s": record["learnt_s"]}
    beyond = "" if budget_minutes is None else beyond_budget(estimate, 60 * budget_minutes)
    if beyond:
        found, _, advice = beyond.partition(". ")
        return warning("time", found, advice, **figures)
    return ok("time", text, **figures)
