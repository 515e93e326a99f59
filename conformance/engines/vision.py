"""A vision tower and what goes into it: pictures beside prompts, their placeholders, and positions in three axes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import torch

from conformance.engines.chosen_kernels import spelt
from conformance.engines.patches import Patches, PatchSettings, image_patches, video_patches
from conformance.runner import Grid, TokenIds, VisionEffective

PLACES_TEXT = "qwen2-vl"
"""The value of the engine option `positions` for which positions beside pictures are computed here, in `rope_index`."""


@dataclass(frozen=True)
class Pictures:
    """One prompt's images and videos."""

    images: tuple[Patches, ...] = ()
    videos: tuple[Patches, ...] = ()

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Those of the images, then of the videos."""
        return tuple(patches.grid for patches in (*self.images, *self.videos))


class Vision:
    """The vision tower of a loaded Qwen2-VL. `sequences` counts the attention calls a layer since it was set to 0.

    With `places_text`, positions are those of `rope_index` here instead of the model's own.
    """

    def __init__(self, model: Any, folder: Path, *, places_text: bool = False) -> None:
        self._model = model
        self._settings = PatchSettings.read(folder)
        self._wants_types = "mm_token_type_ids" in inspect.signature(model.forward).parameters
        self.tokens = {"image": int(model.config.image_token_id), "video": int(model.config.video_token_id)}
        self.sequences = 0
        model.model.visual.register_forward_pre_hook(self._count, with_kwargs=True)
        if places_text:
            model.model.get_rope_index = self.rope_index

    def effective(self) -> VisionEffective | None:
        """What ran since `sequences` was set to 0; None where nothing did."""
        if not self.sequences:
            return None
        config = self._model.config.vision_config
        return VisionEffective(spelt(str(config._attn_implementation)), int(config.depth), self.sequences)

    def read(self, images: Sequence[Any], videos: Sequence[Any]) -> Pictures:
        """The patches of one prompt's pictures, uint8 arrays; ValueError for what is no picture."""
        return Pictures(
            tuple(image_patches(image, self._settings) for image in images),
            tuple(video_patches(video, self._settings) for video in videos),
        )

    def expanded(self, ids: TokenIds, pictures: Pictures) -> TokenIds:
        """The ids of a text, each placeholder repeated once for every merged patch of its picture."""
        counts = self._counts(pictures)
        for kind, token in self.tokens.items():
            _same_number(kind, ids.count(token), len(counts[token]))
        left = {token: iter(sizes) for token, sizes in counts.items()}
        return tuple(one for token in ids for one in (token,) * (next(left[token]) if token in left else 1))

    def check(self, ids: TokenIds, pictures: Pictures) -> None:
        """ValueError where expanded ids do not hold a run of placeholders for every picture, of its size."""
        counts = self._counts(pictures)
        for kind, token in self.tokens.items():
            runs = [len(list(run)) for found, run in groupby(ids) if found == token]
            # Pictures may lie side by side in one run, but a run ends where a picture does.
            if sum(runs) != sum(counts[token]) or not {*accumulate(runs)} <= {*accumulate(counts[token])}:
                _same_number(kind, len(runs), len(counts[token]))
                raise ValueError(f"{runs} placeholders of {kind}s, but their merged patches are {counts[token]}")

    def arguments(self, batch: Sequence[Pictures]) -> dict[str, torch.Tensor]:
        """What the model is given beside ids: pixel values and grids of all pictures of a batch, in its order."""
        found = {}
        for suffix, kind, patches in (
            ("", "image", [each for pictures in batch for each in pictures.images]),
            ("_videos", "video", [each for pictures in batch for each in pictures.videos]),
        ):
            if patches:
                device = self._model.device
                values = torch.cat([torch.from_numpy(each.values) for each in patches])
                found[f"pixel_values{suffix}"] = values.to(device)
                found[f"{kind}_grid_thw"] = torch.tensor([each.grid for each in patches], device=device)
        return found

    def token_types(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """0 for text, 1 for images, 2 for videos [n, length], where this version of transformers wants to be told."""
        if not self._wants_types:
            return {}
        types = (ids == self.tokens["image"]).int() + 2 * (ids == self.tokens["video"]).int()
        return {"mm_token_type_ids": types}

    def positions(
        self, ids: torch.Tensor, mask: torch.Tensor, text: torch.Tensor, arguments: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Position ids [4, n, length]: those of text, then time, row and column as the model places them."""
        grids = {key: value for key, value in arguments.items() if key.endswith("_grid_thw")}
        if not grids:
            return text.expand(4, -1, -1)
        placed, _ = self._model.model.get_rope_index(ids, attention_mask=mask, **grids, **self.token_types(ids))
        return torch.cat([text[None], placed.to(text.device)])

    def rope_index(
        self,
        input_ids: torch.Tensor,
        image_grid_thw: torch.Tensor | None = None,
        video_grid_thw: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Time, row and column [3, n, length], and by how much they exceed the number of real tokens, [n, 1].

        Text goes on behind the greatest position of what came before it, as in the Qwen2-VL report (section 2.1).
        Transformers differs: from 5.3 on, the time of a video has no part in that maximum; 4.56 counts padding in
        the excess, and then decodes a padded batch at positions without it.
        """
        grids = {
            self.tokens[kind]: iter([] if found is None else found.tolist())
            for kind, found in (("image", image_grid_thw), ("video", video_grid_thw))
        }
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask[:, -input_ids.shape[1] :]
        placed = input_ids.new_zeros(3, *input_ids.shape)
        deltas = []
        for row, ids in enumerate(input_ids):
            real = mask[row].bool()
            parts, start = [], 0
            for token, run in groupby(ids[real].tolist(), lambda one: one if one in grids else None):
                length = len(list(run))
                while length:
                    part = torch.arange(length).expand(3, -1) if token is None else self._axes(next(grids[token]))
                    parts.append(part + start)
                    start, length = int(parts[-1].max()) + 1, length - part.shape[1]
            placed[:, row, real] = torch.cat(parts, dim=1).to(placed)
            deltas.append(start - int(real.sum()))
        return placed, torch.tensor(deltas, device=input_ids.device)[:, None]

    def features(self, pictures: Pictures) -> Iterator[torch.Tensor]:
        """The tower's output for each picture, [merged patches, width], images first."""
        arguments = self.arguments([pictures])
        model = self._model.model
        for suffix, kind, read in (("", "image", "get_image_features"), ("_videos", "video", "get_video_features")):
            if f"{kind}_grid_thw" in arguments:
                found = getattr(model, read)(arguments[f"pixel_values{suffix}"], arguments[f"{kind}_grid_thw"])
                yield from getattr(found, "pooler_output", found)

    def _axes(self, grid: list[int]) -> torch.Tensor:
        """Time, row and column of every merged patch of a grid, [3, merged patches]."""
        frames, rows, columns = (
            torch.arange(size // merge)
            for size, merge in zip(grid, (1, self._settings.merge_size, self._settings.merge_size), strict=True)
        )
        return torch.stack(torch.meshgrid(frames, rows, columns, indexing="ij")).reshape(3, -1)

    def _counts(self, pictures: Pictures) -> dict[int, list[int]]:
        merge = self._settings.merge_size**2
        return {
            self.tokens[kind]: [frames * rows * columns // merge for frames, rows, columns in grids]
            for kind, grids in (
                ("image", [each.grid for each in pictures.images]),
                ("video", [each.grid for each in pictures.videos]),
            )
        }

    def _count(self, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        grids = kwargs["grid_thw"] if "grid_thw" in kwargs else args[1]
        self.sequences += int(grids[:, 0].sum())


def _same_number(kind: str, placeholders: int, pictures: int) -> None:
    if placeholders != pictures:
        raise ValueError(
            f"a prompt has {placeholders} placeholder{'s' * (placeholders != 1)} of {kind}s, but {pictures} "
            f"{kind}{'s' * (pictures != 1)}; each needs one"
        )
