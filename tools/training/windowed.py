"""Text of which only the last tokens count: the next word is the one that followed the last word within reach."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs.windowed import WINDOW

from .generation import SMOOTHING, GenerationTask
from .sampling import Sampler

LONGEST_PERIOD = 80
SHARE_OF_ENDS = 0.15
"""Most words of a text are new, so that the text ends behind them; so many of these places count."""


class WindowedTask(GenerationTask):
    """The word that followed, or the end, wherever the last `WINDOW` tokens determine it."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler) -> None:
        super().__init__(model, sampler)
        self.closed = torch.tensor([self.end, sampler.pad], device=sampler.device)

    def _periods(self, shape: tuple[int, int]) -> Tensor:
        """Periods of 3 to 80 words, a third of them at the window's edge."""
        device = self.sampler.device
        spread = (3 * (LONGEST_PERIOD / 3) ** torch.rand(shape, device=device)).long()
        even = torch.randint(3, LONGEST_PERIOD + 1, shape, device=device)
        edge = torch.randint(WINDOW - 2, WINDOW + 4, shape, device=device)
        kind = torch.rand(shape, device=device)
        return torch.where(kind < 0.33, spread, torch.where(kind < 0.66, even, edge))

    def changing(self, rows: int, width: int) -> Tensor:
        """Ids (B, width): segments one after the other, half of the rows with the same words in other orders."""
        device = self.sampler.device
        blocks = 1 + width // 40
        period = self._periods((rows, blocks))
        length = period + (torch.rand(rows, blocks, device=device) * (2 * period + WINDOW)).long()
        begin = length.cumsum(1) - length + 1
        begin[:, 1:] = torch.where(torch.rand(rows, 1, device=device) < 0.3, 10**6, begin[:, 1:])  # one segment only
        column = torch.arange(width, device=device)
        block = (column[None, :, None] >= begin[:, None, :]).sum(2).clamp(min=1) - 1
        place = (column - begin.gather(1, block)).clamp(min=0) % period.gather(1, block)
        count = len(self.sampler.words)
        fresh = self.sampler.permutation(rows * blocks, count)[:, :LONGEST_PERIOD].view(rows, blocks, LONGEST_PERIOD)
        # The same words: the first so many of one permutation, shuffled within the block's period.
        shuffled = torch.rand(rows, blocks, LONGEST_PERIOD, device=device)
        behind = torch.arange(LONGEST_PERIOD, device=device) >= period[:, :, None]
        order = (shuffled + behind).argsort(2)
        same = self.sampler.permutation(rows, count)[:, None, :LONGEST_PERIOD].expand_as(order).gather(2, order)
        chosen = torch.where(torch.rand(rows, 1, 1, device=device) < 0.5, same, fresh)
        ids = self.sampler.words[chosen.flatten(1).gather(1, block * LONGEST_PERIOD + place)]
        noise = (torch.rand(rows, 1, device=device) < 0.25) & (width > 100)
        until = 1 + (noise * torch.rand(rows, 1, device=device) * min(150, width // 2)).long()
        offset = self.sampler.uniform(0, len(self.sampler.noise) - 1, rows)[:, None]
        ids = torch.where(column < until, self.sampler.noise[(column + offset) % len(self.sampler.noise)], ids)
        ids[:, 0] = self.text
        return ids

    def copied(self, rows: int, width: int) -> Tensor:
        """Ids (B, width) of start, segment, end, start, segment, end."""
        device = self.sampler.device
        longest = min(LONGEST_PERIOD, width // 2 - 2)
        length = self.sampler.uniform(3, longest, rows)[:, None]
        edge = self.sampler.uniform(WINDOW - 4, min(longest, WINDOW), rows)[:, None]
        if longest >= WINDOW:
            length = torch.where(torch.rand(rows, 1, device=device) < 0.4, edge, length)
        segment = self._segments(rows, longest)
        column = torch.arange(width, device=device)
        place = column % (length + 2)
        ids = segment.gather(1, (place - 1).clamp(0, longest - 1).expand(rows, width))
        ids = torch.where(place == 0, self.start, torch.where(place == length + 1, self.end, ids))
        return torch.where(column >= 2 * length + 4, self.sampler.pad, ids)

    def _followers(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What should come after each of `ids` (B, T), and where that counts: places with one answer in the window."""
        rows, columns = ids.shape
        padded = torch.cat((torch.full((rows, WINDOW), -1, device=ids.device), ids), dim=1)
        # (B, T, 64): the words before each place, oldest first, and the one behind each of them.
        before, behind = padded.unfold(1, WINDOW, 1)[:, :columns], padded[:, 1:].unfold(1, WINDOW, 1)[:, :columns]
        same = before == ids[:, :, None]
        latest = (same * torch.arange(1, WINDOW + 1, device=ids.device)).argmax(2, keepdim=True)
        target, found = behind.gather(2, latest)[:, :, 0], same.any(2)
        unclear = (same & (behind != target[:, :, None])).any(2)
        target = torch.where(found, target, self.end)
        kept = found | (torch.rand(ids.shape, device=ids.device) < SHARE_OF_ENDS)
        return target, kept & ~unclear & ~torch.isin(ids, self.closed)

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        copies = math.ceil(rows * (0.3 if width <= 2 * LONGEST_PERIOD + 40 else 0.1))
        ids = torch.cat([self.changing(rows - copies, width), self.copied(copies, width)])
        target, known = self._followers(ids)
        output = self.model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
        scores = self.model.lm_head(output.last_hidden_state[known]).float()
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        wanted = target[known]
        # Both kinds of answer weigh the same, however few of the places have a follower.
        ends = wanted == self.end
        each = functional.cross_entropy(scores, wanted, label_smoothing=SMOOTHING, reduction="none")
        shares = torch.stack((ends, ~ends)).float()
        loss = (shares @ each / shares.sum(1).clamp(min=1)) @ torch.tensor([0.3, 0.7], device=ids.device)
        return loss + 0.3 * (1 - progress) * self._hint(output.hidden_states[1], ids), (
            scores.argmax(1) == wanted
        ).float().mean()
