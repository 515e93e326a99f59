"""Attention scores and heads: a wrong scale or softcap, and query heads that read other key heads than theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log, sqrt
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during


def _scaled(factor: Callable[[int], float]) -> Callable[[Host], None]:
    """Scores multiplied by what `factor` answers to the head size."""

    def inject(host: Host) -> None:
        host.attention(lambda call: call.run(scaling=call.scale * factor(call.query.shape[-1])))

    return inject


def _unscaled(host: Host) -> None:
    host.attention(lambda call: call.run(scaling=1.0))


def _softcap_dropped(host: Host) -> None:
    host.attention(lambda call: call.run(softcap=None))


def _softcap_wrong(host: Host) -> None:
    host.attention(lambda call: call.run(softcap=0.6 * call.options["softcap"]))


def _softcap_after_mask(host: Host) -> None:
    from dataclasses import replace

    def change(call: Any) -> Any:
        import torch

        cap = call.options["softcap"]
        call.run()
        uncapped = replace(call, options={**call.options, "softcap": None})
        return uncapped.computed(masked=lambda scores: cap * torch.tanh(scores / cap))

    host.attention(change)


def _final_softcap_dropped(host: Host) -> None:
    def change(original: Any, *args: Any, **kwargs: Any) -> Any:
        with during(host.model.config.get_text_config(), "final_logit_softcapping", None):
            return original(*args, **kwargs)

    host.wrap(host.model, "forward", change)


def _tiled_map(host: Host) -> None:
    def change(call: Any) -> Any:
        heads, kv_heads = call.query.shape[1], call.key.shape[1]
        order = sorted(range(heads), key=lambda head: head % kv_heads)  # head h reads key head h % kv_heads
        output = call.run(query=call.query[:, order])
        return output[:, :, [order.index(head) for head in range(heads)]]

    host.attention(change)


def _swapped_heads(host: Host) -> None:
    host.attention(lambda call: call.run(key=call.key.flip(1), value=call.value.flip(1)))


def _head_zeroed(host: Host) -> None:
    def change(call: Any) -> Any:
        output = call.run().clone()
        output[:, :, -1] = 0
        return output

    host.attention(change)


_scale = partial(
    Fault,
    family="scale",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=lambda config, role: None,
)
_softcap = partial(
    Fault,
    family="softcap",
    suite="generation",
    dtype="float32",
    model="generation-gemma2",
    scopes=("all", "middle"),
    applies=applies.capped,
)
_gqa = partial(_scale, family="gqa", structural=True)


FAULTS = (
    _scale(
        id="scale.one-percent",
        description="Scores are 1% too large.",
        reference="flashinfer-ai/flashinfer#4014",
        structural=False,
        inject=_scaled(lambda size: 1.01),
    ),
    _scale(
        id="scale.size-plus-one",
        description="Scores are divided by the root of the head size plus one.",
        reference="flashinfer-ai/flashinfer#4014",
        structural=False,
        inject=_scaled(lambda size: sqrt(size / (size + 1))),
    ),
    _scale(
        id="scale.missing",
        description="Scores are not scaled at all.",
        reference="flashinfer-ai/flashinfer#4014",
        structural=True,
        inject=_unscaled,
    ),
    _scale(
        id="scale.doubled",
        description="Scores are twice as large.",
        reference="flashinfer-ai/flashinfer#4014",
        structural=True,
        inject=_scaled(lambda size: 2.0),
    ),
    _scale(
        id="scale.base-two",
        description="Scores are exponentiated with base two, without the factor log2(e).",
        reference="flashinfer-ai/flashinfer#787",
        structural=True,
        inject=_scaled(lambda size: log(2)),
    ),
    _softcap(
        id="softcap.dropped",
        description="Scores are not capped.",
        reference="sgl-project/sglang#33915, vllm-project/vllm#11252",
        structural=True,
        inject=_softcap_dropped,
    ),
    _softcap(
        id="softcap.wrong-cap",
        description="Scores are capped at 0.6 of the model's cap.",
        reference="vllm-project/vllm#11252",
        structural=False,
        inject=_softcap_wrong,
    ),
    _softcap(
        id="softcap.after-mask",
        description="Scores are capped after the mask, so that hidden keys count with the weight of minus the cap.",
        reference="Dao-AILab/flash-attention 72e27c63",
        structural=False,
        inject=_softcap_after_mask,
    ),
    Fault(
        id="softcap.final-dropped",
        family="softcap",
        description="The final logits are not capped.",
        reference="sgl-project/sglang#33915",
        suite="generation",
        dtype="float32",
        model="generation-gemma2",
        structural=True,
        scopes=("all",),
        inject=_final_softcap_dropped,
        applies=applies.where(applies.model, applies.finally_capped),
    ),
    Fault(
        id="gqa.tiled-map",
        family="gqa",
        description="Query head h reads key head h modulo their number, as if heads were tiled and not interleaved.",
        reference="apple/axlearn#842, onnx/onnx#7274",
        suite="embedding",
        dtype="float32",
        model="embedding-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_tiled_map,
        applies=applies.grouped,
    ),
    Fault(
        id="gqa.swapped-heads",
        family="gqa",
        description="Key heads are read in reverse order.",
        reference="flashinfer-ai/flashinfer#1614",
        suite="embedding",
        dtype="float32",
        model="embedding-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_swapped_heads,
        applies=applies.several_kv_heads,
    ),
    Fault(
        id="gqa.head-zeroed",
        family="gqa",
        description="The last query head's output is zero.",
        reference="flashinfer-ai/flashinfer#1148",
        suite="embedding",
        dtype="float32",
        model="embedding-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_head_zeroed,
        applies=lambda config, role: None,
    ),
)
