"""What becomes of a former run in the output folder of a new one: nothing that was measured is lost by a restart."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from conformance.results.journal import JournalContent, JournalError, read_journal
from conformance.results.output import holds_a_run, move_run, remove_former_run


def make_room(output: Path) -> str | None:
    """Clear the folder for a new run: a former run that had ended is removed, an unfinished one is put aside.

    The answer says where the latter lies now, and how to go on with it. One that had measured nothing is removed,
    too. Raises `OutputError`.
    """
    if holds_a_run(output):
        try:
            former = read_journal(output)
        except JournalError as error:
            folder = _unused(output / "damaged")
            move_run(output, folder)
            return f"{error}; that run is kept in {folder}"
        if not _is_over(former) and any(result.verdict.is_executed for result in former.results):
            folder = _unused(output / f"unfinished-{re.sub('[^0-9T]', '', former.header.started)[:15]}")
            move_run(output, folder)
            done, planned = len(former.results), len(former.header.planned)
            return (
                f"{output} held an unfinished run, with verdicts for {done} of {planned} cases; "
                f"it is kept in {folder}, and goes on with --resume --output {shlex.quote(str(folder))}"
            )
    remove_former_run(output)
    return None


def _is_over(former: JournalContent) -> bool:
    settled = {result.id for result in former.results}
    return all(case in settled for case in former.header.planned)


def _unused(folder: Path) -> Path:
    names = itertools.chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2)))
    return next(name for name in names if not name.exists() and not name.is_symlink())
