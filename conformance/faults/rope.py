"""Positions: rotary tables, multimodal sections, learned tables under padding, and decoding steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during


def _tables(host: Host, change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
    """Layers in scope get cos and sin of `change(rotary, hidden, position ids)` in place of the shared ones."""
    rotary = host.rotary()
    asked: list[Any] = []
    table = rotary.forward

    def remember(original: Any, hidden: Any, position_ids: Any) -> Any:
        asked[:] = [hidden, position_ids]
        return original(hidden, position_ids)

    def attend(original: Any, *args: Any, **kwargs: Any) -> Any:
        with during(rotary, "forward", table):
            changed = change(rotary, *asked)
        return original(*args, **{**kwargs, "position_embeddings": changed})

    host.wrap(rotary, "forward", remember, always=True)
    for module in host.attention_modules():
        host.wrap(module, "forward", attend)


def _theta(factor: float) -> Callable[[Host], None]:
    """theta times `factor`: frequency i of n is theta ** (-i / n)."""

    def inject(host: Host) -> None:
        def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
            count = rotary.inv_freq.shape[0]
            powers = rotary.inv_freq.new_tensor([factor ** (-i / count) for i in range(count)])
            with during(rotary, "inv_freq", rotary.inv_freq * powers):
                found: tuple[Any, Any] = rotary.forward(hidden, position_ids)
            return found

        _tables(host, change)

    return inject


def _phase_bfloat16(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        import torch

        if hasattr(rotary, "mrope_section"):  # where sections are put together here, every axis has its positions
            position_ids = position_ids.expand(3, -1, -1)
        phase = position_ids[..., None].to(torch.bfloat16) * rotary.inv_freq.to(torch.bfloat16)
        both = rotary.recomposition_frequencies if hasattr(rotary, "mrope_section") else _twice
        return both(phase.float().cos()).to(hidden.dtype), both(phase.float().sin()).to(hidden.dtype)

    _tables(host, change)


def _twice(values: Any) -> Any:
    import torch

    return torch.cat((values, values), dim=-1)


def _table_bfloat16(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        import torch

        cos, sin = rotary.forward(hidden, position_ids)
        return cos.to(torch.bfloat16).to(cos.dtype), sin.to(torch.bfloat16).to(sin.dtype)

    _tables(host, change)


def _partial(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        cos, sin = (part.clone() for part in rotary.forward(hidden, position_ids))
        half = cos.shape[-1] // 2
        for start in (half // 2, half + half // 2):
            cos[..., start : start + half // 2] = 1
            sin[..., start : start + half // 2] = 0
        return cos, sin

    _tables(host, change)


def _query_ahead(host: Host) -> None:
    from conformance.faults.kernel import rotated_half

    rotary = host.rotary()

    def change(call: Any) -> Any:
        angle = _twice(rotary.inv_freq.float())
        turned = call.query.float() * angle.cos() + rotated_half(call.query.float()) * angle.sin()
        return call.run(query=turned.to(call.query.dtype))

    host.attention(change)


def _interleaved(host: Host) -> None:
    import sys

    def attend(module: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        namespace = sys.modules[type(module).__module__]
        names = ("apply_multimodal_rotary_pos_emb", "apply_rotary_pos_emb")
        name = next(name for name in names if hasattr(namespace, name))
        rotate = getattr(namespace, name)

        def paired(query: Any, key: Any, *rest: Any, **options: Any) -> Any:
            # Even dimensions first, then odd ones: rotating halves of these is rotating neighbours of those.
            query, key = (part.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) for part in (query, key))
            return rotate(query, key, *rest, **options)

        with during(namespace, name, paired):
            return original(*args, **kwargs)

    for module in host.attention_modules():
        host.wrap(module, "forward", partial(attend, module))


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
        return _tables(host, change)
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


_rope = partial(
    Fault,
    family="rope",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=applies.rotary,
)
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
    _rope(
        id="rope.theta-ten-percent",
        description="The rotary base is 10% too large.",
        reference="huggingface/transformers#29285 (the same class: rotary tables made wrong)",
        structural=True,
        inject=_theta(1.1),
    ),
    _rope(
        id="rope.theta-wrong",
        description="The rotary base is 50 times too large: the default of another model.",
        reference="huggingface/transformers#29285 (the same class: rotary tables made wrong)",
        structural=True,
        inject=_theta(50.0),
    ),
    _rope(
        id="rope.phase-bfloat16",
        description="Position times frequency is computed in bfloat16.",
        reference="huggingface/transformers#29285, EleutherAI/gpt-neox#1003",
        structural=True,
        inject=_phase_bfloat16,
    ),
    _rope(
        id="rope.table-bfloat16",
        description="Sines and cosines are rounded to bfloat16 in a float32 run.",
        reference="sgl-project/sglang-jax#1472, huggingface/candle#3520",
        structural=False,
        inject=_table_bfloat16,
    ),
    _rope(
        id="rope.partial",
        description="Only the first half of the frequencies rotates.",
        reference="huggingface/transformers#29285 (the same class: rotary tables made wrong)",
        structural=True,
        inject=_partial,
    ),
    _rope(
        id="rope.query-ahead",
        description="Queries are rotated by one position more than keys.",
        reference="vllm-project/vllm#14790 (the same class: positions off)",
        structural=True,
        inject=_query_ahead,
    ),
    _rope(
        id="rope.interleaved",
        description="Neighbouring dimensions are rotated as pairs, where the model pairs the two halves.",
        reference="ml-explore/mlx-lm#1768 (the same class: layout of rotary dimensions)",
        structural=True,
        inject=_interleaved,
    ),
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
