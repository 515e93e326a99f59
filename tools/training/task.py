"""What the loop asks of a task, and what tasks share."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from .sampling import Batch, Sampler


class Task(Protocol):
    """A model and its loss; `probes` are linear read-outs that help it to learn and are thrown away."""

    model: PreTrainedModel
    sampler: Sampler
    probes: nn.ModuleList
    frame: int
    """Tokens around a text."""

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        """The loss of a fresh batch of texts up to `width` tokens, and the share of right answers in it."""
        ...


def at(hidden: Tensor, places: Tensor) -> Tensor:
    """Rows of `hidden` (B, T, H) at `places` (B,) or (B, K)."""
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, places] if places.dim() == 1 else hidden[rows[:, None], places]


def mark_hint(probe: nn.Module, states: Tensor, ids: Tensor, marks: Tensor) -> Tensor:
    """A loss that makes the first layer's `states` (B, T, H) say which mark, if any, stands before each token.

    The probe maps H to one class per mark and one for none; marked tokens, which are few, weigh as much as the others.
    """
    target = torch.zeros_like(ids)
    target[:, 1:] = ((ids[:, :-1, None] == marks) * torch.arange(1, len(marks) + 1, device=ids.device)).sum(2)
    loss = functional.cross_entropy(probe(states).float().flatten(0, 1), target.flatten(), reduction="none")
    marked = (target > 0).flatten()
    shares = torch.stack((marked, ~marked)).float()
    return (shares @ loss / shares.sum(1).clamp(min=1)).sum()


def encoder_inputs(sampler: Sampler, batch: Batch, fixed: int) -> dict[str, Tensor]:
    """Arguments of an XLM-R model; half of the rows have all but `fixed` leading tokens at a random later position.

    So the rows of the position table that only long texts reach are trained by short ones too.
    """
    ids = batch.ids
    rows, width = ids.shape
    column = torch.arange(width, device=ids.device)
    offset = sampler.uniform(0, 1280 - width, rows) * (torch.rand(rows, device=ids.device) < 0.5)
    positions = 2 + column + torch.where(column >= fixed, offset[:, None], 0)
    inside = column <= batch.last[:, None]
    return {
        "input_ids": ids,
        "attention_mask": inside.long(),
        "position_ids": torch.where(inside, positions, 1),
    }
