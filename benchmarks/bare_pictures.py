"""What the default run asks about pictures, in plain transformers: ids with placeholders, patches, and three positions.

Patches come from the suite's own numpy code: transformers 5 reads no video without torchvision.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bare_model import Asked, Rows, batches, logprobs

from conformance.engines.patches import PatchSettings, image_patches, video_patches
from suites.inputs import multimodal
from suites.multimodal import FEATURED_FRAMES


class Pictures:
    """The prompts' ids, and what goes to the model beside a batch of them."""

    def __init__(self, asked: Asked, prompts: Any) -> None:
        settings = PatchSettings.read(Path(asked.folder))
        config = asked.model.config
        self._asked = asked
        self._tokens = {"image": config.image_token_id, "video": config.video_token_id}
        self._seen = [
            {
                "image": [image_patches(one, settings) for one in images],
                "video": [video_patches(one, settings) for one in videos],
            }
            for images, videos in zip(prompts.images, prompts.videos, strict=True)
        ]
        self.rows: Rows = [
            self._expanded(asked.tokens([prompt])[0], seen)
            for prompt, seen in zip(prompts.prompts, self._seen, strict=True)
        ]

    def _expanded(self, ids: Sequence[int], seen: dict[str, list[Any]]) -> list[int]:
        left = {token: iter([len(one.values) // 4 for one in seen[kind]]) for kind, token in self._tokens.items()}
        return [one for token in ids for one in [token] * (next(left[token]) if token in left else 1)]

    def beside(self, batch: Sequence[int]) -> dict[str, torch.Tensor]:
        """Pixel values and grids of a batch's pictures."""
        found = {}
        for kind, suffix in (("image", ""), ("video", "_videos")):
            patches = [one for index in batch for one in self._seen[index][kind]]
            if patches:
                found[f"pixel_values{suffix}"] = torch.from_numpy(np.concatenate([one.values for one in patches]))
                found[f"{kind}_grid_thw"] = torch.tensor([one.grid for one in patches])
        return found

    def types(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """1 for images, 2 for videos, 0 for text."""
        types = (ids == self._tokens["image"]).int() + 2 * (ids == self._tokens["video"]).int()
        return {"mm_token_type_ids": types}

    def generate(self, rows: Rows, max_tokens: int = 128, order: Sequence[int] | None = None) -> list[list[int]]:
        """Greedy tokens; `order` says whose pictures belong to the rows, where they are a selection."""
        whose = list(range(len(rows))) if order is None else list(order)
        return self._asked.generate(
            rows, max_tokens, beside=lambda batch, ids: self.beside([whose[i] for i in batch]) | self.types(ids)
        )


def pictures(asked: Asked) -> Pictures:
    """Those of the suite's prompts, read once."""
    if "pictures" not in asked.known:
        asked.known["pictures"] = Pictures(asked, multimodal.inputs())
    found: Pictures = asked.known["pictures"]
    return found


def seen_greedy(asked: Asked) -> list[list[int]]:
    """Free text about pictures; what is set back on course builds on it."""
    if "greedy" not in asked.known:
        asked.known["greedy"] = pictures(asked).generate(pictures(asked).rows)
    found: list[list[int]] = asked.known["greedy"]
    return found


def seen_ended(asked: Asked) -> list[list[int]]:
    """Text that ends."""
    shown = Pictures(asked, multimodal.inputs().ended)
    return shown.generate(shown.rows)


def features(asked: Asked) -> Any:
    """The tower's output for the pictures whose features are compared."""
    inputs = multimodal.inputs()
    settings = PatchSettings.read(Path(asked.folder))
    images = [image_patches(given[0], settings) for given in inputs.images if given]
    videos = [video_patches(g[0], settings) for g in inputs.videos if g and len(g[0]) <= FEATURED_FRAMES]
    found = []
    for kind, patches in (("image", images), ("video", videos)):
        values = torch.from_numpy(np.concatenate([one.values for one in patches]))
        read = getattr(asked.model.model, f"get_{kind}_features")
        found += read(values, torch.tensor([one.grid for one in patches])).pooler_output
    return torch.cat(list(found)).float().numpy()


def _prefill(asked: Asked, rows: Rows, batch: Sequence[int], keep: int, use_cache: bool) -> tuple[Any, ...]:
    """One pass over rows with the pictures of the prompts `batch`."""
    shown = pictures(asked)
    ids, mask, positions = asked.padded(rows, "left")
    beside = shown.beside(batch)
    grids = {key: value for key, value in beside.items() if "grid" in key}
    placed, deltas = asked.model.model.get_rope_index(ids, attention_mask=mask, **grids, **shown.types(ids))
    output = asked.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=torch.cat([positions[None], placed]),
        use_cache=use_cache,
        logits_to_keep=keep,
        **beside,
    )
    return output, mask, positions[:, -1:], deltas


def seen_prefilled(asked: Asked, forced: tuple[Rows, Rows, Any], whose: Sequence[int] | None = None) -> Any:
    """Forced tokens, read in one pass; `whose` says whose pictures belong to the prompts, where they are some."""
    prompts, told, candidates = forced
    longest = candidates.shape[1]
    found = np.empty(candidates.shape)
    for batch in batches([len(row) + longest for row in prompts]):
        rows = [[*prompts[i], *told[i], *[prompts[i][0]] * (longest - len(told[i]))] for i in batch]
        output, *_ = _prefill(asked, rows, [i if whose is None else whose[i] for i in batch], longest + 1, False)
        found[batch] = logprobs(output.logits[:, :-1]).gather(2, torch.from_numpy(candidates[batch])).numpy()
    return found


def seen_decoded(asked: Asked, forced: tuple[Rows, Rows, Any], whose: Sequence[int] | None = None) -> Any:
    """Forced tokens, one at a time; `whose` as above."""
    prompts, told, candidates = forced
    longest = candidates.shape[1]
    found = np.empty(candidates.shape)
    for batch in batches([len(row) for row in prompts], extra=longest):
        wanted = torch.from_numpy(candidates[batch])
        texts = [[*told[i], *[prompts[i][0]] * (longest - len(told[i]))] for i in batch]
        shown = [i if whose is None else whose[i] for i in batch]
        output, mask, at, deltas = _prefill(asked, [prompts[i] for i in batch], shown, 1, True)
        for step in range(longest):
            found[batch, step] = logprobs(output.logits[:, -1]).gather(1, wanted[:, step]).numpy()
            if step + 1 == longest:
                break
            at = at + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            output = asked.model(
                input_ids=torch.tensor([[text[step]] for text in texts]),
                attention_mask=mask,
                position_ids=torch.cat([at[None], (at + deltas).expand(3, -1, -1)]),
                past_key_values=output.past_key_values,
                use_cache=True,
            )
    return found
