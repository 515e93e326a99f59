"""The runs that a profile names, as `list` shows them: what each would run alone, how long that takes, its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from conformance.cli.arguments import Inputs
from conformance.duration import clock, in_brief

if TYPE_CHECKING:
    from conformance.timings import Timings


def run_records(inputs: Inputs, timings: Timings) -> list[dict[str, Any]]:
    """Each named run as JSON-able data. What else was selected is left aside but for the day that judges expiry."""
    from conformance.selection import Selection

    found = []
    for run in inputs.profile.runs.values():
        alone = replace(inputs, selection=Selection(run=run.name, as_of=inputs.selection.as_of))
        plan = alone.plan()
        found.append(
            {
                "name": run.name,
                "suites": list(run.suites),
                "tier": run.tier,
                "budget_minutes": run.budget_minutes,
                "cases": len(plan.cases),
                "to_run": sum(case.verdict is None for case in plan.cases),
                "estimate": alone.estimate(plan, timings).record(),
            }
        )
    return found


def run_lines(records: list[dict[str, Any]]) -> list[str]:
    """The same as text, one line a run."""
    if not records:
        return ["this profile names no runs; [runs.NAME] in it does (docs/add-a-backend.md)"]
    width = max(len(record["name"]) for record in records)
    lines = ["runs that the profile names (--run NAME):"]
    for record in records:
        suites = "every suite" if "*" in record["suites"] else ", ".join(record["suites"])
        models = "embedded models" if record["tier"] == "embedded" else "embedded and full-size models"
        budget, estimate = 60 * record["budget_minutes"], record["estimate"]
        over = "over its budget of" if estimate["duration_s"] > budget else "budget"
        lines.append(
            f"  {record['name']:{width}}  {suites}, {models}: {record['cases']} cases, {record['to_run']} to run; "
            f"estimate {in_brief(estimate)}; {over} {clock(budget)}"
        )
    return lines
