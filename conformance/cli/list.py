"""`list`: the plan, without running any of it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from conformance import timings
from conformance.cache import cache_folder
from conformance.cli import NOTHING_EXECUTED, OK, say
from conformance.cli.arguments import Inputs, add_backend, add_engine_python, add_facts, add_selection, read_inputs
from conformance.cli.named_runs import run_lines, run_records
from conformance.cli.nothing_selected import reasons
from conformance.cli.requirements import requirement_lines, requirement_records
from conformance.duration import in_brief, in_words
from conformance.names import printable
from conformance.selection import Selection

if TYPE_CHECKING:
    from conformance.plan import Case, Plan
    from conformance.timings import Timings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_engine_python(parser)
    add_facts(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--runs", action="store_true", help="only the runs that the profile names")
    instead.add_argument(
        "--requirements", action="store_true", help="every requirement's sentence instead of the cases"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON, with every field")


def main(options: argparse.Namespace) -> int:
    """Print the plan; 5 where the selection leaves no case."""
    inputs = read_inputs(options)
    plan = inputs.plan()
    known = timings.load(cache_folder())
    if known.fault:
        say(printable(known.fault))
    record: Any
    if options.runs:
        record = run_records(inputs, known)
        lines = run_lines(record)
    elif options.requirements:
        record = requirement_records(plan, inputs)
        lines = requirement_lines(record)
    else:
        # Each named run is a plan of its own, made only where it is shown.
        runs = run_records(inputs, known) if options.json or is_whole(inputs.selection) else []
        record = plan_record(plan, inputs, known, runs)
        lines = [] if options.json else [*case_lines(plan), *summary_lines(plan, inputs, record)]
    if options.json:
        print(json.dumps(record, indent=2, default=str))
    else:
        print(printable("\n".join(lines)))
    return OK if plan.cases or options.runs else NOTHING_EXECUTED


def plan_record(plan: Plan, inputs: Inputs, known: Timings, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The plan as JSON-able data, keys in a fixed order."""
    estimate = inputs.estimate(plan, known)
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
        "estimate": estimate.record(),
        "suites": [
            {
                "suite": suite,
                "cases": len(cases),
                "to_run": sum(case.verdict is None for case in cases),
                "estimate": estimate.of(suite).record(),
            }
            for suite, cases in _by_suite(plan).items()
        ],
        "runs": runs,
        "cases": [case_record(case) for case in plan.cases],
    }


def is_whole(selection: Selection) -> bool:
    """Whether nothing was chosen but a named run and the day that judges expiry."""
    return selection == Selection(run=selection.run, as_of=selection.as_of)


def _by_suite(plan: Plan) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in plan.cases:
        found.setdefault(case.suite, []).append(case)
    return found


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
        "deterministic": case.claim.deterministic,
        "start": case.start,
        "quirks": list(case.quirks),
        "undecided": list(case.undecided),
        "settings": dict(case.settings),
        "options": dict(case.options),
        "environment": dict(case.environment),
        "estimate": None if case.fit is None else vars(case.fit),
        "verdict": None if case.verdict is None else str(case.verdict),
        "reason": case.reason,
    }


def case_lines(plan: Plan) -> list[str]:
    """The cases as plain text, grouped by target, one line a case."""
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
    return lines


def summary_lines(plan: Plan, inputs: Inputs, record: dict[str, Any]) -> list[str]:
    """What a reader of the cases wants to know besides: how many, how long, what is not planned and why."""
    lines = []
    if not plan.cases:
        lines += ["The selection leaves no case:", *(f"  {reason}" for reason in reasons(plan, inputs))]
    elif len(record["suites"]) > 1:
        width = max(len(each["suite"]) for each in record["suites"])
        lines.append(f"{'suite':{width}}  cases  to run  estimate")
        lines += [
            f"{each['suite']:{width}}  {each['cases']:5}  {each['to_run']:6}  {in_brief(each['estimate'])}"
            for each in record["suites"]
        ]
        lines.append("")
    outcomes = Counter("to run" if case.verdict is None else str(case.verdict) for case in plan.cases)
    summary = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    lines.append(f"{plan.backend}: {_count(len(plan.cases), 'case')}" + (f" ({summary})" if summary else ""))
    if plan.cases:
        lines[-1] += f"; estimate: {in_words(record['estimate'])}"
    device = inputs.facts.get("device", {})
    if any(case.verdict is None for case in plan.cases) and device.get("available") is None:
        lines.append(f"whether there is a device of the type {plan.device} is found out when a run starts")
    said = dict.fromkeys(f"{case.verdict}: {case.reason}" for case in plan.cases if case.verdict is not None)
    lines += [f"  {reason}" for reason in said]
    if plan.claims_not_installed:
        lines.append(f"claimed, but not installed here: {', '.join(plan.claims_not_installed)}")
    if plan.suites_without_model and plan.cases:
        lines.append(f"not planned, because no selected model plays the role: {', '.join(plan.suites_without_model)}")
    for each in inputs.profile.disclaimed:
        name = "/".join(part for part in (each.engine, each.attention, each.dtype) if part)
        lines.append(f"disclaimed: {name}: {each.what}: {each.reason}")
    if plan.expired_quirks:
        lines.append(f"expired on {inputs.selection.as_of}, not applied: {', '.join(plan.expired_quirks)}")
    if is_whole(inputs.selection):
        lines += ["", *run_lines(record["runs"])]
    return lines


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
