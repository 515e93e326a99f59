"""What selftest shows: a line for everything that is not as it should be, and the tables at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import rich.console
from rich.table import Table
from rich.text import Text

from conformance import __version__
from conformance.results.printable import encodable, one_line
from conformance.results.silence import fall_silent
from conformance.selftest.tally import Cell, Rate, RuleTally, Verdict, cell, cells, suite_cells
from conformance.selftest.trial import Finding, Result

MEANINGS = {
    0: "every fault was found, but for those that are not covered, and nothing correct was accused",
    1: "the suite missed a fault, accused a correct engine, or showed nothing",
    2: "interrupted; what was measured is written",
    3: "an internal error ended it early",
    5: "nothing was tried",
}
_WIDE = 160  # columns where nothing says how many there are
_STYLES = {
    Result.MISSED: "bold red",
    Result.ALARM: "bold red",
    Result.NOT_MEASURED: "bold red",
    Result.NOT_COVERED: "yellow",
    Result.NOT_APPLICABLE: "yellow",
}


class Screen:
    """Shows a selftest on `stream`. Names and messages come from outside: they are shown as text only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._screen = rich.console.Console(file=stream, highlight=False, emoji=False)
        if not self._screen.is_terminal and "COLUMNS" not in os.environ:
            self._screen.width = _WIDE
        self._total = self._done = 0

    def started(self, backend: str, trials: int, lanes: int) -> None:
        """Say what is about to be tried."""
        self._total = trials
        beside = f", {lanes} side by side" if lanes > 1 else ""
        self.line(f"conformance {__version__}: selftest of backend {backend}, {trials} trials{beside}", "bold")

    def found(self, finding: Finding) -> None:
        """A line for a finding, with what found the fault and by how much."""
        self._done += 1
        what = finding.name or "unchanged"
        where = f"{finding.suite}, {finding.model}, {finding.target}"
        told = f"[{self._done}/{self._total}] {finding.result}: {what} ({where})"
        if finding.evidence is not None and finding.result is Result.FOUND:
            by = finding.evidence
            times = "" if by.margin is None else f" = {by.margin:.3g} times its limit"
            told += f" by {by.requirement_id} {by.figure or by.criterion}{times}"
        elif finding.reason:
            told += f": {finding.reason}"
        self.line(told, _STYLES.get(finding.result, ""))

    def note(self, text: str) -> None:
        """Something that could not be tried."""
        self.line(text, "yellow")

    def finished(self, findings: Sequence[Finding], verdict: Verdict, files: Iterable[Path], seconds: float) -> None:
        """The tables, what speaks against the instrument, and the exit code."""
        self._print(self._faults(findings))
        self._print(self._rules(findings))
        for one in findings:
            if one.kind == "fault" and one.result in (Result.MISSED, Result.NOT_COVERED):
                self.line(f"{one.result}: {one.name} ({one.suite}, {one.model}, {one.target}): {one.reason}", "yellow")
        for file in files:
            self.line(f"written: {file}")
        for reason in verdict.reasons:
            self.line(reason, "bold red")
        whole = cell(findings)
        ours = whole.ours
        faults = f"{ours.detected.count} of {ours.detected.total} faults found, " if ours.detected.total else ""
        told = f"{faults}{_accused(ours.alarms)}" if ours.alarms.total else f"{faults}nothing correct was judged"
        code = verdict.exit_code
        style = "bold green" if code == 0 else "bold red"
        self.line(f"{told} in {seconds:.1f} s; exit code {code}: {MEANINGS[code]}", style)

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        with self._screen.capture() as captured:
            self._screen.print(self._text(one_line(text), style), soft_wrap=True)
        self._write(captured.get())

    def _faults(self, findings: Sequence[Finding]) -> Table:
        columns = ("suite", "tier", "family", "found", "missed", "not covered", "smallest effect", "not applicable")
        table = self._table("Faults", columns)
        for one in cells(findings):
            smallest = "" if one.smallest is None else f"{one.smallest:.2g}"
            counts = [one.results.get(result, 0) for result in (Result.FOUND, Result.MISSED, Result.NOT_COVERED)]
            absent = one.results.get(Result.NOT_APPLICABLE, 0)
            row = [one.suite, one.dtype, one.family, *map(_count, counts), smallest, _count(absent)]
            table.add_row(*(self._text(each, "bold red" if counts[1] else "") for each in row))
        return table

    def _rules(self, findings: Sequence[Finding]) -> Table:
        table = self._table(
            "The suites' judgements beside the rules in use elsewhere, on the same outputs",
            ("suite", "tier", "rule", "faults found", "false alarms", "at most (95%)"),
        )
        for one in [*suite_cells(findings), cell(findings)]:
            for tally in one.rules:
                if tally.detected.total or tally.alarms.total:
                    table.add_row(*(self._text(each, "") for each in _rule_row(one, tally)))
            table.add_section()
        return table

    def _table(self, title: str, headings: Iterable[str]) -> Table:
        table = Table(title=title, title_justify="left", pad_edge=False)
        for heading in headings:
            table.add_column(heading, overflow="fold")
        return table

    def _text(self, text: str, style: str) -> Text:
        return Text(encodable(one_line(text), self._screen.encoding), style)

    def _print(self, table: Table) -> None:
        if not table.row_count:
            return
        with self._screen.capture() as captured:
            self._screen.print(table)
        self._write(captured.get())

    def _write(self, text: str) -> None:
        # By way of a string: rich would turn a reader that has gone into an exit of its own.
        try:
            print(text, end="", file=self._stream, flush=True)
        except OSError:  # the reader has gone, or the disk is full: the trials go on, and are written
            fall_silent(self._stream)


def _rule_row(one: Cell, tally: RuleTally) -> list[str]:
    found = f"{tally.detected.count} of {tally.detected.total}" if tally.detected.total else ""
    alarms = f"{tally.alarms.count} of {tally.alarms.total}" if tally.alarms.total else ""
    bound = f"{100 * tally.alarms.bound:.3g}%" if tally.alarms.total else ""
    return [one.suite or "all", one.dtype or "all", tally.rule, found, alarms, bound]


def _accused(rate: Rate) -> str:
    return f"{rate.count} of {rate.total} judgements of correct outputs false (at most {100 * rate.bound:.3g}%)"


def _count(number: int) -> str:
    return str(number) if number else ""
