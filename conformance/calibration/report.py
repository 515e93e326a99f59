"""What a calibration found, as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import rich.console
from rich.table import Table
from rich.text import Text

from conformance.calibration.measuring import Calibration
from conformance.calibration.summary import Entry
from conformance.false_alarms import upper_bound
from conformance.names import printable

_NAMED = 10  # alarms and gaps: calibration.json has all


def print_report(
    stream: TextIO,
    entries: Sequence[Entry],
    found: Calibration,
    origin: str,
    others: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Tables and sentences on `stream`; `origin` says what the numbers were measured on, `others` are pooled files."""
    screen = rich.console.Console(file=stream, highlight=False, emoji=False, markup=False)
    if not screen.is_terminal:
        screen.width = 160
    if entries:
        screen.print(_table(entries, origin))
        left_out = _left_out(entries)
        if left_out is not None:
            screen.print(left_out)
    for sentence in [*sentences(found), *_together(found, others)]:
        screen.print(Text(printable(sentence)))


def sentences(found: Calibration) -> list[str]:
    """Counts, alarms and gaps."""
    taken = found.taken
    bound = _bound(len({(each.null, each.case) for each in taken.alarms}), taken.judgements)
    said = [
        f"{taken.judgements} judgements of different results ({taken.identical} more were equal to the last bit to one "
        f"of them; {taken.inconclusive} were inconclusive): {len(taken.alarms)} false alarms, so a rate of at most "
        f"{bound:.2g} (95%)"
    ]
    said += [f"FALSE ALARM {each.null} in {each.case}: {each.message}" for each in taken.alarms[:_NAMED]]
    if len(taken.alarms) > _NAMED:
        said.append(f"and {len(taken.alarms) - _NAMED} more")
    gaps = Counter(f"{each.null}: {each.why}" for each in found.not_measured)
    said += [f"not measured, {count} cases: {why}" for why, count in gaps.most_common(_NAMED)]
    if len(gaps) > _NAMED:
        said.append(f"and for {len(gaps) - _NAMED} more reasons")
    return said


def _together(found: Calibration, others: Sequence[Mapping[str, Any]]) -> list[str]:
    if not others:
        return []
    judgements = found.taken.judgements + sum(other["judgements"]["counted"] for other in others)
    alarms = {(each.null, each.case) for each in found.taken.alarms}
    count = len(alarms) + sum(len({(each["null"], each["case"]) for each in other["alarms"]}) for other in others)
    bound = _bound(count, judgements)
    return [
        f"with the pooled ones: {judgements} judgements, {count} cases accused: a rate of at most {bound:.2g} (95%)"
    ]


def _bound(accused: int, judgements: int) -> float:
    return upper_bound(min(accused, judgements), judgements)  # evidence may accuse, but is not counted


def _table(entries: Sequence[Entry], origin: str) -> Table:
    table = _new(f"limits, measured on {origin}", "limit", "n", "p99.9", "worst", "is", "worst/is", "proposed")
    for entry in entries:
        style = "red" if entry.margin > 1 else ""
        changed = "" if entry.proposed == entry.limit.value else "yellow"
        cells = [entry.limit.name, str(entry.samples), f"{entry.p999:.4g}", f"{entry.worst:.4g}"]
        cells += [f"{entry.limit.value:g}", f"{entry.margin:.3g}"]
        table.add_row(*(Text(cell, style) for cell in cells), Text(f"{entry.proposed:g}", changed))
    return table


def _left_out(entries: Sequence[Entry]) -> Table | None:
    rows = [(entry, each) for entry in entries for each in entry.left_out]
    if not rows:
        return None
    table = _new("each attention backend under limits that the others propose", "limit", "left out", "n", "proposed")
    for heading in ("its p99.9", "its worst", "holds"):
        table.add_column(Text(heading))
    for entry, each in rows:
        cells = [entry.limit.name, printable(each.backend), str(each.samples), f"{each.proposed:g}"]
        cells += [f"{each.p999:.4g}", f"{each.worst:.4g}", "yes" if each.holds else "NO"]
        table.add_row(*(Text(cell, "" if each.holds else "red") for cell in cells))
    return table


def _new(title: str, *headings: str) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", pad_edge=False)
    for heading in headings:
        table.add_column(Text(heading))
    return table
