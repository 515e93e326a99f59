"""How long something takes, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def clock(seconds: float) -> str:
    """Seconds as people say them: `8 s`, `2 min 40 s`, `1 h 20 min`; never 0 for something."""
    whole = max(1, int(seconds + 0.5)) if seconds > 0 else 0
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    shown = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest and not hours)
    return " ".join(shown) or "0 s"


def in_words(record: Mapping[str, Any]) -> str:
    """An estimate's record as a reader wants it: how long, and how that is known."""
    total, learnt, without = record["duration_s"], record["learnt_s"], record["cases_without"]
    lacking = f"{without} case{' has' if without == 1 else 's have'} no estimate"
    if not total:
        return lacking if without else "nothing to run"
    if learnt >= total:
        source = "learnt from earlier runs"
    elif learnt:
        source = f"{clock(learnt)} of it learnt from earlier runs, the rest declared"
    else:
        source = "declared, for want of earlier runs"
    return f"{clock(total)} ({source})" + (f"; {lacking}" if without else "")


def in_brief(record: Mapping[str, Any]) -> str:
    """The same for a column: `2 min 40 s, learnt`."""
    total, learnt, without = record["duration_s"], record["learnt_s"], record["cases_without"]
    if not total:
        return "unknown" if without else "nothing to run"
    source = "learnt" if learnt >= total else "partly learnt" if learnt else "declared"
    return f"{clock(total)}, {source}" + (f"; {without} without" if without else "")
