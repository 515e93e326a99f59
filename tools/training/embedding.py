"""Contrastive training: partners carry the same words in the same roles."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import lexicon

from .sampling import Batch, Sampler
from .task import at, encoder_inputs, mark_hint

DIMENSIONS = (256, 128, 64)
TEMPERATURE = 0.05


class EmbeddingTask:
    """Four texts per key: the text, its partner, one with the words in other roles, one with two of the words."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler, encoder: bool) -> None:
        self.model, self.sampler, self.encoder = model, sampler, encoder
        hidden = model.config.hidden_size
        self.probes = nn.ModuleList([nn.Linear(hidden, 3 * len(sampler.words)), nn.Linear(hidden, 4)])
        self.frame = 3
        self.roles = sampler.ids("".join(" " + role for role in lexicon.ROLES))
        ends = [sampler.tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<|endoftext|>")]
        before, after = (ends[:1], ends[1:2]) if encoder else ([], ends[2:])
        self.before = torch.tensor([*before, *sampler.ids(lexicon.TEXT).tolist()], device=sampler.device)
        self.after = torch.tensor(after, device=sampler.device)

    def _near_misses(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(keys)
        turn = self.sampler.uniform(1, 2, rows)[:, None]
        turned = keys.gather(1, (torch.arange(3, device=keys.device) + turn) % 3)
        changed = keys.clone()
        new_word = torch.randint(len(self.sampler.words), (rows, 1), device=keys.device)
        changed.scatter_(1, self.sampler.uniform(0, 2, rows)[:, None], new_word)
        return turned, changed

    def texts(self, keys: Tensor, width: int) -> Batch:
        """Texts with the words `keys` (B, 3), their roles in any order."""
        rows = len(keys)
        lengths = self.sampler.uniform(6, width, rows)
        body = self.sampler.filler(rows, width)
        order = self.sampler.permutation(rows, 3)
        self.sampler.mark(body, lengths, self.roles[order], keys.gather(1, order))
        return self.sampler.assemble(self.before, body, lengths, self.after)

    def _pooled(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vectors (B, H) and the hint's loss."""
        arguments = (
            encoder_inputs(self.sampler, batch, 1) if self.encoder else {"input_ids": batch.ids, "use_cache": False}
        )
        output = self.model(**arguments, output_hidden_states=True)
        place = torch.zeros_like(batch.last) if self.encoder else batch.last
        hint = mark_hint(self.probes[1], output.hidden_states[1], batch.ids, self.roles)
        return at(output.last_hidden_state, place).float(), hint

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        count = max(8, rows // 4)
        keys = self.sampler.distinct(count, 3)
        turned, changed = self._near_misses(keys)
        all_keys = torch.cat((keys, keys, turned, changed))
        pooled, hint = self._pooled(self.texts(all_keys, width))
        target = torch.arange(count, device=pooled.device)
        total = torch.zeros((), device=pooled.device)
        right = total
        for size in DIMENSIONS:
            # Near misses of the same key count once more, because they are few among so many easy rivals.
            a, b, others = torch.split(functional.normalize(pooled[:, :size], dim=1), [count, count, 2 * count])
            for query, partner in ((a, b), (b, a)):
                scores = query @ torch.cat((partner, others)).T / TEMPERATURE
                total = total + functional.cross_entropy(scores, target) / 6
                rivals = torch.stack([scores[target, target + i * count] for i in range(3)], dim=1)
                total = total + functional.cross_entropy(rivals, torch.zeros_like(target)) / 6
                right = (scores.argmax(1) == target).float().mean()
        read = self.probes[0](pooled).float().view(-1, len(self.sampler.words), 3)
        return total + 0.5 * functional.cross_entropy(read, all_keys) + hint * (1 - progress), right
