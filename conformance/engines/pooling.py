"""How one vector is made of a prompt's hidden states."""

from __future__ import annotations

from collections.abc import Callable

import torch

Pool = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From hidden states [n, longest, hidden] and the attention mask [n, longest] to vectors [n, hidden]."""


def _first(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden[torch.arange(len(hidden), device=hidden.device), mask.argmax(1)]


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    where = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), where]


def _mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


_BY_NAME: dict[str, Pool] = {"cls": _first, "last": _last, "mean": _mean}


def pooling(name: str) -> Pool:
    """The pooling that the catalogue's parameter `pooling` names; padding on either side is left out.

    Raises ValueError for another name.
    """
    if name not in _BY_NAME:
        raise ValueError(f"unknown pooling {name!r}; known are {', '.join(sorted(_BY_NAME))}")
    return _BY_NAME[name]
