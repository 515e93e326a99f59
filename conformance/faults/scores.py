"""Attention scores and heads: a wrong scale or softcap, and query heads that read other key heads than theirs."""

from __future__ import annotations

from collections.abc import Callable
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


def _scale(
    identifier: str, description: str, reference: str, structural: bool, inject: Callable[[Host], None]
) -> Fault:
    return Fault(
        id=identifier,
        family="scale",
        description=description,
        reference=reference,
        suite="embedding",
        dtype="float32",
        model="embedding-qwen3",
        structural=structural,
        scopes=("all", "middle"),
        inject=inject,
        applies=lambda config, role: None,
    )


def _softcap(
    identifier: str, description: str, reference: str, structural: bool, inject: Callable[[Host], None]
) -> Fault:
    return Fault(
        id=identifier,
        family="softcap",
        description=description,
        reference=reference,
        suite="generation",
        dtype="float32",
        model="generation-gemma2",
        structural=structural,
        scopes=("all", "middle"),
        inject=inject,
        applies=applies.capped,
    )


FAULTS = (
    _scale(
        "scale.one-percent",
        "Scores are 1% too large.",
        "flashinfer-ai/flashinfer#4014",
        False,
        _scaled(lambda size: 1.01),
    ),
    _scale(
        "scale.size-plus-one",
        "Scores are divided by the root of the head size plus one.",
        "flashinfer-ai/flashinfer#4014",
        False,
        _scaled(lambda size: sqrt(size / (size + 1))),
    ),
    _scale(
        "scale.missing",
        "Scores are not scaled at all.",
        "flashinfer-ai/flashinfer#4014",
        True,
        _unscaled,
    ),
    _scale(
        "scale.doubled",
        "Scores are twice as large.",
        "flashinfer-ai/flashinfer#4014",
        True,
        _scaled(lambda size: 2.0),
    ),
    _scale(
        "scale.base-two",
        "Scores are exponentiated with base two, without the factor log2(e).",
        "flashinfer-ai/flashinfer#787",
        True,
        _scaled(lambda size: log(2)),
    ),
    _softcap(
        "softcap.dropped",
        "Scores are not capped.",
        "sgl-project/sglang#33915, vllm-project/vllm#11252",
        True,
        _softcap_dropped,
    ),
    _softcap(
        "softcap.wrong-cap",
        "Scores are capped at 0.6 of the model's cap.",
        "vllm-project/vllm#11252",
        False,
        _softcap_wrong,
    ),
    _softcap(
        "softcap.after-mask",
        "Scores are capped after the mask, so that hidden keys count with the weight of minus the cap.",
        "Dao-AILab/flash-attention 72e27c63",
        False,
        _softcap_after_mask,
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
