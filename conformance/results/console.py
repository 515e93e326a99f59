"""What a run shows while it goes on and when it ends: one moving line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

import rich.console
from rich.live import Live
from rich.text import Text

from conformance.duration import clock, in_words
from conformance.judgement import decisive
from conformance.results.audited import audit_lines, audit_table
from conformance.results.comparison import Change, Comparison
from conformance.results.document import (
    AUDIT_MEANINGS,
    BASELINE_MEANINGS,
    EXIT_MEANINGS,
    count_verdicts,
    final_exit_code,
)
from conformance.results.explanation import describe, explain
from conformance.results.going_on import is_unfinished
from conformance.results.journal import RunHeader
from conformance.results.margin import Margin, worst_margin
from conformance.results.planted import is_void, planted_of, summary
from conformance.results.printable import encodable, one_line, printable
from conformance.results.record import CaseResult, was_decided_afresh
from conformance.results.silence import fall_silent
from conformance.results.summary_table import summary_table
from conformance.stack import stack_lines
from conformance.verdict import Verdict

_SHOWN = 20  # known failures: they are listed for the record, not for reading
_WIDE = 160  # columns where nothing says how many there are: a log has no edge


class _Screen(rich.console.Console):
    """A rich console that falls silent where it cannot be written, instead of ending the run.

    `| head` or a full disk behind standard output must cost a run its output, not its results.
    """

    def on_broken_pipe(self) -> None:  # rich would raise SystemExit
        self._fall_silent()

    def __exit__(self, *raised: Any) -> None:  # rich writes in it, whatever is shown
        try:
            super().__exit__(*raised)
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.quiet = True
        fall_silent(cast("TextIO", self.file))


class Console:
    """Shows a run. Names and messages come from outside: they are shown as text, never as markup or controls.

    A context manager: leaving it takes the moving line away, whatever happened.
    """

    def __init__(self, stream: TextIO | None = None, *, terminal: bool | None = None, width: int | None = None) -> None:
        """Show on `stream` (standard output); `terminal` and `width` are found out where they are not given."""
        file = stream or sys.stdout
        self._screen = _Screen(file=file, force_terminal=terminal, width=width, highlight=False, emoji=False)
        self._terminal = self._screen.is_terminal and not self._screen.is_dumb_terminal
        if width is None and not self._screen.is_terminal and "COLUMNS" not in os.environ:
            self._screen.width = _WIDE
        self._live: Live | None = None
        self._planned = self._done = self._failures = 0
        self._case = ""  # in flight
        self._began = time.monotonic()
        self._known: set[tuple[Verdict, str]] = set()  # why cases did not run, as far as it was said

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run_started(self, header: RunHeader, kept: Sequence[CaseResult] = ()) -> None:
        """Say what is about to be run, on what, and what a resumed run has already."""
        self._begin(header.version, header.backend, len(header.planned), header.facts)
        self._line(f"estimate: {in_words(header.estimate)}{_budget(header.budget_minutes)}")
        self._done, self._failures = len(kept), sum(result.verdict.is_failure for result in kept)
        if kept:
            self._line(
                f"resumed: {_count(len(kept), 'case')} of {self._planned} had ended: {_verdicts(count_verdicts(kept))}"
            )
        if self._terminal:
            self._live = Live(
                console=self._screen,
                get_renderable=self._moving_line,
                refresh_per_second=1,  # the time goes on while a case does
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _begin(self, version: str, backend: str, planned: int, facts: Mapping[str, Any]) -> None:
        self._planned, self._done, self._failures = planned, 0, 0
        self._line(f"conformance {version}: backend {backend}, {_count(planned, 'case')}", "bold")
        device = facts.get("device")
        if isinstance(device, Mapping) and device.get("name"):
            self._line(f"device: {one_line(str(device['name']))}")
        for line in stack_lines(facts):
            self._line(line)

    def retell(self, document: Mapping[str, Any], files: Iterable[Path | str] = (), resume: str = "") -> None:
        """Show a run that has ended as it was shown: the beginning, what did not pass, the groups, the summary."""
        run = document["run"]
        self._begin(document["conformance_version"], run["backend"], run["planned"], document["facts"])
        self._line(f"started {run['started']}, finished {run['finished']}")
        results = [CaseResult.from_json(case) for case in document["cases"]]
        groups: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            groups.setdefault((result.target.id, result.model), []).append(result)
        for (target, model), members in groups.items():
            for result in members:
                self.case_finished(result)
            self.group_finished(target, model, members)
        self.run_finished(document, files, resume)

    def case_started(self, case_id: str) -> None:
        """Show which case is in flight."""
        self._progress(case_id)

    def case_finished(self, result: CaseResult) -> None:
        """Count a verdict. What was executed and did not pass is shown in full; why cases did not run, once."""
        self._done += 1
        self._failures += result.verdict.is_failure
        if result.verdict is not Verdict.PASS:
            headline = f"{result.verdict} {result.id}"
            if result.verdict.is_executed:
                self._line(headline, _colour(result.verdict))
                self._block(explain(result.to_json()))
            elif (result.verdict, result.reason) not in self._known:  # the others are counted, here and at the end
                self._known.add((result.verdict, result.reason))
                self._line(f"{headline}: {result.reason}".rstrip(": "), _colour(result.verdict))
        elif was_decided_afresh(result):
            self._line(f"{result.verdict} {result.id}: {result.message}", "yellow")
        self._progress("")

    def group_finished(self, target: str, model: str, results: Sequence[CaseResult]) -> None:
        """One line on the cases of a model on a target: how many of each verdict, and the worst margin.

        None where none was executed: why was said once, and they are counted at the end.
        """
        if not any(result.verdict.is_executed for result in results):
            return
        worst = worst_margin(
            (result.id, figure)
            for result in results
            for judgement in decisive(result.judgements)
            for figure in judgement.figures
        )
        self._line(
            f"[{self._done}/{self._planned}] {target} {model}: "
            f"{_verdicts(count_verdicts(results))}; worst margin {_worst(worst)}"
        )

    def note(self, text: str) -> None:
        """Something that is worth a line and is no verdict: waiting for a device, a quirk that has expired."""
        self._line(text, "yellow")

    def run_finished(self, document: Mapping[str, Any], files: Iterable[Path | str] = (), resume: str = "") -> None:
        """The summary: per suite and target the verdicts and the worst margin, what a PASS does not cover, files.

        `resume` is the command that goes on with the run, said where it ended early.
        """
        self._stop()
        if groups := document["summary"]["groups"]:
            self._screen.print(summary_table(groups, self._screen.width, self._text))
        worst = [Margin.from_json(suite["worst"]) for suite in document["summary"]["suites"] if suite["worst"]]
        for entry in sorted(worst, key=lambda entry: -entry.margin)[:1]:
            self._line(f"closest to its limit: {entry.figure.name} = {describe(entry.figure)} in {entry.case}")
        self._line("")
        self._line("What a PASS of this run does not cover:", "bold")
        for sentence in document["not_covered"]:
            self._line(f"- {sentence}")
        self._line("")
        for file in files:
            self._line(f"written: {file}")
        if resume and is_unfinished(document):
            self._line(f"`--resume` goes on: {resume}", "yellow")
        if "audit" in document:
            self._audit(document["audit"])
        if "baseline" in document:
            self._baseline(document["baseline"], document["run"]["plan_hash"])
        faults, void = planted_of(document), is_void(document)
        if faults:
            self._line(summary(faults))
        for sentence in document["planted"]["void"] if void else []:
            self._line(f"VOID: {sentence}", "bold red")
        code = final_exit_code(document)
        meaning = (BASELINE_MEANINGS if "baseline" in document else EXIT_MEANINGS)[code]
        if code != document.get("baseline", document["run"])["exit_code"]:
            meaning = AUDIT_MEANINGS[code]
        elif void and code == 1:
            meaning = "the run is VOID, its verdicts show nothing: a planted fault was not found"
        totals = _verdicts(document["summary"]["verdicts"])
        self._line(
            f"{totals} in {document['run']['duration_s']:.1f} s; exit code {code}: {meaning}",
            "bold green" if code == 0 else "bold red",
        )

    def _audit(self, block: Mapping[str, Any]) -> None:
        self._line("")
        self._screen.print(audit_table(block, self._text))
        for line, style in audit_lines(block):
            self._line(line, style)

    def _baseline(self, baseline: Mapping[str, Any], plan_hash: str) -> None:
        """What differs from the baseline, the new failures last."""
        changes = Comparison.from_json(baseline)
        other = "" if baseline["plan_hash"] == plan_hash else ", a run of another plan"
        self._line("")
        self._line(f"Beside the baseline {baseline['file']} of {baseline['started'][:10]}{other}:", "bold")
        for change in changes.known[:_SHOWN]:
            self._line(f"known: {change.now} {change.case}{_before(change)}", "yellow")
        if len(changes.known) > _SHOWN:
            self._line(f"known: {len(changes.known) - _SHOWN} more, which results.json names", "yellow")
        for change in changes.unseen:
            now = f"is {change.now}" if change.now else "is not in this run"
            self._line(f"unseen: {change.case} {now}; in the baseline it was {change.before}", "yellow")
        for change in changes.fixed:
            self._line(f"fixed: {change.now} {change.case}{_before(change)}; remove it from the baseline", "green")
        for change in changes.new:
            self._line(f"new: {change.now} {change.case}{_before(change)}", "bold red")
        self._line(
            f"{_count(len(changes.new), 'new failure')}, {len(changes.known)} known, {len(changes.fixed)} fixed, "
            f"{len(changes.unseen)} not executed now"
        )

    def _progress(self, case_id: str) -> None:
        self._case = case_id
        if self._live is not None:
            self._live.refresh()

    def _moving_line(self) -> Text:
        failed = f", {self._failures} failed" if self._failures else ""
        elapsed = clock(time.monotonic() - self._began)
        text = self._text(f"{self._done}/{self._planned}{failed}, {elapsed}  {self._case}")
        text.no_wrap, text.overflow = True, "crop"  # not "ellipsis": its character is not in every encoding
        return text

    def _line(self, text: str, style: str = "") -> None:
        self._screen.print(self._text(one_line(text), style), soft_wrap=True)

    def _block(self, text: str) -> None:
        lines = [f"    {line}".rstrip() for line in printable(text).split("\n")]
        self._screen.print(self._text("\n".join(lines)), soft_wrap=True)

    def _text(self, text: str, style: str = "") -> Text:
        return Text(encodable(printable(text), self._screen.encoding), style)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _colour(verdict: Verdict) -> str:
    return "bold red" if verdict.is_failure else "yellow"


def _before(change: Change) -> str:
    if change.before is None:
        return " (not in the baseline)"
    return "" if change.before is change.now else f" (was {change.before})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _budget(minutes: float | None) -> str:
    return "" if minutes is None else f"; budget: {clock(60 * minutes)}"


def _verdicts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no cases"


def _worst(worst: Margin | None) -> str:
    return "none" if worst is None else f"{worst.margin:.3g} ({worst.figure.name})"
