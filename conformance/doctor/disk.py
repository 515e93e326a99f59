"""Can everything be written that a run writes: results, references, what workers say?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.cache import cache_folder
from conformance.doctor.finding import Finding, Status, ok, problem, warning
from conformance.results.output import JOURNAL, JUNIT, LOCK, RESULTS
from conformance.size import in_words

CASE_BYTES = 32 * 2**10
"""Journal, results.json and junit.xml for a case: measured, 9 KiB; a failure's text is longer."""
ROWS_BYTES = 8 * 2**20
"""The rows of one failing case are capped at this (`conformance.results.rows`)."""
REFERENCE_BYTES = 32 * 2**20
"""A set of reference and yardsticks: the largest that is shipped has 9 MiB."""
LOG_BYTES = 64 * 2**20


def free_bytes(folder: Path) -> int:
    """What an ordinary user may still write to the file system of `folder`; 0 where it takes no new file."""
    status = os.statvfs(folder)
    return 0 if status.f_files and not status.f_favail else status.f_bavail * status.f_frsize


@dataclass(frozen=True)
class Place:
    """A folder that is written to. `might` is what it takes when everything goes wrong."""

    name: str
    folder: Path
    needs: int
    might: int
    option: str  # how to choose another


def places(output: Path, cases: int, to_compute: int) -> list[Place]:
    """The folders that keep what a run of that many cases writes, with so many references to compute."""
    results = cases * CASE_BYTES
    found = [Place("output", output, results, results + cases * ROWS_BYTES, "--output DIR")]
    if to_compute:
        size = to_compute * REFERENCE_BYTES
        found.append(Place("references", cache_folder() / "references", size, size, "the variable CONFORMANCE_CACHE"))
    return found


def check_temporary(free: Callable[[Path], int] = free_bytes) -> Finding:
    """The folder of temporary files, without which no worker can be started."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return problem("disk", f"temporary files: {error}", "choose a folder by the variable TMPDIR")
    return check(Place("temporary files", folder, LOG_BYTES, LOG_BYTES, "the variable TMPDIR"), free)


def check(place: Place, free: Callable[[Path], int] = free_bytes) -> Finding:
    """Writable, and large enough? The folder itself is not made."""
    folder = place.folder.absolute()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    where = f"{place.name}: {folder}"
    other = f"choose another folder by {place.option}"
    if not existing.is_dir():
        return problem("disk", f"{where}: {existing} is not a folder", other)
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
            file.flush()
        space = free(existing)
    except OSError as error:
        return problem("disk", f"{where}: {existing} cannot be written: {error.strerror or error}", other)
    text = f"{where}: {in_words(space)} are free, needed are about {in_words(place.needs)}"
    figures: dict[str, float] = {"free_bytes": space, "needed_bytes": place.needs, "needed_at_worst_bytes": place.might}
    if space < place.needs:
        return Finding("disk", Status.PROBLEM, text, f"free space there, or {other}", figures=figures)
    if space < place.might:
        worst = f"{text}, and up to {in_words(place.might)} where many cases fail"
        return warning("disk", worst, f"free space there, or {other}", **figures)
    return ok("disk", text, **figures)


def check_output(output: Path) -> Iterator[Finding]:
    """Whether another run writes to the output folder, or it holds files that a run would not touch."""
    foreign = [name for name in (RESULTS, JUNIT) if (output / name).exists() and not (output / JOURNAL).exists()]
    if foreign:
        found = f"output: {output} holds a {foreign[0]} that no run of this suite wrote"
        yield problem("disk", found, "choose another folder by --output DIR")
    with contextlib.suppress(OSError):
        descriptor = os.open(output / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            holder = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            who = holder if holder.isdecimal() else "?"
            yield problem("disk", f"output: another run (process {who}) writes to {output}", "choose another --output")
        finally:
            os.close(descriptor)
