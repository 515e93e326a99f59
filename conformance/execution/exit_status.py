"""How a process ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: with the exit code `code`, or by the signal of number `signal`; one of them is None."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, exit_code: int) -> ExitStatus:
        """From an exit code that is negative for signals, as `os.waitstatus_to_exitcode` gives it."""
        return cls(None, -exit_code) if exit_code < 0 else cls(exit_code, None)

    @property
    def signal_name(self) -> str | None:
        """The signal as "SIGSEGV", or None for a process that exited."""
        if self.signal is None:
            return None
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"

    def __str__(self) -> str:
        return f"exited with code {self.code}" if self.signal is None else f"was killed by {self.signal_name}"
