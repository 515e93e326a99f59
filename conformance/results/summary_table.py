"""The table at a run's end: per suite and target the verdicts and the worst margin, as wide as the screen allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from conformance.results.margin import Margin
from conformance.verdict import Verdict

HEADINGS = ("suite", "target", "verdicts", "worst margin", "of")
_EDGES = 3  # columns of the screen that one of the table takes beside its text


def summary_table(groups: Sequence[Mapping[str, Any]], width: int, text: Callable[[str, str], Text]) -> Table:
    """A table of `summary.groups` of a results.json, for a screen of `width` columns; `text` makes text safe to show.

    An engine that all targets share is said once, in the title. Where the width does not suffice, the column that
    names the worst figure is broken first, and then left out, before a target is broken.
    """
    engines = {group["target"].partition("/")[0] for group in groups}
    shared = f"{engines.pop()}/" if len(engines) == 1 else ""
    headings = [text(heading, "") for heading in HEADINGS]
    rows = [_row(group, shared, text) for group in groups]
    columns = list(zip(headings, *rows, strict=True))
    whole = [max(cell.cell_len for cell in column) for column in columns]
    least = [*whole[:2], *(max(_longest_word(cell) for cell in column) for column in columns[2:])]
    shown = next((count for count in (5, 4) if sum(least[:count]) + _EDGES * count <= width), 5)
    spare = width - sum(least[:shown]) - _EDGES * shown
    widths: list[int | None] = [None] * shown
    if spare >= 0 and sum(whole) + _EDGES * len(whole) > width:
        widths = [*least[:2], min(whole[2], least[2] + spare), least[3], None][:shown]
    table = Table(pad_edge=False, title_justify="left", title=text(f"engine: {shared[:-1]}", "") if shared else None)
    for heading, fixed in zip(headings, widths, strict=False):
        table.add_column(heading, overflow="fold", width=fixed)
    for row in rows:
        table.add_row(*row[:shown])
    return table


def _row(group: Mapping[str, Any], shared: str, text: Callable[[str, str], Text]) -> list[Text]:
    worst = Margin.from_json(group["worst"]) if group["worst"] else None
    failed = any(Verdict(verdict).is_failure for verdict in group["verdicts"])
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in group["verdicts"].items()) or "no cases"
    return [
        text(group["suite"], ""),
        text(group["target"].removeprefix(shared), ""),
        text(verdicts, "red" if failed else ""),
        text("-" if worst is None else f"{worst.margin:.3g}", ""),
        text("-" if worst is None else worst.figure.name, ""),
    ]


def _longest_word(cell: Text) -> int:
    """Its width."""
    return max((Text(word).cell_len for word in cell.plain.split()), default=0)
