"""Runs in the background, to be disturbed: killed, interrupted, or robbed of what they need."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import zenith_site
from zenith_site import PLAIN


@contextlib.contextmanager
def started(site: Path, folder: Path, text: str, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A run in the background, in `folder`/out; it is ended with all that it started."""
    (folder / "profile.toml").write_text(text)
    command = [sys.executable, "-m", "conformance", "--profile", str(folder / "profile.toml"), "--suite", "colours"]
    process = subprocess.Popen(
        [*command, *PLAIN, "--output", str(folder / "out"), *arguments],
        cwd=zenith_site.ROOT,
        env=zenith_site.environment(site, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    family = [psutil.Process(process.pid)]
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family += family[0].children(recursive=True)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait(10)


def eventually(holds: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def in_flight(folder: Path, test: str) -> bool:
    """Whether the journal says that a case of this test was launched, and no more."""
    journal = folder / "out" / "journal.jsonl"
    return (
        journal.is_file() and re.search(rf'"started", "id": "colours\.{test}[^\n]*\n$', journal.read_text()) is not None
    )


def ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True
