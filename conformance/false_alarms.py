"""How often correct engines may be accused, given how often they were: a bound on the rate of false alarms."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(count: int, total: int) -> float:
    """The rate at which `count` or fewer of `total` would be seen in only 5% of cases (Clopper and Pearson, 1934).

    For no events it is 1 - 0.05^(1/total), about 3/total. ValueError where count is no number from 0 to total.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total}: a count lies between 0 and its total")
    if count == total:
        return 1.0
    low, high = count / total, 1.0
    for _ in range(60):  # halving reaches a double's resolution
        middle = (low + high) / 2
        if _at_most(count, total, middle) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, total: int, rate: float) -> float:
    """The probability of `count` or fewer events."""
    if rate >= 1:
        return 0.0
    logs = math.lgamma(total + 1), math.log(rate), math.log1p(-rate)
    return math.fsum(
        math.exp(logs[0] - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * logs[1] + (total - k) * logs[2])
        for k in range(count + 1)
    )
