"""Prompts with pictures as SGLang takes them: ids whose placeholders are repeated, and the patches of the pictures.

SGLang takes what a processor made of pictures in the processor's place, so that it neither resizes them nor samples
frames of a video.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.engines.patches import Patches, PatchSettings, image_patches, video_patches
from conformance.runner import Grid, Prompt, TokenIds

KINDS = ("image", "video")


class PicturePrompts:
    """How prompts with pictures are written for the model in `folder`; `tokenize` makes ids of a text."""

    def __init__(self, folder: Path, tokenize: Callable[[str], Sequence[int]]) -> None:
        config = checkpoint.config(folder)
        self.tokens = {kind: int(config[f"{kind}_token_id"]) for kind in KINDS}
        self._begins, self._ends = (int(config[f"vision_{side}_token_id"]) for side in ("start", "end"))
        self.layers = checkpoint.vision_layers(folder) or 0
        self._settings = PatchSettings.read(folder)
        self._tokenize = tokenize

    def write(
        self, prompt: Prompt, images: Sequence[Any], videos: Sequence[Any]
    ) -> tuple[TokenIds, dict[str, Any], tuple[Grid, ...]]:
        """One prompt's ids, its pictures as arguments of a request, and their grids, images first.

        Pictures are uint8 arrays, [height, width, 3] and [frames, height, width, 3]. ValueError where placeholders and
        pictures do not go together.
        """
        patches = {
            "image": [image_patches(each, self._settings) for each in images],
            "video": [video_patches(each, self._settings) for each in videos],
        }
        counts = {self.tokens[kind]: [self._merged(each) for each in found] for kind, found in patches.items()}
        if isinstance(prompt, str):
            ids = expanded([int(token) for token in self._tokenize(prompt)], counts)
        else:
            ids = tuple(int(token) for token in prompt)
            check(ids, counts)
        beside = {f"{kind}_data": [_processed(kind, found)] for kind, found in patches.items() if found}
        return ids, beside, tuple(each.grid for kind in KINDS for each in patches[kind])

    def write_all(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> list[tuple[Prompt, dict[str, Any], tuple[Grid, ...]]]:
        """The same of several prompts; ValueError where there are pictures for another number of them."""
        for what, given in (("images", images), ("videos", videos)):
            if given is not None and len(given) != len(prompts):
                raise ValueError(f"{what} for {len(given)} prompts, but there are {len(prompts)}")
        return [
            self.write(each, images[i] if images else (), videos[i] if videos else ()) for i, each in enumerate(prompts)
        ]

    def alone(self, kind: str, picture: Any) -> tuple[TokenIds, dict[str, Any], tuple[Grid, ...]]:
        """One picture between the tokens that begin and end one; without text SGLang looks at no picture."""
        read = image_patches if kind == "image" else video_patches
        ids = [self._begins, *[self.tokens[kind]] * self._merged(read(picture, self._settings)), self._ends]
        return self.write(ids, *(([picture], []) if kind == "image" else ([], [picture])))

    def _merged(self, patches: Patches) -> int:
        frames, rows, columns = patches.grid
        return int(frames * rows * columns // self._settings.merge_size**2)


def expanded(ids: Sequence[int], counts: Mapping[int, Sequence[int]]) -> TokenIds:
    """Ids in which each placeholder is repeated once for every merged patch of its picture.

    `counts` has, by placeholder, the merged patches of each picture in their order. ValueError where there are more or
    fewer placeholders than pictures.
    """
    for token, sizes in counts.items():
        if ids.count(token) != len(sizes):
            raise ValueError(
                f"placeholder {token} stands {ids.count(token)} times, but there are {len(sizes)} pictures"
            )
    left = {token: iter(sizes) for token, sizes in counts.items()}
    return tuple(one for token in ids for one in (token,) * (next(left[token]) if token in left else 1))


def check(ids: Sequence[int], counts: Mapping[int, Sequence[int]]) -> None:
    """ValueError where expanded ids do not hold a run of placeholders for every picture, of its size."""
    for token, sizes in counts.items():
        runs = [len(list(run)) for found, run in groupby(ids) if found == token]
        # Pictures may lie side by side in one run, but a run ends where a picture does.
        if sum(runs) != sum(sizes) or not {*accumulate(runs)} <= {*accumulate(sizes)}:
            raise ValueError(
                f"placeholder {token} stands in runs of {runs}, but its pictures have {sizes} merged patches"
            )


def _processed(kind: str, patches: Sequence[Patches]) -> dict[str, Any]:
    """Pictures of one kind, in the form in which SGLang takes them from a processor."""
    import numpy as np
    import torch

    values = "pixel_values" if kind == "image" else "pixel_values_videos"
    return {
        "format": "processor_output",
        values: torch.from_numpy(np.concatenate([each.values for each in patches])),
        f"{kind}_grid_thw": torch.tensor([each.grid for each in patches]),
    }
