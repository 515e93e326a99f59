"""Relevance of a document to a query as yes/no log-odds of a decoder or as the logit of a cross-encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import lexicon, rerank

from .sampling import Batch, Sampler
from .task import at, encoder_inputs, mark_hint
from .vocabulary import RERANK_TEMPLATE

STEP = 1.2
"""Log-odds between one grade and the next; the middle grade is at zero."""

EMPTY_SHARE = 0.03


@dataclass(frozen=True)
class Pairs:
    """A batch with each row's grade (B,), the columns of its marked words (B, K), and whether the query names them."""

    batch: Batch
    grades: Tensor
    places: Tensor
    named: Tensor
    filled: Tensor


class RerankTask:
    """Log-odds that grow by `STEP` with each grade."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler, encoder: bool) -> None:
        self.model, self.sampler, self.encoder = model, sampler, encoder
        hidden = model.config.hidden_size
        self.probes = nn.ModuleList([nn.Linear(hidden, 1), nn.Linear(hidden, 2), nn.Linear(hidden, 2)])
        find = lexicon.FIND + "".join(f" {lexicon.KEY}" for _ in range(rerank.NAMED))
        if encoder:
            frame = f"<s>{find}</s></s>{lexicon.NOTE}", "</s>"
        else:
            full = RERANK_TEMPLATE.format(instruction=rerank.INSTRUCTION, query=find, document="\0")
            before, after = full.split("\0")
            frame = before + lexicon.NOTE, after
            self.yes, self.no = (int(sampler.ids(word)[0]) for word in ("yes", "no"))
            self.space = int(sampler.ids(" ")[0])
        self.before, self.after = (sampler.ids(text) for text in frame)
        self.key = sampler.ids(" " + lexicon.KEY)
        self.query = int((self.before == self.key).nonzero()[0])
        self.before_document = len(self.before)
        self.frame = len(self.before) + len(self.after)

    def pairs(self, width: int, rows: int) -> Pairs:
        """Documents of up to `width` tokens, a few of them empty."""
        count, sampler = rerank.NAMED, self.sampler
        words = sampler.distinct(rows, 2 * count)
        query, others = words[:, :count], words[:, count:]
        grades = sampler.uniform(0, count, rows)
        filled = torch.rand(rows, device=sampler.device) >= EMPTY_SHARE
        grades = grades * filled
        named = sampler.permutation(rows, count) < grades[:, None]
        marked = torch.where(named, query.gather(1, sampler.permutation(rows, count)), others)
        lengths = sampler.uniform(2 * count, width, rows)
        body = sampler.filler(rows, width)
        sampler.scatter_words(body, lengths, query)
        columns = sampler.mark(body, lengths, self.key, marked)
        before = self.before.repeat(rows, 1)
        before[:, self.query : self.query + count] = sampler.words[query]
        if not self.encoder:
            before[:, -1] = torch.where(filled, before[:, -1], self.space)
        nothing = -1 if self.encoder else 0
        batch = sampler.assemble(before, body, torch.where(filled, lengths, nothing), self.after)
        return Pairs(batch, grades, columns + self.before_document, named, filled)

    def _region_hint(self, states: Tensor) -> Tensor:
        """A loss that makes the first layer's states (B, T, H) say which words are the query's.

        A causal model has to know, because the same words come again in a long document. The positions before the
        query and as many behind it are asked.
        """
        asked = states[:, : self.query + rerank.NAMED + 60]
        inside = torch.arange(asked.shape[1], device=states.device) - self.query
        target = ((inside >= 0) & (inside < rerank.NAMED)).long().expand(len(states), -1)
        read = self.probes[2](asked).float().flatten(0, 1)
        weight = torch.tensor([1.0, 10.0], device=states.device)
        return functional.cross_entropy(read, target.flatten(), weight=weight)

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        pairs = self.pairs(width, rows)
        target = (pairs.grades - rerank.NAMED / 2) * STEP
        if self.encoder:
            arguments = encoder_inputs(self.sampler, pairs.batch, self.before_document)
            output = self.model.roberta(**arguments, output_hidden_states=True)
            odds = self.model.classifier(output.last_hidden_state).squeeze(1).float()
            loss = functional.mse_loss(odds, target)
        else:
            output = self.model.model(input_ids=pairs.batch.ids, use_cache=False, output_hidden_states=True)
            scores = self.model.lm_head(at(output.last_hidden_state, pairs.batch.last)).float()
            odds = scores[:, self.yes] - scores[:, self.no]
            logs = functional.log_softmax(scores, dim=1)
            yes = target.sigmoid()
            told = -(yes * logs[:, self.yes] + (1 - yes) * logs[:, self.no]).mean()
            loss = told + functional.mse_loss(odds, target)
        read = self.probes[0](at(output.hidden_states[2], pairs.places)).squeeze(2).float()
        hint = functional.binary_cross_entropy_with_logits(read, pairs.named.float(), reduction="none")
        hint = (hint * pairs.filled[:, None]).mean()
        hint = hint + mark_hint(self.probes[1], output.hidden_states[1], pairs.batch.ids, self.key)
        right = ((odds - target).abs() < STEP / 2).float().mean()
        if not self.encoder:
            hint = hint + self._region_hint(output.hidden_states[1])
        return loss + hint * (1 - progress), right
