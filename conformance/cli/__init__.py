"""The command line, one small file per subcommand: `add_arguments(parser)` and `main(options) -> exit code`."""

from __future__ import annotations

import sys

from conformance.names import printable
from conformance.results.silence import fall_silent

OK, FAILURES, INTERRUPTED, INTERNAL_ERROR, USAGE, NOTHING_EXECUTED, INCOMPLETE = range(7)
"""Exit codes. INCOMPLETE: passed, but something selected could not run."""


def say(text: str) -> None:
    """Say one line on standard error, without what could steer a terminal: errors of a network bring text of others.

    Where it cannot be written, the exit code still tells.
    """
    try:
        print(f"conformance: {printable(text)}", file=sys.stderr)
    except OSError:
        fall_silent(sys.stderr)


def show(text: str) -> None:
    """Print to standard output; where that cannot be written, the results still are, and their exit code counts."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        fall_silent(sys.stdout)
    except OSError as error:
        fall_silent(sys.stdout)
        say(f"standard output cannot be written: {error.strerror}")
