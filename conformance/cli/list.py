"""`list`: the plan, without running any of it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from conformance.cli import NOTHING_EXECUTED, OK
from conformance.cli.arguments import Inputs, add_backend, add_facts, add_selection, read_inputs
from conformance.names import printable

if TYPE_CHECKING:
    from conformance.plan import Case, Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_facts(parser)
    parser.add_argument("--json", action="store_true", help="print every field of every case as JSON")


def main(options: argparse.Namespace) -> int:
    """Print the plan; 5 where the selection leaves no case."""
    inputs = read_inputs(options)
    plan = inputs.plan()
    if options.json:
        print(json.dumps(plan_record(plan, inputs), indent=2, default=str))
    else:
        print(printable(table(plan, inputs)))
    return OK if plan.cases else NOTHING_EXECUTED


def plan_record(plan: Plan, inputs: Inputs) -> dict[str, Any]:
    """The plan as JSON-able data, keys in a fixed order."""
    return {
        "backend": plan.backend,
        "profile": str(plan.profile_path),
        "device": plan.device,
        "hash": plan.hash,
        "budget_minutes": plan.budget_minutes,
        "selection": inputs.selection.record(),
        "facts": dict(inputs.facts),
        "claims_not_installed": list(plan.claims_not_installed),
        "suites_without_model": list(plan.suites_without_model),
        "expired_quirks": list(plan.expired_quirks),
        "cases": [case_record(case) for case in plan.cases],
    }


def case_record(case: Case) -> dict[str, Any]:
    """A case as JSON-able data."""
    return {
        "id": case.id,
        "suite": case.suite,
        "suite_path": case.suite_path,
        "test": case.test,
        "requirement": {"id": case.requirement_id, "statement": case.statement},
        "role": case.role,
        "needs": list(case.needs),
        "target": case.target.id,
        "effective_target": case.effective_target.id,
        "model": {
            "name": case.model.name,
            "tier": case.model.tier,
            "folder": str(case.model.folder),
            "architecture": case.model.architecture,
            "answers": case.model.answers,
            "parameters": dict(case.model.parameters),
        },
        "precision": case.precision,
        "kernels": list(case.kernels),
        "deterministic": case.deterministic,
        "start": case.start,
        "quirks": list(case.quirks),
        "undecided": list(case.undecided),
        "settings": dict(case.settings),
        "options": dict(case.options),
        "environment": dict(case.environment),
        "verdict": None if case.verdict is None else str(case.verdict),
        "reason": case.reason,
    }


def table(plan: Plan, inputs: Inputs) -> str:
    """The plan as plain text, grouped by target, one line a case."""
    lines = []
    for target, group in groupby(plan.cases, key=lambda case: case.target.id):
        cases = list(group)
        first = cases[0]
        lines.append(f"{target}  ({first.precision}; {_count(len(cases), 'case')})")
        width = max(len(f"{case.suite}.{case.test}[{case.model.name}]") for case in cases)
        for case in cases:
            name = f"{case.suite}.{case.test}[{case.model.name}]"
            lines.append(f"  {name:{width}}  {case.requirement_id}{_notes(case)}")
        lines.append("")
    if not plan.cases:
        lines.append("The selection leaves no case.")
    outcomes = Counter("to run" if case.verdict is None else str(case.verdict) for case in plan.cases)
    summary = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    lines.append(f"{plan.backend}: {_count(len(plan.cases), 'case')}" + (f" ({summary})" if summary else ""))
    reasons = dict.fromkeys(f"{case.verdict}: {case.reason}" for case in plan.cases if case.verdict is not None)
    lines += [f"  {reason}" for reason in reasons]
    if plan.claims_not_installed:
        lines.append(f"claimed, but not installed here: {', '.join(plan.claims_not_installed)}")
    if plan.suites_without_model:
        lines.append(f"not planned, because no selected model plays the role: {', '.join(plan.suites_without_model)}")
    for each in inputs.profile.disclaimed:
        name = "/".join(part for part in (each.engine, each.attention, each.dtype) if part)
        lines.append(f"disclaimed: {name}: {each.what}: {each.reason}")
    if plan.expired_quirks:
        lines.append(f"expired on {inputs.selection.as_of}, not applied: {', '.join(plan.expired_quirks)}")
    return "\n".join(lines)


def _notes(case: Case) -> str:
    notes = [str(case.verdict)] if case.verdict is not None else []
    if case.effective_target != case.target:
        notes.append(f"runs as {case.effective_target}")
    notes += [f"{key} = {value}" for key, value in case.settings.items()]
    notes += [f"quirk {name}" for name in case.quirks]
    notes += [f"undecided: {name}" for name in case.undecided]
    return "  " + "; ".join(notes) if notes else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
