"""The audit of a profile as readers see it: a table and lines on the console, test cases of its own in JUnit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from conformance.catalogue import NO_MODEL
from conformance.results.record import CaseResult
from conformance.target import Target, case_id
from conformance.verdict import Verdict

HEADINGS = ("claimed", "status", "executed", "PASS", "effective")

VERDICTS = {
    "shown": Verdict.PASS,
    "mismatch": Verdict.FAIL,
    "failed": Verdict.FAIL,
    "not executed": Verdict.NOT_RUN,
    "environment": Verdict.ENVIRONMENT,
}
"""What each status of a claim is as a verdict, for JUnit."""

_STYLES = {"shown": "green", "mismatch": "bold red", "failed": "bold red"}
_NAMED = 3  # cases of a line: results.json names all


def audit_table(block: Mapping[str, Any], text: Callable[[str, str], Text]) -> Table:
    """A row for each claim; `text` makes text safe to show."""
    table = Table(pad_edge=False, title_justify="left", title=text("audit of the profile", ""))
    for heading in HEADINGS:
        table.add_column(text(heading, ""), overflow="fold")
    for claim in block["claims"]:
        status = claim["status"]
        ran = "; ".join(_ran(each) for each in claim["effective"]) or "-"
        cells = (_name(claim), status, str(claim["executed"]), str(claim["passed"]), ran)
        table.add_row(*(text(cell, _STYLES.get(status, "yellow") if cell == status else "") for cell in cells))
    return table


def audit_lines(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the table has no room for, as lines with their style: mismatches last, where they are seen."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for claim in block["claims"]:
        if claim["reason"] and claim["status"] != "mismatch":
            own = f"attention {claim['attention']} --dtype {claim['dtype']}"  # or --vision-attention
            general = claim["reason"].replace(own, "attention NAME --dtype NAME")
            reasons.setdefault((claim["status"], general), []).append(_name(claim))
    for (status, reason), names in reasons.items():
        yield f"claimed, {status}: {', '.join(names)}: {reason}", "yellow"
    for entry in block["disclaimed"]:
        yield f"disclaimed, {entry['probe']}: {entry['name']}: {entry['what']}: {entry['reason']}", ""
    for entry in block["under_claimed"]:
        yield f"under-claimed: {entry['target']}: {entry['what']} in {_cases(entry['cases'])}", "yellow"
    for entry in block["never_exercised"]:
        yield f"claimed, never exercised: {entry['claim']}: {', '.join(entry['features'])}", ""
    for entry in block["mismatches"]:
        yield f"mismatch: {_mismatch(entry)} in {_cases(entry['cases'])}", "bold red"
    shown = sum(claim["status"] == "shown" for claim in block["claims"])
    yield f"audit: {shown} of {len(block['claims'])} claims have an executed PASS", ""


def audit_cases(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each claim as a case, as results.json holds cases: it passes where it was shown."""
    for claim in block["claims"]:
        target = Target(claim["engine"], claim["attention"], claim["dtype"])
        verdict = VERDICTS[claim["status"]]
        yield CaseResult(
            id=case_id("audit", "test_claim_is_shown", target, NO_MODEL),
            suite="audit",
            test="test_claim_is_shown",
            requirement_id="AUDIT",
            statement="What the profile claims MUST be shown by an executed PASS, on what was requested.",
            role="audit",
            model=NO_MODEL,
            target=target,
            verdict=verdict,
            reason=claim["reason"],
            message=f"{claim['passed']} of {claim['executed']} executed cases passed; "
            f"effective: {'; '.join(_ran(each) for each in claim['effective']) or 'nothing ran'}",
        ).to_json()


def _name(claim: Mapping[str, Any]) -> str:
    return f"{claim['engine']}/{claim['attention']}/{claim['dtype']}"


def _ran(each: Mapping[str, Any]) -> str:
    tower = f", vision {each['vision']}" if each["vision"] else ""
    return f"{each['attention']} {each['dtype']}{tower} ({each['evidence']}, {each['cases']})"


def _mismatch(entry: Mapping[str, Any]) -> str:
    return f"{entry['target']}: {entry['what']} {entry['effective']} ran, but {entry['requested']} was requested"


def _cases(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    return f"{', '.join(cases[:_NAMED])}{more}"
