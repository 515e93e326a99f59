"""From pixels to the patches that Qwen2-VL's vision tower reads, without torchvision.

The same numbers, to the last bit, as transformers 4.56's `Qwen2VLImageProcessor` makes of images and of videos (it is
the last that reads both without torchvision; a test holds them together): sides to multiples of patch size times
merge size by Pillow's bicubic filter, scaled to 0 to 1, normalised by channel, cut into patches in merge order.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.checkpoint import PREPROCESSORS
from conformance.runner import Grid, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_TO_SHORTEST = 200
"""The vision tower's limit for the ratio of a picture's sides, as transformers has it."""


@dataclass(frozen=True)
class Patches:
    """A picture as the vision tower reads it: `values` is float32 [patches, channels x frames x height x width]."""

    values: NDArray[np.float32]
    grid: Grid


@dataclass(frozen=True)
class PatchSettings:
    """What a model's preprocessor configuration says; sizes in pixels, mean and std by channel of 0 to 1."""

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, folder: Path) -> PatchSettings:
        """Of a model folder. ValueError where it has no such file, or one that is not understood."""
        file = next((folder / name for name in PREPROCESSORS if (folder / name).is_file()), None)
        if file is None:
            raise ValueError(f"{folder} has neither {' nor '.join(PREPROCESSORS)}, which say how its pictures are read")
        try:
            found = json.loads(file.read_text("utf-8"))
            found = found.get("image_processor", found)
            size = found.get("size") or {}
            settings = cls(
                patch_size=int(found["patch_size"]),
                temporal_patch_size=int(found["temporal_patch_size"]),
                merge_size=int(found["merge_size"]),
                min_pixels=int(found.get("min_pixels") or size["shortest_edge"]),
                max_pixels=int(found.get("max_pixels") or size["longest_edge"]),
                mean=tuple(map(float, found["image_mean"])),
                std=tuple(map(float, found["image_std"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{file}: no preprocessor configuration of Qwen2-VL ({error!r})") from None
        numbers = (*vars(settings).values(), *settings.std)
        if any(not 0 < each < math.inf for each in numbers if not isinstance(each, tuple)):
            raise ValueError(f"{file}: sizes and image_std must be above 0, but are {settings}")
        if not len(settings.mean) == len(settings.std) == 3:
            raise ValueError(f"{file}: image_mean and image_std must have 3 numbers, for red, green and blue")
        off = [key for key in ("do_resize", "do_rescale", "do_normalize") if found.get(key, True) is not True]
        if off:
            raise ValueError(f"{file}: {', '.join(off)} is off, but Qwen2-VL's pictures are read with all of them on")
        return settings


def image_patches(image: Any, settings: PatchSettings) -> Patches:
    """Of one image, uint8 [height, width, 3]; its temporal patch repeats it. ValueError for anything else."""
    pixels = _pixels(image, "an image", ("height", "width", "3 (RGB)"))
    return _patches(pixels[None], settings)


def video_patches(video: Any, settings: PatchSettings) -> Patches:
    """Of one video, uint8 [frames, height, width, 3]; the last frame is repeated to whole temporal patches."""
    return _patches(_pixels(video, "a video", ("frames", "height", "width", "3 (RGB)")), settings)


def resized(height: int, width: int, settings: PatchSettings) -> tuple[int, int]:
    """The height and width to which a picture is resized.

    The nearest multiples of a merged patch, shrunk or grown in proportion where the area is outside the limits.
    ValueError where one side is more than 200 times the other.
    """
    longest, shortest = max(height, width), min(height, width)
    if longest > LONGEST_TO_SHORTEST * shortest:
        raise ValueError(
            f"a picture of {width} x {height} pixels: one side is {longest / shortest:g} times the other, but Qwen2-VL "
            f"reads at most {LONGEST_TO_SHORTEST} times"
        )
    unit = settings.patch_size * settings.merge_size
    rows, columns = round(height / unit) * unit, round(width / unit) * unit
    if rows * columns > settings.max_pixels:
        shrink = math.sqrt(height * width / settings.max_pixels)
        return (
            max(unit, math.floor(height / shrink / unit) * unit),
            max(unit, math.floor(width / shrink / unit) * unit),
        )
    if rows * columns < settings.min_pixels:
        grow = math.sqrt(settings.min_pixels / (height * width))
        return math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
    return rows, columns


def _pixels(picture: Any, what: str, axes: tuple[str, ...]) -> NDArray[np.uint8]:
    should = f"but should be a uint8 array [{', '.join(axes)}]"
    if not isinstance(picture, np.ndarray):
        raise ValueError(f"{what} is a {type(picture).__name__}, {should}")
    if picture.dtype != np.uint8 or picture.ndim != len(axes):
        raise ValueError(f"{what} is {picture.dtype} {list(picture.shape)}, {should}")
    if picture.shape[-1] != 3:
        hint = "; with alpha, or in CMYK, convert it to RGB first" if picture.shape[-1] == 4 else ""
        raise ValueError(f"{what} has {picture.shape[-1]} channels, {should}{hint}")
    if 0 in picture.shape:
        empty = axes[picture.shape.index(0)]
        raise ValueError(f"{what} is {list(picture.shape)}: it has no {empty}, {should}, none of them 0")
    return picture


def _patches(frames: NDArray[np.uint8], settings: PatchSettings) -> Patches:
    height, width = resized(frames.shape[1], frames.shape[2], settings)
    if (height, width) != frames.shape[1:3]:
        frames = resize(frames, height, width)
    # In float64 to 0 to 1 and in float32 from there: the order in which the processor rounds.
    scaled = (frames.astype(np.float64) * (1 / 255)).astype(np.float32)
    values = (scaled - np.array(settings.mean, np.float32)) / np.array(settings.std, np.float32)
    depth, merge, size = settings.temporal_patch_size, settings.merge_size, settings.patch_size
    missing = -len(values) % depth
    values = np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])
    grid = (len(values) // depth, height // size, width // size)
    cut = values.reshape(grid[0], depth, grid[1] // merge, merge, size, grid[2] // merge, merge, size, 3)
    ordered = cut.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
    return Patches(np.ascontiguousarray(ordered.reshape(math.prod(grid), -1)), grid)


def resize(frames: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Frames [n, height, width, 3] in another size, by Pillow's bicubic filter. `Unavailable` without Pillow."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise Unavailable(
            f"pictures of {frames.shape[2]} x {frames.shape[1]} pixels have to be resized, and Pillow is not "
            "installed; install pillow"
        ) from None
    return np.stack(
        [np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC)) for frame in frames]
    )
