"""Where tokens stand: beside pictures, behind padding, and while decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during
from conformance.faults.rope import tables


def _rope_index(host: Host, change: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> None:
    """Positions beside pictures are `change(ids, mask, positions [3, n, length], excess)`."""

    def index(original: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        placed, excess = original(input_ids, *args, **kwargs)
        mask = kwargs.get("attention_mask")
        mask = (input_ids == input_ids).long() if mask is None else mask[:, -input_ids.shape[1] :]
        return change(input_ids, mask, placed, excess)

    host.wrap(host.model.model, "get_rope_index", index)


def _flat(host: Host) -> None:
    def change(ids: Any, mask: Any, placed: Any, excess: Any) -> tuple[Any, Any]:
        flat = (mask.cumsum(1) - 1).clamp(min=0)
        return flat.to(placed)[None].expand_as(placed), excess * 0

    _rope_index(host, change)


def _axes_swapped(host: Host) -> None:
    _rope_index(host, lambda ids, mask, placed, excess: (placed[[0, 2, 1]], excess))


def _time_dropped(host: Host) -> None:
    video = int(host.model.config.video_token_id)

    def change(ids: Any, mask: Any, placed: Any, excess: Any) -> tuple[Any, Any]:
        placed = placed.clone()
        for row, tokens in enumerate(ids.tolist()):
            start = None
            for at, token in enumerate(tokens):
                start = (at if start is None else start) if token == video else None
                if start is not None:
                    placed[0, row, at] = placed[0, row, start]
        return placed, excess

    _rope_index(host, change)


def _sections_mixed(host: Host) -> None:
    """The sizes of the first two sections change places, wherever this version of transformers keeps them."""
    rotary = host.rotary()
    config = host.model.config.get_text_config()
    sections = list((getattr(config, "rope_scaling", None) or config.rope_parameters)["mrope_section"])
    mixed = [sections[1], sections[0], *sections[2:]]

    def attend(original: Any, *args: Any, **kwargs: Any) -> Any:
        module = original.__self__
        with during(module, "rope_scaling", {**module.rope_scaling, "mrope_section": mixed}):
            return original(*args, **kwargs)

    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        with during(rotary, "mrope_section", mixed):
            found: tuple[Any, Any] = rotary.forward(hidden, position_ids)
        return found

    if hasattr(rotary, "mrope_section"):
        return tables(host, change)
    for module in host.attention_modules():
        host.wrap(module, "forward", attend)
    return None


def _padded_on_the_left(host: Host) -> None:
    first = int(host.model.config.pad_token_id) + 1 if host.model.config.model_type == "xlm-roberta" else 0

    def change(original: Any, *args: Any, **kwargs: Any) -> Any:
        ids = kwargs["input_ids"]
        at = ids.new_tensor(range(first, first + ids.shape[1]))
        return original(*args, **{**kwargs, "position_ids": at.expand_as(ids)})

    host.wrap(host.runner, "_pad", lambda original, rows, side: original(rows, "left"), always=True)
    host.wrap(host.model, "forward", change)


def _not_advanced(host: Host) -> None:
    last: list[Any] = []

    def change(original: Any, hidden: Any, position_ids: Any) -> Any:
        same = position_ids.shape[-1] == 1 and last and last[0].shape == position_ids.shape
        position_ids = last[0] if same else position_ids
        last[:] = [position_ids[..., -1:]]
        return original(hidden, position_ids)

    host.wrap(host.rotary(), "forward", change)


def _one_ahead(host: Host) -> None:
    def change(original: Any, hidden: Any, position_ids: Any) -> Any:
        return original(hidden, position_ids + (1 if position_ids.shape[-1] == 1 else 0))

    host.wrap(host.rotary(), "forward", change)


_mrope = partial(
    Fault,
    family="mrope",
    suite="multimodal",
    dtype="float32",
    model="multimodal-qwen2vl",
    structural=True,
    scopes=("all",),
    applies=applies.sees,
)
_decoding = partial(
    Fault,
    family="positions",
    suite="generation",
    dtype="float32",
    model="generation-qwen3",
    scopes=("all",),
    applies=applies.where(applies.rotary, applies.generates),
)

FAULTS = (
    _mrope(
        id="mrope.flat",
        description="Pictures get one-dimensional positions, as text has.",
        reference="vllm-project/vllm#14790",
        inject=_flat,
    ),
    _mrope(
        id="mrope.axes-swapped",
        description="Rows and columns of pictures change places in the positions.",
        reference="vllm-project/vllm#30478",
        inject=_axes_swapped,
    ),
    _mrope(
        id="mrope.time-dropped",
        description="All frames of a video have the time of its first.",
        reference="vllm-project/vllm#14790",
        inject=_time_dropped,
    ),
    _mrope(
        id="mrope.sections-mixed",
        description="The sections of time and rows have each other's size.",
        reference="vllm-project/vllm#30478, ml-explore/mlx-lm#1768",
        scopes=("all", "middle"),
        inject=_sections_mixed,
    ),
    Fault(
        id="positions.padding-counted",
        family="positions",
        description="Learned positions count the padding on the left of a row.",
        reference="huggingface/transformers#29419",
        suite="embedding",
        dtype="float32",
        model="embedding-xlmr",
        structural=True,
        scopes=("all",),
        inject=_padded_on_the_left,
        applies=applies.where(applies.learned_positions, applies.roles("embedding")),
    ),
    _decoding(
        id="positions.not-advanced",
        description="Decoding keeps the position of the prompt's last token.",
        reference="huggingface/transformers#29419 (the same class: positions of decoding)",
        structural=True,
        inject=_not_advanced,
    ),
    _decoding(
        id="positions.one-ahead",
        description="Decoding leaves out one position behind the prompt.",
        reference="huggingface/transformers#29419 (the same class: positions of decoding)",
        structural=False,
        inject=_one_ahead,
    ),
)
