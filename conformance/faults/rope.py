"""Rotary positions: tables made wrong, and queries and keys rotated otherwise than the model rotates them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during


def tables(host: Host, change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
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

        tables(host, change)

    return inject


def _phase_bfloat16(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        import torch

        if hasattr(rotary, "mrope_section"):  # where sections are put together here, every axis has its positions
            position_ids = position_ids.expand(3, -1, -1)
        phase = position_ids[..., None].to(torch.bfloat16) * rotary.inv_freq.to(torch.bfloat16)
        both = rotary.recomposition_frequencies if hasattr(rotary, "mrope_section") else _twice
        return both(phase.float().cos()).to(hidden.dtype), both(phase.float().sin()).to(hidden.dtype)

    tables(host, change)


def _twice(values: Any) -> Any:
    import torch

    return torch.cat((values, values), dim=-1)


def _table_bfloat16(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        import torch

        cos, sin = rotary.forward(hidden, position_ids)
        return cos.to(torch.bfloat16).to(cos.dtype), sin.to(torch.bfloat16).to(sin.dtype)

    tables(host, change)


def _partial(host: Host) -> None:
    def change(rotary: Any, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
        cos, sin = (part.clone() for part in rotary.forward(hidden, position_ids))
        half = cos.shape[-1] // 2
        for start in (half // 2, half + half // 2):
            cos[..., start : start + half // 2] = 1
            sin[..., start : start + half // 2] = 0
        return cos, sin

    tables(host, change)


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


_rope = partial(
    Fault,
    family="rope",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=applies.rotary,
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
)
