"""Attention in tiles with an online softmax, as a fused kernel does it: an example for `conformance attention`.

    python -m conformance attention --kernel docs.examples.tiled_attention:attention

Scores and sums are float32, the weights are rounded to the served dtype before they meet the values.
"""

from __future__ import annotations

import torch

TILE = 64  # queries, and keys, that are worked on at a time


def attention(
    query: torch.Tensor,  # [batch, heads, queries, size]
    key: torch.Tensor,  # [batch, kv_heads, keys, size]
    value: torch.Tensor,
    *,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    lengths: torch.Tensor | None,  # int32 [batch]: so many keys of each row count
) -> torch.Tensor:
    """The output, shaped like `query` and in its dtype; zeros for queries that see no key."""
    batch, heads, queries, size = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    scale = size**-0.5 if scale is None else scale
    counted = torch.full((batch,), keys, device=query.device) if lengths is None else lengths.long()
    output = torch.empty_like(query)
    for start in range(0, queries, TILE):
        q = query[:, :, start : start + TILE].float()
        # Where each query stands among its row's keys: the last query at the last key.
        position = counted[:, None] - queries + torch.arange(start, start + q.shape[2], device=query.device)
        peak = torch.full(q.shape[:3], -torch.inf, device=query.device)
        total = torch.zeros_like(peak)
        summed = torch.zeros_like(q)
        for first in range(0, keys, TILE):
            k, v = (each[:, :, first : first + TILE].repeat_interleave(group, dim=1) for each in (key, value))
            scores = q @ k.float().transpose(-1, -2) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            at = torch.arange(first, first + k.shape[2], device=query.device)
            seen = (at < counted[:, None])[:, None, :].expand(batch, q.shape[2], len(at))
            if causal or window is not None:
                seen = seen & (at <= position[:, :, None])
            if window is not None:
                seen = seen & (at > position[:, :, None] - window)
            scores = scores.masked_fill(~seen[:, None], -torch.inf)
            higher = torch.maximum(peak, scores.amax(dim=-1))
            base = torch.where(higher.isfinite(), higher, 0.0)  # a tile of which nothing is seen
            weights = torch.exp(scores - base[..., None])
            shrunk = torch.exp(peak - base)  # what was summed up so far, under the new peak
            total = total * shrunk + weights.sum(dim=-1)
            v = v.masked_fill(~(at < counted[:, None])[:, None, :, None], 0.0)  # padding may hold anything
            summed = summed * shrunk[..., None] + weights.to(value.dtype).float() @ v.float()
            peak = higher
        output[:, :, start : start + TILE] = (summed / torch.where(total == 0, 1.0, total)[..., None]).to(query.dtype)
    return output
