"""Prefill in chunks: a prompt is read piece by piece, each piece attending to those before it through the cache."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from conformance.runner import NotSupported

OPTION = "prefill_chunk"
"""The option of a runner that says how many tokens a chunk has."""


def passes(
    model: Any,
    inputs: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    *,
    size: int,
    cache: str,
    keep: int | None = None,
) -> Iterator[Any]:
    """The output for each chunk of `size` columns of a padded batch [n, length]; the last has the whole cache.

    `cache` is what the model calls its argument for the cache. With `keep`, only the logits of the last `keep` columns
    of the batch are wanted: of a chunk without any of them, those of one column are computed.
    """
    length, held = inputs.shape[1], None
    for start in range(0, length, size):
        end = min(start + size, length)
        beside: dict[str, Any] = (
            {} if keep is None else {"logits_to_keep": min(end - start, max(1, end - length + keep))}
        )
        output = model(
            input_ids=inputs[:, start:end],
            attention_mask=mask[:, :end],
            position_ids=positions[:, start:end],
            use_cache=True,
            **({} if held is None else {cache: held}),
            **beside,
        )
        held = getattr(output, cache)
        yield output


def logits(
    model: Any, inputs: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, keep: int, *, keeps: bool, **how: Any
) -> tuple[Any, torch.Tensor]:
    """The last chunk's output, and the logits of the last `keep` columns; `keeps` says whether the model can leave out
    others, `how` as in `passes`.
    """
    found = []
    for output in passes(model, inputs, mask, positions, keep=keep if keeps else None, **how):
        found.append(output.logits)
    return output, torch.cat(found, dim=1)[:, -keep:]


def states(model: Any, inputs: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, **how: Any) -> Any:
    """An output with the last hidden states of all chunks as one; `how` as in `passes`.

    NotSupported for a model with another head, or one whose attention is bidirectional: it needs a prompt whole.
    """
    if not any(getattr(module, "is_causal", False) for module in model.modules()):
        raise NotSupported(f"{OPTION}: {type(model).__name__} attends in both directions, so it reads a prompt whole")
    found = []
    for output in passes(model, inputs, mask, positions, **how):
        if getattr(output, "last_hidden_state", None) is None:
            raise NotSupported(f"{OPTION}: the head of {type(model).__name__} reads a prompt whole")
        found.append(output.last_hidden_state)
    return SimpleNamespace(last_hidden_state=torch.cat(found, dim=1))
