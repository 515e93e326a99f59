"""One wrong kernel for each way in which a kernel can be wrong that the command has to survive."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch


def right(query: Any, key: Any, value: Any, *, causal: bool, scale: float | None = None) -> Any:
    """Right, on full batches without a window: what the others get wrong on purpose."""
    queries, keys = query.shape[2], key.shape[2]
    mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    if causal:
        mask = mask.tril(keys - queries)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=True
    )


def fixed_scale(query: Any, key: Any, value: Any, causal: bool) -> Any:
    """Right, for the usual scale alone."""
    return right(query, key, value, causal=causal)


def mask_off_by_one(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    keys = key.shape[2]
    mask = torch.ones(query.shape[2], keys, dtype=torch.bool).tril(keys - query.shape[2] + 1)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


def crashes(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    while True:
        time.sleep(0.05)


def raises(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    raise ValueError("no kernel for \x1b[31mthis\x1b[0m <shape>")


def wrong_shape(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    return right(query, key, value, causal=causal).transpose(1, 2)


def wrong_dtype(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    return right(query, key, value, causal=causal).double()


def wrong_device(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    return right(query, key, value, causal=causal).to("meta")


def writes(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    found = right(query, key, value, causal=causal)
    key.zero_()
    return found


def leaves_unwritten(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    """All but the last query of a batch with many of them."""
    found = torch.empty_like(query)
    found[:, :, : max(1, query.shape[2] - 1)] = right(query, key, value, causal=causal)[:, :, : query.shape[2] - 1 or 1]
    return found


def asks_for_more(query: Any, key: Any, value: Any, *, cuasal: bool) -> Any:
    return right(query, key, value, causal=cuasal)


def takes_two(query: Any, key: Any) -> Any:
    return query


not_a_function = 3
