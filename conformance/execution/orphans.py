"""Processes that outlived the worker that started them: adopted by the worker server, found, and killed.

A worker's group is killed with it. A child that left the group, as daemons do, would live on with the device's memory.
The kernel gives it to the nearest ancestor that asked for orphans, which the server does. Elsewhere than on Linux
nobody can ask, and only groups are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SECONDS = 5.0  # for the kernel to end what was killed, and to hand over its own children
_NAME_LENGTH = 15  # the kernel keeps no more


@dataclass(frozen=True)
class Orphan:
    """A process that had lost its worker, by its id and the name that it gave itself."""

    pid: int
    name: str


def adopt() -> None:
    """Have the kernel make orphans among this process's descendants its children."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(but: Collection[int]) -> list[Orphan]:
    """Kill this process's children, `but` these, and what they leave behind; those that were alive."""
    found: dict[int, Orphan] = {}
    until = time.monotonic() + _SECONDS
    while adopted := [each for each in children(os.getpid()) if each.pid not in but]:
        for each in adopted:
            with contextlib.suppress(ProcessLookupError, ChildProcessError, PermissionError):
                if os.waitpid(each.pid, os.WNOHANG)[0] == each.pid:
                    continue
                found.setdefault(each.pid, each)
                os.kill(each.pid, signal.SIGKILL)
        if time.monotonic() > until:  # a driver holds it
            break
        time.sleep(0.005)
    return list(found.values())


def children(parent: int, proc: Path = Path("/proc")) -> list[Orphan]:
    """The children of a process, ended ones included; none where the system does not say."""
    found = []
    for entry in proc.iterdir() if proc.is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                before, _, after = (entry / "stat").read_text("utf-8", "replace").rpartition(")")
                if int(after.split()[1]) == parent:
                    name = before.partition("(")[2][:_NAME_LENGTH]
                    found.append(Orphan(int(entry.name), name))
    return found
