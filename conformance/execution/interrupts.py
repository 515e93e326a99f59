"""Ctrl-C, SIGTERM and a terminal that closes: they end the measuring at once, never the writing of what was measured.

A run that is to outlive its terminal is started with nohup, or in a session of its own: an ignored SIGHUP stays so.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_PATIENCE = 3  # the third is from somebody who has waited long enough


class Interrupts:
    """A context manager in the main thread: a signal raises KeyboardInterrupt in `heeded` blocks only.

    One that comes elsewhere is raised as the next such block begins. A second signal is ignored, so that it costs
    no results; the third raises wherever it comes.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)  # taken in one step: a signal may come in the midst of another's handler
        self._heeded = self._pending = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._former = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._former[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        # A signal may wake another thread (numpy has some), or come just before a wait begins: Python notes it, and
        # the wait for a worker goes on. The timer breaks every wait once a second, for what was noted to be heeded.
        self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in self._former.items():
            signal.signal(number, handler)

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """A block that a signal ends, with KeyboardInterrupt."""
        self._heeded = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            yield
        finally:
            self._heeded = False

    def _interrupt(self, *_: object) -> None:
        number = next(self._numbers)
        self._pending = True
        if number >= _PATIENCE or (number == 1 and self._heeded):
            self._heeded = False
            raise KeyboardInterrupt

    def _hang_up(self, *_: object) -> None:
        # The kernel and the shell both send it, and nobody is there to lose patience: only the first counts.
        if not self._pending:
            self._interrupt()
