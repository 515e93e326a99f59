"""The folder that keeps, between runs, what would be dear to find out again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """CONFORMANCE_CACHE where that is set, or the user's cache folder; it need not be there yet."""
    import platformdirs

    named = os.environ.get("CONFORMANCE_CACHE")
    return Path(named or platformdirs.user_cache_dir("conformance", appauthor=False))
