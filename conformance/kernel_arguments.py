"""What an attention kernel takes beside query, key and value, and which calls need it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.runner import AttentionCall

ARGUMENTS = {
    "causal": "bool: a query sees no key behind its own position, which is counted from the end of the keys",
    "scale": "float or None: of the scores; 1 / sqrt(size) where None",
    "window": "int or None: a query sees the keys at most window - 1 positions before its own",
    "softcap": "float or None: scores become softcap * tanh(scores / softcap), before the mask",
    "lengths": "int32 tensor [batch] or None: so many keys of each row count, the rest is padding",
}


def lacking(call: AttentionCall, takes: Collection[str]) -> list[str]:
    """What the call needs and a kernel that takes only `takes` is not given; empty where it can be called.

    A kernel without `causal` lets every query see every key.
    """
    queries, size, keys = call.query.shape[2], call.query.shape[3], call.key.shape[2]
    needs = {
        "causal": call.causal and queries > 1,
        "scale": call.scale is not None and call.scale != 1 / math.sqrt(size),
        "window": call.window is not None,
        "softcap": call.softcap is not None,
        "lengths": call.lengths is not None and any(length != keys for length in call.lengths),
    }
    return [name for name, is_needed in needs.items() if is_needed and name not in takes]
