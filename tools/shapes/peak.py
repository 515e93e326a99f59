"""How much memory something takes at its peak."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


@contextmanager
def peak_of(device: str) -> Iterator[dict[str, int]]:
    """The peak of memory above what was held before, bytes: the allocator's on a device, the process's on the CPU."""
    gc.collect()
    found = {"bytes": 0, "reserved": 0}
    if device != "cpu":
        module = torch.get_device_module(device)
        module.empty_cache()
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        yield found
        found["bytes"] = module.max_memory_allocated() - before
        found["reserved"] = module.max_memory_reserved()
        return
    with contextlib.suppress(OSError, AttributeError):  # what was freed before must not hide what comes
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _resident()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            found["bytes"] = max(found["bytes"], _resident() - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def _resident() -> int:
    """Resident memory of this process, mapped files included: weights may be read where they lie."""
    text = Path("/proc/self/statm").read_text("ascii")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
