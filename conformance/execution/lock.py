"""One owner of a device's memory at a time, among the processes of this user on this machine.

The lock is the kernel's, so it is free as soon as its holder ends, however that ends. Containers that do not share
the runtime folder do not see each other's locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def device_lock(
    name: str, deadline: Deadline, on_wait: Callable[[int | None], None], *, folder: Path | None = None
) -> Iterator[None]:
    """Own the device `name` ("cuda:0") while the context lasts; `folder` is the user's runtime folder unless given.

    While another holds it, `on_wait` is called with the holder's process id, once for each holder (None where that
    has not written its id yet). Raises DeadlineExceeded, naming the holder.
    """
    folder = folder or _runtime_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{_file_name(name)}.lock"
    # Never deleted: whoever waits on a deleted file would own another lock than whoever makes it anew.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, name, deadline, on_wait)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _runtime_folder() -> Path:
    with warnings.catch_warnings():  # of a host without XDG_RUNTIME_DIR, where platformdirs' fallback is as good
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_dir("conformance"))


def _acquire(descriptor: int, name: str, deadline: Deadline, on_wait: Callable[[int | None], None]) -> None:
    told: set[int | None] = set()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = _holder(descriptor)
        if deadline.has_passed:
            who = "a process that left no id" if holder is None else f"process {holder}"
            raise DeadlineExceeded(f"the device {name} is still held by {who} after {deadline}")
        if holder not in told:
            told.add(holder)
            on_wait(holder)
        time.sleep(_POLL_SECONDS)


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
    return int(text) if text.isdecimal() else None


def _file_name(name: str) -> str:
    """`name` as a file name of its own: percent-encoded, so that no two devices share one."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), name)
