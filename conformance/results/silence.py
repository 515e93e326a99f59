"""A stream that nobody can be told anything by any more: its reader has gone, or its disk is full."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def fall_silent(stream: TextIO) -> None:
    """Send what is and will be written to `stream` nowhere: Python flushes it once more at exit, and must not fail."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor is not flushed at exit
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
