"""How large something is, in words."""

from __future__ import annotations


def in_words(size: float) -> str:
    """Bytes as people say them: `1.5 GiB`, or `52.3 MiB` for less than a tenth of one."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"
