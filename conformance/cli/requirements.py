"""The requirements of the selected suites, as `list --requirements` shows them, with the cases that hold each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.cli.arguments import Inputs

if TYPE_CHECKING:
    from conformance.plan import Plan


def requirement_records(plan: Plan, inputs: Inputs) -> list[dict[str, Any]]:
    """Every requirement of the selected suites as JSON-able data, in the suites' order; one without a case has 0."""
    run = inputs.profile.runs.get(inputs.selection.run or "")
    wanted = set(inputs.selection.suites or (run.suites if run else ["*"]))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for suite in inputs.suites:
        if suite.name in wanted or "*" in wanted:
            for test in suite.tests:
                new = {"id": test.requirement_id, "suite": suite.name, "statement": test.statement}
                found.setdefault((suite.name, test.requirement_id), {**new, "cases": 0, "to_run": 0})
    for case in plan.cases:
        record = found[case.suite, case.requirement_id]
        record["cases"] += 1
        record["to_run"] += case.verdict is None
    return list(found.values())


def requirement_lines(records: list[dict[str, Any]]) -> list[str]:
    """The same as text, one line a requirement."""
    if not records:
        return ["The selection has no suite."]
    ids, suites = (max(len(record[key]) for record in records) for key in ("id", "suite"))
    lines = []
    for record in records:
        lines.append(f"{record['id']:{ids}}  {record['suite']:{suites}}  {_cases(record):>21}  {record['statement']}")
    without = sum(not record["cases"] for record in records)
    said = f"{len(records)} requirements"
    return [*lines, "", f"{said}; {without} of them without a case in this plan" if without else said]


def _cases(record: dict[str, Any]) -> str:
    cases, to_run = record["cases"], record["to_run"]
    if not cases:
        return "no case"
    return f"{cases} case{'s' * (cases != 1)}" + (f" ({to_run} to run)" if to_run != cases else "")
