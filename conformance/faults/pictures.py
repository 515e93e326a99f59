"""Images and videos: patches, grids and frames in the wrong order, and pictures that attend to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host


def _pixels(host: Host, change: Callable[..., Any], *kinds: str) -> None:
    """Patches of images, videos or both are `change(original, picture, settings)`."""
    from conformance.engines import vision

    for kind in kinds or ("image", "video"):
        host.wrap(vision, f"{kind}_patches", change)


def _grid_transposed(host: Host) -> None:
    def change(original: Any, hidden: Any, *args: Any, grid_thw: Any = None, **kwargs: Any) -> Any:
        grid_thw, args = (args[0], args[1:]) if grid_thw is None else (grid_thw, args)
        return original(hidden, *args, grid_thw=grid_thw[:, [0, 2, 1]], **kwargs)

    host.wrap(host.vision_tower, "forward", change)


def _patches_unmerged(host: Host) -> None:
    def change(original: Any, picture: Any, settings: Any) -> Any:
        found = original(picture, settings)
        frames, rows, columns = found.grid
        merge = settings.merge_size
        merged = found.values.reshape(frames, rows // merge, columns // merge, merge, merge, -1)
        return replace(found, values=merged.transpose(0, 1, 3, 2, 4, 5).reshape(found.values.shape).copy())

    _pixels(host, change)


def _normalised_otherwise(host: Host) -> None:
    def change(original: Any, picture: Any, settings: Any) -> Any:
        return original(picture, replace(settings, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))

    _pixels(host, change)


def _channels_swapped(host: Host) -> None:
    _pixels(host, lambda original, picture, settings: original(picture[..., ::-1].copy(), settings))


def _frames_reversed(host: Host) -> None:
    _pixels(host, lambda original, video, settings: original(video[::-1].copy(), settings), "video")


def _features_shifted(host: Host) -> None:
    def change(original: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if hasattr(found, "pooler_output"):
            found.pooler_output = found.pooler_output.roll(1, dims=0)
            return found
        return found.roll(1, dims=0)

    host.wrap(host.vision_tower, "forward", change)


def _attending_across(host: Host) -> None:
    before: list[tuple[Any, Any]] = []

    def start(original: Any, *args: Any, **kwargs: Any) -> Any:
        before.clear()
        return original(*args, **kwargs)

    def change(call: Any) -> Any:
        import torch

        if "cu_seq_lens_q" in call.options:  # all pictures in one call: then they become one sequence
            whole = call.options["cu_seq_lens_q"][[0, -1]]
            length = call.query.shape[2]
            return call.run(cu_seq_lens_q=whole, cu_seq_lens_k=whole, max_length_q=length, max_length_k=length)
        before.append((call.key, call.value))
        key, value = (torch.cat(parts, dim=2) for parts in zip(*before, strict=True))
        return call.run(key=key, value=value)

    for module in host.attention_modules(vision=True):
        host.wrap(module, "forward", start, always=True)
    host.attention(change, vision=True)


_picture = partial(
    Fault,
    family="pictures",
    suite="multimodal",
    dtype="float32",
    model="multimodal-qwen2vl",
    structural=True,
    scopes=("all",),
    applies=applies.sees,
)

FAULTS = (
    _picture(
        id="pictures.grid-transposed",
        description="The vision tower takes rows of patches for columns.",
        reference="vllm-project/vllm#14790",
        inject=_grid_transposed,
    ),
    _picture(
        id="pictures.patches-unmerged",
        description="Patches come in reading order, where the tower expects those that are merged side by side.",
        reference="vllm-project/vllm#30478",
        inject=_patches_unmerged,
    ),
    _picture(
        id="pictures.other-normalisation",
        description="Pixels are normalised with mean and deviation 0.5, not with the model's.",
        reference="ml-explore/mlx-lm#1768 (the same class: preprocessing of another model)",
        inject=_normalised_otherwise,
    ),
    _picture(
        id="pictures.channels-swapped",
        description="Red and blue change places.",
        reference="ml-explore/mlx-lm#1768 (the same class: preprocessing of another model)",
        inject=_channels_swapped,
    ),
    _picture(
        id="pictures.frames-reversed",
        description="The frames of a video are read from the last to the first.",
        reference="vllm-project/vllm#14790 (the same class: order in time)",
        inject=_frames_reversed,
    ),
    _picture(
        id="pictures.features-shifted",
        description="Each placeholder gets the features of the patch before.",
        reference="vllm-project/vllm#30478",
        inject=_features_shifted,
    ),
    _picture(
        id="pictures.attending-across",
        description="In the vision tower a picture attends to those before it.",
        reference="Dao-AILab/flash-attention#2303 (the same class: lengths of packed sequences)",
        scopes=("all", "middle"),
        inject=_attending_across,
    ),
)
