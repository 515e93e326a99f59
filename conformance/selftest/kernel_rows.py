"""The rows of a judged kernel call, made into the call again: rules elsewhere compare kernels with eager attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.criteria.attention_math import ideal
from conformance.runner import AttentionCall
from conformance.selftest.elsewhere import Numbers

KERNELS = "attention.agrees"
"""The criterion whose rows hold one call of an attention kernel: query, key, value and what else it was given."""


def eager_answer(rows: Mapping[str, Any], dtype: str) -> Numbers | None:
    """What same-dtype eager attention answers to the call, float64 [batch, heads, queries, size]; None without one.

    None in float32 too: there the rounding of sums is what counts, and an emulation has none.
    """
    if dtype == "float32" or not {"query", "key", "value"} <= set(rows):
        return None

    def once(name: str) -> Any:
        return rows[name][0].item() if name in rows else None

    call = AttentionCall(
        query=np.asarray(rows["query"]),
        key=np.asarray(rows["key"]),
        value=np.asarray(rows["value"]),
        causal=bool(once("causal")),
        scale=once("scale"),
        window=once("window"),
        softcap=once("softcap"),
        lengths=tuple(int(length) for length in rows["lengths"]) if "lengths" in rows else None,
    )
    answer: Numbers = ideal(call, dtype, "eager")
    return answer
