"""Six classes with soft targets: the softmax of the numbers of marked words."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from suites.inputs import classification, lexicon

from .sampling import Batch, Sampler
from .task import at

SHARPNESS = 0.9
MOST_MARKED = 7


class ClassificationTask:
    """Logits that differ by `SHARPNESS` for each marked word."""

    def __init__(self, model: PreTrainedModel, sampler: Sampler) -> None:
        self.model, self.sampler = model, sampler
        self.probes = nn.ModuleList()
        self.frame = 1
        per_label = [
            [lexicon.WORDS.index(word) for word in lexicon.CATEGORIES[label]] for label in classification.LABELS
        ]
        self.of_label = torch.tensor(per_label, device=sampler.device)
        self.key = sampler.ids(" " + lexicon.KEY)
        self.before = sampler.ids(lexicon.TEXT)

    def texts(self, width: int, rows: int) -> tuple[Batch, Tensor]:
        """Texts and how many marked words (B, 6) of each class they hold."""
        sampler, labels = self.sampler, len(self.of_label)
        shape = (rows, MOST_MARKED)
        favoured = torch.randint(labels, (rows, 1), device=sampler.device).expand(shape)
        chosen = torch.randint(labels, shape, device=sampler.device)
        label = torch.where(torch.rand(shape, device=sampler.device) < 0.4, favoured, chosen)
        words = self.of_label[label, torch.randint(self.of_label.shape[1], shape, device=sampler.device)]
        used = sampler.permutation(rows, MOST_MARKED) < sampler.uniform(5, MOST_MARKED, rows)[:, None]
        lengths = sampler.uniform(2 * MOST_MARKED, width, rows)
        body = sampler.filler(rows, width)
        sampler.mark(body, lengths, self.key, words, used)
        counts = (functional.one_hot(label, labels) * used[:, :, None]).sum(1)
        return sampler.assemble(self.before, body, lengths, self.key[:0]), counts

    def loss(self, width: int, rows: int, progress: float) -> tuple[Tensor, Tensor]:
        batch, counts = self.texts(width, rows)
        hidden = self.model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        scores = self.model.score(at(hidden, batch.last)).float()
        target = (SHARPNESS * counts).softmax(1)
        loss = functional.cross_entropy(scores, target) - (-target * target.log()).sum(1).mean()
        top = counts.topk(2, dim=1).values
        clear = top[:, 0] > top[:, 1]
        right = (scores.argmax(1) == counts.argmax(1))[clear].float().mean()
        centred = scores - scores.mean(1, keepdim=True)
        wanted = SHARPNESS * (counts - counts.float().mean(1, keepdim=True))
        return loss + 0.1 * functional.mse_loss(centred, wanted), right
