"""Why a selection leaves no case, in sentences: what was asked for, and what would be there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from conformance.cli import NOTHING_EXECUTED, say
from conformance.cli.arguments import Inputs
from conformance.names import did_you_mean, printable

if TYPE_CHECKING:
    from conformance.plan import Plan


def refuse(plan: Plan, inputs: Inputs) -> int:
    """Say why there is nothing to run, and answer the exit code for that."""
    say("the selection leaves no case; `list` shows what there is")
    for reason in reasons(plan, inputs):
        say(printable(reason))
    return NOTHING_EXECUTED


def reasons(plan: Plan, inputs: Inputs) -> list[str]:
    """Sentences for a plan without cases."""
    selection = inputs.selection
    found = [f"no selected model plays the role of the suite {name}" for name in plan.suites_without_model]
    if selection.pattern is not None:
        without = replace(inputs, selection=replace(selection, pattern=None)).plan()
        if without.cases:
            names = {
                name for case in without.cases for name in (case.test, case.suite, case.target.id, case.model.name)
            }
            hint = did_you_mean(selection.pattern, names)
            hint = "`list` prints their ids" if hint.startswith("known are") else hint
            count = f"the {len(without.cases)} cases that" if len(without.cases) > 1 else "the only case that"
            found.append(
                f"-k {selection.pattern!r} matches the id of none of {count} the rest of the selection leaves; {hint}"
            )
            return found
    chosen = [suite for suite in inputs.suites if not selection.suites or suite.name in selection.suites]
    if selection.models and not any(_plays(role, suite.role) for role, _ in selection.models for suite in chosen):
        roles = ", ".join(dict.fromkeys(suite.role for suite in chosen))
        found.append(
            f"--model names {', '.join(role for role, _ in selection.models)}, and the suites selected play {roles}"
        )
    elif not selection.dtypes and not found:
        found += [
            f"{suite.name} ({suite.role}) runs in {', '.join(dtypes)} unless --dtype says otherwise, which no selected "
            "attention backend claims"
            for suite in chosen
            for dtypes in [inputs.profile.default_dtypes(suite.role, suite.name)]
        ]
    return found or ["nothing that the profile claims fits all of what was asked for"]


def _plays(role: str, of_suite: str) -> bool:
    return of_suite == role or of_suite.startswith(f"{role}.")
