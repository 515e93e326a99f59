"""Images and videos of coloured grids within a text, and the prompt that asks for their colours, as Qwen2-VL's chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from . import lexicon
from .pictures import SIDES, Cells, draw, grid, is_round_trip, round_trip

END = "<|im_end|>"
"""Ends a text that was to be read once."""

SYSTEM = "You are a helpful assistant."
OPENING = f"<|im_start|>system\n{SYSTEM}{END}\n<|im_start|>user\n"
CLOSING = f"{END}\n<|im_start|>assistant\n"
"""What Qwen2-VL's chat template writes around a user's message."""

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
FOR_EVER, ONCE = lexicon.REPEAT, lexicon.COPY
"""The last word of the message: how often the colours are read."""

FILLER: tuple[str, ...] = tuple(word for word in lexicon.WORDS if word not in lexicon.CATEGORIES["colour"])


@dataclass(frozen=True)
class Shape:
    """A grid of `rows` by `columns` cells; a video where there are `frames`, else an image."""

    rows: int
    columns: int
    frames: int | None = None
    sides: tuple[int, int] = SIDES

    @property
    def cells(self) -> int:
        return self.rows * self.columns * (self.frames or 1)


@dataclass(frozen=True, eq=False)
class Seen:
    """An image, uint8 [height, width, 3], or a video, uint8 [frames, height, width, 3], with the colours in it."""

    pixels: Any
    cells: Cells

    @property
    def is_video(self) -> bool:
        return bool(self.pixels.ndim == 4)


@dataclass(frozen=True, eq=False)
class Scene:
    """Images and videos in reading order; `words[i]` are the filler before number i, the last are those behind all."""

    seen: tuple[Seen, ...]
    words: tuple[tuple[str, ...], ...]

    @property
    def cells(self) -> Cells:
        return tuple(name for one in self.seen for name in one.cells)

    def prompt(self, instruction: str) -> str:
        """The chat up to the answer; `instruction` is the message's last word."""
        pads = [VIDEO if one.is_video else IMAGE for one in self.seen]
        parts = [joined(words) + pad for words, pad in zip(self.words, [*pads, ""], strict=True)]
        return f"{OPENING}{''.join(parts)} {instruction}{CLOSING}"

    def images(self) -> tuple[Any, ...]:
        return tuple(one.pixels for one in self.seen if not one.is_video)

    def videos(self) -> tuple[Any, ...]:
        return tuple(one.pixels for one in self.seen if one.is_video)


def joined(words: Sequence[str]) -> str:
    """Words as they stand within a text, each behind a space."""
    return "".join(" " + word for word in words)


def _seen(rng: Random, shape: Shape, cells: Cells) -> Seen:
    import numpy as np

    layout = grid(rng, shape.rows, shape.columns, shape.sides)
    if shape.frames is None:
        return Seen(draw(rng, layout, cells), cells)
    frames = np.stack([draw(rng, layout, cells[at : at + layout.cells]) for at in range(0, len(cells), layout.cells)])
    frames.setflags(write=False)
    return Seen(frames, cells)


def draw_scene(rng: Random, shapes: Sequence[Shape], words: Sequence[int]) -> Scene:
    """Images and videos of these shapes, with so many words of filler before each and behind all."""
    cells = round_trip(rng, sum(shape.cells for shape in shapes))
    seen, first = [], 0
    for shape in shapes:
        seen.append(_seen(rng, shape, cells[first : first + shape.cells]))
        first += shape.cells
    return Scene(tuple(seen), tuple(tuple(rng.choices(FILLER, k=count)) for count in words))


def _images_reordered(scene: Scene, order: Sequence[int]) -> Scene:
    return Scene(tuple(scene.seen[at] for at in order), scene.words)


def _frames_reordered(scene: Scene, order: Sequence[int]) -> Scene:
    """The same for the frames of a scene that is one video."""
    (video,) = scene.seen
    size = len(video.cells) // len(video.pixels)
    frames = [video.cells[at * size : (at + 1) * size] for at in order]
    pixels = video.pixels[list(order)]
    pixels.setflags(write=False)
    return Scene((Seen(pixels, tuple(name for frame in frames for name in frame)),), scene.words)


def draw_pair(rng: Random, shapes: Sequence[Shape], words: Sequence[int], order: Sequence[int]) -> tuple[Scene, Scene]:
    """A scene, and one that differs in the order of its images, or, where it is one video, of its frames."""
    reordered = _frames_reordered if len(shapes) == 1 else _images_reordered
    while True:
        one = draw_scene(rng, shapes, words)
        other = reordered(one, order)
        if is_round_trip(other.cells) and one.cells != other.cells:
            return one, other
