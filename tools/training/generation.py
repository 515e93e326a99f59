"""Text whose continuation is determined: segments that repeat for ever, and segments that are copied once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import lexicon

from .sampling import Sampler

SMOOTHING = 0.08
"""Probability spread over the whole vocabulary, so that log-probabilities are not saturated."""

LONGEST_PERIOD = 620
LONGEST_COPY = 110


class GenerationTask:
    """The next word wherever the text determines it."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler) -> None:
        self.model, self.sampler = model, sampler
        hidden, vocabulary = model.config.hidden_size, model.config.vocab_size
        self.probes = nn.ModuleList([nn.Linear(hidden, vocabulary), nn.Linear(hidden, vocabulary)])
        self.frame = 0
        self.text = int(sampler.ids(lexicon.TEXT)[0])
        self.start, self.copy, self.end = (
            int(sampler.ids(text)[0]) for text in ("<|im_start|>", " " + lexicon.COPY, "<|im_end|>")
        )

    def _segments(self, rows: int, width: int) -> Tensor:
        """(B, width) words: permutations of the lexicon, or, in a third of the rows, draws from a part of it."""
        count = len(self.sampler.words)
        repeats = -(-width // count)
        index = torch.cat([self.sampler.permutation(rows, count) for _ in range(repeats)], dim=1)[:, :width]
        part = self.sampler.uniform(40, count, rows)[:, None]
        drawn = (torch.rand(rows, width, device=self.sampler.device) * part).long()
        drawn = self.sampler.permutation(rows, count).gather(1, drawn)
        return self.sampler.words[torch.where(torch.rand(rows, 1, device=drawn.device) < 0.33, drawn, index)]

    def periodic(self, rows: int, width: int) -> tuple[Tensor, Tensor]:
        """Ids (B, width) and where they are determined: from the third word of the second period on."""
        device = self.sampler.device
        longest = min(LONGEST_PERIOD, int(width / 1.2) - 3)
        period = (3 * (longest / 3) ** torch.rand(rows, 1, device=device)).long()
        uniform = self.sampler.uniform(3, longest, rows)[:, None]
        period = torch.where(torch.rand(rows, 1, device=device) < 0.5, period, uniform)
        slack = torch.clamp(width - (1.2 * period).long() - 4, min=0)
        noise = (torch.rand(rows, 1, device=device) < 0.25) * torch.rand(rows, 1, device=device)
        begin = 1 + (noise * torch.clamp(slack, max=150)).long()
        column = torch.arange(width, device=device)
        ids = self._segments(rows, longest).gather(1, ((column - begin) % period).clamp(min=0))
        offset = self.sampler.uniform(0, len(self.sampler.noise) - 1, rows)[:, None]
        ids = torch.where(column < begin, self.sampler.noise[(column + offset) % len(self.sampler.noise)], ids)
        ids[:, 0] = self.text
        return ids, column >= begin + period + 2

    def copies(self, rows: int, width: int) -> tuple[Tensor, Tensor]:
        """Ids (B, width) of start, segment, copy mark, segment, end; determined behind the mark."""
        device = self.sampler.device
        longest = min(LONGEST_COPY, (width - 3) // 2)
        length = (3 * (longest / 3 + 0.3) ** torch.rand(rows, 1, device=device)).long().clamp(max=longest)
        segment = self._segments(rows, longest)
        column = torch.arange(width, device=device)
        place = torch.where(column <= length, column - 1, column - 2 - length)
        ids = segment.gather(1, place.clamp(0, longest - 1))
        ids = torch.where(column == length + 1, self.copy, ids)
        ids = torch.where(column == 2 * length + 2, self.end, ids)
        ids = torch.where(column > 2 * length + 2, self.sampler.pad, ids)
        ids[:, 0] = self.start
        return ids, (column > length + 1) & (column <= 2 * length + 2)

    def _hint(self, states: Tensor, ids: Tensor) -> Tensor:
        """A loss that makes the first layer's states (B, T, H) name the two tokens before, at every fourth token."""
        loss = torch.zeros((), device=ids.device)
        for distance, probe in enumerate(self.probes, start=1):
            read = probe(states[:, 3::4]).float().flatten(0, 1)
            before = ids[:, 3 - distance : ids.shape[1] - distance : 4].flatten()
            loss = loss + functional.cross_entropy(read, before, ignore_index=self.sampler.pad)
        return loss

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        copies = math.ceil(rows * (0.5 if width <= 2 * LONGEST_COPY + 40 else 0.1))
        made = (self.periodic(rows - copies, width), self.copies(copies, width))
        ids = torch.cat([ids for ids, _ in made])
        known = torch.cat([mask for _, mask in made])[:, 1:]
        output = self.model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
        scores = self.model.lm_head(output.last_hidden_state[:, :-1][known])
        target = ids[:, 1:][known]
        loss = functional.cross_entropy(scores.float(), target, label_smoothing=SMOOTHING)
        return loss + 0.3 * (1 - progress) * self._hint(output.hidden_states[1], ids), (
            scores.argmax(1) == target
        ).float().mean()
