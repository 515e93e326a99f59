"""Findings as lines for people and as a document for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

import rich.console
from rich.text import Text

from conformance import __version__
from conformance.doctor.finding import MEANINGS, Finding, Status, exit_code
from conformance.plan import Plan
from conformance.results.printable import encodable, one_line

SCHEMA_VERSION = 1
_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


class Lines:
    """Writes findings to `stream` as they come: one line each, and below it what to do."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._screen = rich.console.Console(file=stream, highlight=False, emoji=False)

    def started(self, plan: Plan) -> None:
        """Say what is examined."""
        self._print(Text(self._safe(f"conformance {__version__}: doctor of backend {plan.backend}, {_cases(plan)}")))

    def found(self, finding: Finding) -> None:
        """Show a finding."""
        line = Text.assemble(
            (f"{finding.status.value:8} ", _STYLES[finding.status]), self._safe(f"{finding.check}: {finding.found}")
        )
        self._print(line)
        if finding.advice:
            self._print(Text(f"{'':9}-> {self._safe(finding.advice)}"))

    def finished(self, findings: Sequence[Finding], seconds: float) -> None:
        """Count the findings and say what the exit code means."""
        counts = Counter(finding.status for finding in findings)
        code = exit_code(findings)
        shown = ", ".join(_counted(counts[status], status) for status in Status if counts[status])
        line = f"{shown} in {seconds:.1f} s; exit code {code}: {MEANINGS[code]}"
        self._print(Text(self._safe(line), "bold green" if code == 0 else "bold red"))

    def _safe(self, text: str) -> str:
        return encodable(one_line(text), self._screen.encoding)

    def _print(self, text: Text) -> None:
        # By way of a string: rich would turn a reader that has gone into an exit of its own.
        with self._screen.capture() as captured:
            self._screen.print(text, soft_wrap=True)
        print(captured.get(), end="", file=self._stream, flush=True)


def document(plan: Plan, findings: Sequence[Finding], seconds: float) -> dict[str, Any]:
    """The findings as JSON-able data; docs/doctor.md describes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "conformance_version": __version__,
        "backend": plan.backend,
        "device": plan.device,
        "plan_hash": plan.hash,
        "cases": len(plan.cases),
        "duration_s": round(seconds, 3),
        "exit_code": exit_code(findings),
        "findings": [finding.to_json() for finding in findings],
    }


def _counted(count: int, status: Status) -> str:
    return f"{count} {status.value}{'s' * (count != 1 and status is not Status.OK)}"


def _cases(plan: Plan) -> str:
    return f"{len(plan.cases)} case{'' if len(plan.cases) == 1 else 's'}"
