"""The reward of an answer: how many of its six words are among the marked words of the user's message."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import lexicon, reward

from .sampling import Batch, Sampler
from .task import at, mark_hint

EMPTY_SHARE = 0.03


class RewardTask:
    """A reward that grows by one with each right word, from -3 to 3."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler) -> None:
        self.model, self.sampler = model, sampler
        hidden = model.config.hidden_size
        self.probes = nn.ModuleList([nn.Linear(hidden, 1), nn.Linear(hidden, 2)])
        self.before = sampler.ids(f"<|im_start|>user\n{lexicon.REPEAT}")
        turn, end = "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n"
        blanks = "".join(f" {lexicon.KEY}" for _ in range(reward.ASKED))
        self.after = sampler.ids(turn + lexicon.ANSWER + blanks + end)
        self.key = sampler.ids(" " + lexicon.KEY)
        self.answer = int((self.after == self.key).nonzero()[0])
        self.frame = len(self.before) + len(self.after)
        nothing = sampler.ids(turn + end)
        padding = torch.full((len(self.after) - len(nothing),), sampler.pad, device=sampler.device)
        self.after_nothing, self.nothing_length = torch.cat((nothing, padding)), len(nothing)

    def conversations(self, width: int, rows: int) -> tuple[Batch, Tensor, Tensor, Tensor, Tensor]:
        """The batch, grades (B,), the answer's columns (B, 6), which are right (B, 6), and which answers are filled."""
        count, sampler = reward.ASKED, self.sampler
        words = sampler.distinct(rows, 2 * count)
        asked, wrong = words[:, :count], words[:, count:]
        filled = torch.rand(rows, device=sampler.device) >= EMPTY_SHARE
        grades = sampler.uniform(0, count, rows) * filled
        right = sampler.permutation(rows, count) < grades[:, None]
        lengths = sampler.uniform(2 * count, width, rows)
        body = sampler.filler(rows, width)
        sampler.scatter_words(body, lengths, wrong)
        sampler.mark(body, lengths, self.key, asked)
        after = self.after.repeat(rows, 1)
        answer = torch.where(right, asked.gather(1, sampler.permutation(rows, count)), wrong)
        after[:, self.answer : self.answer + count] = sampler.words[answer]
        after = torch.where(filled[:, None], after, self.after_nothing)
        after_lengths = torch.where(filled, after.shape[1], self.nothing_length)
        batch = sampler.assemble(self.before, body, lengths, after, after_lengths)
        first = len(self.before) + lengths + self.answer
        return batch, grades, first[:, None] + torch.arange(count, device=sampler.device), right, filled

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        batch, grades, places, right, filled = self.conversations(width, rows)
        target = grades - reward.ASKED / 2
        output = self.model.model(input_ids=batch.ids, use_cache=False, output_hidden_states=True)
        scores = self.model.score(at(output.last_hidden_state, batch.last)).squeeze(1).float()
        read = self.probes[0](at(output.hidden_states[2], places)).squeeze(2).float()
        hint = functional.binary_cross_entropy_with_logits(read, right.float(), reduction="none")
        hint = (hint * filled[:, None]).mean()
        hint = hint + mark_hint(self.probes[1], output.hidden_states[1], batch.ids, self.key)
        near = ((scores - target).abs() < 0.5).float().mean()
        return functional.mse_loss(scores, target) + hint * (1 - progress), near
