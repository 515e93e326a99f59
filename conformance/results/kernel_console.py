"""What the measurement of a single kernel shows beside that of any run: each promise, with its nearest figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table
from rich.text import Text

from conformance.results.console import Console
from conformance.results.explanation import describe
from conformance.results.margin import worst_margin
from conformance.results.record import CaseResult
from conformance.verdict import Verdict

RAN = "observed.ran_as_requested"


class KernelConsole(Console):
    """A console that shows with each failure how to call the kernel again, and whose summary begins with the promises.

    `again` makes those lines of a result; empty where there are none.
    """

    def __init__(self, again: Callable[[CaseResult], str], stream: TextIO) -> None:
        super().__init__(stream)
        self._again = again

    def case_finished(self, result: CaseResult) -> None:
        """As ever, then the lines."""
        super().case_finished(result)
        if result.rows_file and (lines := self._again(result)):
            self._block(f"the call itself, in Python:\n{lines}")

    def run_finished(self, document: Mapping[str, Any], files: Iterable[Path | str] = (), resume: str = "") -> None:
        """The promises, then as ever."""
        self._stop()
        if document["cases"]:
            self._screen.print(promise_table([CaseResult.from_json(case) for case in document["cases"]], self._text))
        super().run_finished(document, files, resume)


def promise_table(results: Sequence[CaseResult], text: Callable[[str, str], Text]) -> Table:
    """A row for each promise in each dtype: its verdict, and of the figures that decided it the one nearest its limit.

    Where nothing was measured, the reason stands in place of the figure. `text` makes text safe to show.
    """
    table = Table(pad_edge=False)
    for heading in ("promise", "dtype", "verdict", "nearest to its limit"):
        table.add_column(text(heading, ""), overflow="fold")
    for result in results:
        colour = "" if result.verdict is Verdict.PASS else "red" if result.verdict.is_failure else "yellow"
        table.add_row(
            text(f"{result.requirement_id} {result.test.removeprefix('test_').replace('_', ' ')}", ""),
            text(result.target.dtype, ""),
            text(str(result.verdict), colour),
            text(_nearest(result), colour),
        )
    return table


def _nearest(result: CaseResult) -> str:
    if result.verdict not in (Verdict.PASS, Verdict.FAIL):
        return result.reason.removesuffix("; last output:")
    # The last judgement decided, unless it is of what ran: a function is called by its name.
    decisive = [each for each in result.judgements if each.criterion != RAN] or list(result.judgements)
    for judgement in reversed(decisive):
        worst = worst_margin((result.id, figure) for figure in judgement.figures)
        if worst is not None:
            return f"{worst.figure.name} = {describe(worst.figure)}"
    return result.reason
