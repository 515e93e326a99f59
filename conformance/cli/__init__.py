"""The command line, one small file per subcommand: `add_arguments(parser)` and `main(options) -> exit code`."""

from __future__ import annotations

OK, FAILURES, INTERRUPTED, INTERNAL_ERROR, USAGE, NOTHING_EXECUTED, INCOMPLETE = range(7)
"""Exit codes. INCOMPLETE: passed, but something selected could not run."""
