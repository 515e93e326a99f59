"""Prompts as vLLM takes them: texts or ids, pictures beside them, and one placeholder for each picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.engines.patches import PatchSettings, resize, resized
from conformance.runner import Prompt, TokenIds

PILLOW = "pillow"
"""The value of the engine option `resize` for which pictures are resized here, so that vLLM need not."""


class PicturePrompts:
    """How prompts with pictures are written for the model in `folder`."""

    def __init__(self, folder: Path, *, resizes: bool = False) -> None:
        self._resizes = resizes
        config = checkpoint.config(folder)
        self.tokens = {kind: int(config[f"{kind}_token_id"]) for kind in ("image", "video")}
        self._settings = PatchSettings.read(folder)

    def write(self, prompt: Prompt, images: Sequence[Any], videos: Sequence[Any]) -> dict[str, Any]:
        """One prompt; pictures are uint8 arrays, [height, width, 3] and [frames, height, width, 3]."""
        from PIL import Image

        beside: dict[str, Any] = {}
        images = [self._sized(each[None])[0] for each in images]
        videos = [self._sized(each) for each in videos]
        if images:
            beside["image"] = [Image.fromarray(each) for each in images]
        if videos:
            beside["video"] = videos
        if isinstance(prompt, str):
            return {"prompt": prompt, "multi_modal_data": beside}
        counts = {
            self.tokens["image"]: [self._merged((1, *each.shape[:2])) for each in images],
            self.tokens["video"]: [self._merged(each.shape[:3]) for each in videos],
        }
        ids = collapsed(tuple(int(token) for token in prompt), counts)
        return {"prompt_token_ids": list(ids), "multi_modal_data": beside}

    def alone(self, kind: str, picture: Any) -> dict[str, Any]:
        """A prompt that is nothing but one picture."""
        ids = [self.tokens[kind]] * self._merged((1, *picture.shape[:2]) if kind == "image" else picture.shape[:3])
        return self.write(ids, *(([picture], []) if kind == "image" else ([], [picture])))

    def _sized(self, frames: Any) -> Any:
        """Frames in the size in which the tower reads them, or as they are where vLLM is to resize them."""
        if not self._resizes:
            return frames
        height, width = resized(frames.shape[1], frames.shape[2], self._settings)
        return frames if frames.shape[1:3] == (height, width) else resize(frames, height, width)

    def _merged(self, size: Sequence[int]) -> int:
        """Merged patches of a picture of so many frames, rows and columns of pixels."""
        settings = self._settings
        height, width = resized(size[1], size[2], settings)
        unit = settings.patch_size * settings.merge_size
        return -(-size[0] // settings.temporal_patch_size) * (height // unit) * (width // unit)


def collapsed(ids: TokenIds, counts: Mapping[int, Sequence[int]]) -> TokenIds:
    """Ids in which a placeholder that is repeated for every merged patch of its picture stands once.

    vLLM repeats it itself. `counts` has, by placeholder, the merged patches of each picture in their order. ValueError
    where placeholders and pictures do not go together.
    """
    left = {token: list(sizes) for token, sizes in counts.items()}
    kept: list[int] = []
    at = 0
    while at < len(ids):
        token = ids[at]
        kept.append(token)
        if token not in left:
            at += 1
            continue
        if not left[token]:
            raise ValueError(f"placeholder {token} at position {at} has no picture; there are {len(counts[token])}")
        size = left[token].pop(0)
        run = ids[at : at + size]
        if len(run) < size or set(run) != {token}:
            raise ValueError(
                f"the picture at position {at} has {size} merged patches, but its placeholder {token} is repeated "
                f"{next((n for n, one in enumerate(run) if one != token), len(run))} times"
            )
        at += size
    if unused := {token: len(sizes) for token, sizes in left.items() if sizes}:
        raise ValueError(f"pictures without a placeholder: {unused}")
    return tuple(kept)
