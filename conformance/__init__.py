"""conformance: does an inference stack compute the right numbers on its device?

Suites and backends build on the names that this package's modules define; `runner` is the file to read first.
"""

from __future__ import annotations

import datetime

__version__ = "0.1.0"

RELEASE_DATE = datetime.date(2026, 11, 30)
"""Quirks expire against this date (or `--as-of`), so that a shipped release never turns red by the calendar."""
