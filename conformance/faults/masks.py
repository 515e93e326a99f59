"""Masks and sliding windows: queries that see keys which they must not, or do not see those that they must."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host


def _causal_plus_one(host: Host) -> None:
    from conformance.faults.kernel import shifted

    def change(call: Any) -> Any:
        seen = call.visible()
        return call.run(visible=seen | shifted(seen, 1))

    host.attention(change)


def _causal_minus_one(host: Host) -> None:
    from conformance.faults.kernel import shifted

    def change(call: Any) -> Any:
        seen = call.visible()
        fewer = seen & shifted(seen, -1)  # all but the last that is seen
        return call.run(visible=fewer | (seen & (seen.sum(-1, keepdim=True) == 1)))

    host.attention(change)


def _not_causal(host: Host) -> None:
    from conformance.faults.kernel import real_keys

    host.attention(lambda call: call.run(visible=real_keys(call.visible()).expand_as(call.visible())))


def _causal_encoder(host: Host) -> None:
    from conformance.faults.kernel import positions

    def change(call: Any) -> Any:
        at, key = positions(call)
        return call.run(visible=call.visible() & (key <= at))

    host.attention(change)


def _top_left(host: Host) -> None:
    from conformance.faults.kernel import real_keys

    def change(call: Any) -> Any:
        seen = call.visible()
        if seen.shape[-2] == seen.shape[-1]:
            return call.run()  # both alignments are one
        real = real_keys(seen)
        place = real.cumsum(-1) - 1  # of a key within its row
        query = place.new_tensor(range(seen.shape[-2]))[:, None]
        return call.run(visible=real & (place <= query))

    host.attention(change)


def _tail_block(host: Host) -> None:
    block = 64

    def change(call: Any) -> Any:
        import torch

        missing = -call.key.shape[2] % block
        if not missing:
            return call.run()
        seen = torch.nn.functional.pad(call.visible(), (0, missing), value=True)
        key, value = (torch.nn.functional.pad(part, (0, 0, 0, missing)) for part in (call.key, call.value))
        return call.run(key=key, value=value, visible=seen)

    host.attention(change)


def _last_row(host: Host) -> None:
    from conformance.faults.kernel import shifted

    def change(call: Any) -> Any:
        seen = call.visible().clone()
        if seen.shape[-1] > 1:
            last = seen[..., -1:, :]
            fewer = last & shifted(last, -1)
            seen[..., -1:, :] = fewer | (last & (last.sum(-1, keepdim=True) == 1))
        return call.run(visible=seen)

    host.attention(change)


def _window_plus_one(host: Host) -> None:
    from conformance.faults.kernel import real_keys, shifted

    def change(call: Any) -> Any:
        seen = call.visible()
        return call.run(visible=seen | (shifted(seen, -1) & real_keys(seen)))

    host.attention(change)


def _window_minus_one(host: Host) -> None:
    from conformance.faults.kernel import real_keys, shifted

    def change(call: Any) -> Any:
        seen = call.visible()
        count = seen.sum(-1, keepdim=True)
        window = call.options.get("sliding_window")
        if window is None and (shifted(seen, -1) & ~seen & real_keys(seen)).any():
            window = count.max()  # a key before the first that is seen is hidden: this is the window's edge
        if window is None:
            return call.run()
        return call.run(visible=seen & ~((count >= window) & ~shifted(seen, 1)))

    host.attention(change)


def _window_ignored(host: Host) -> None:
    from conformance.faults.kernel import positions, real_keys

    def change(call: Any) -> Any:
        at, key = positions(call)
        seen = call.visible()
        return call.run(visible=real_keys(seen) & (key <= at), sliding_window=None)

    host.attention(change)


def _window_everywhere(host: Host) -> None:
    from conformance.faults.kernel import positions

    window = int(host.model.config.get_text_config().sliding_window)

    def change(call: Any) -> Any:
        at, key = positions(call)
        return call.run(visible=call.visible() & (key > at - window))

    host.attention(change)


_mask = partial(
    Fault,
    family="mask",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    structural=True,
    scopes=("all", "middle"),
    applies=applies.decoder,
)
_window = partial(
    Fault,
    family="window",
    suite="generation",
    dtype="float32",
    model="generation-mistral",
    structural=True,
    scopes=("all", "middle"),
    applies=applies.where(applies.decoder, applies.windowed),
)

FAULTS = (
    _mask(
        id="mask.causal-plus-one",
        description="Each query sees one key behind its own position.",
        reference="Dao-AILab/flash-attention 41b2ef6c",
        inject=_causal_plus_one,
    ),
    _mask(
        id="mask.causal-minus-one",
        description="No query but the first sees its own key.",
        reference="Dao-AILab/flash-attention 41b2ef6c",
        inject=_causal_minus_one,
    ),
    _mask(
        id="mask.none",
        description="Every query sees all keys of its row: the causal mask is left out.",
        reference="huggingface/text-embeddings-inference#882",
        inject=_not_causal,
    ),
    _mask(
        id="mask.encoder-causal",
        description="An encoder's queries see no key behind their own position.",
        reference="UKPLab/sentence-transformers#3513, vllm-project/vllm#10184",
        model="embedding-xlmr",
        inject=_causal_encoder,
        applies=applies.where(applies.encoder, applies.model),
    ),
    _mask(
        id="mask.top-left",
        description="With fewer queries than keys the first query, not the last, is aligned: decoding sees one key.",
        reference="Dao-AILab/flash-attention 41b2ef6c",
        suite="generation",
        model="generation-qwen3",
        inject=_top_left,
        applies=applies.where(applies.decoder, applies.generates),
    ),
    _mask(
        id="mask.tail-block",
        description="The last block of keys is filled up to 64 with zeros that are not masked.",
        reference="flashinfer-ai/flashinfer#3717",
        inject=_tail_block,
        applies=lambda config, role: None,
    ),
    _mask(
        id="mask.last-row",
        description="The last query does not see its own key.",
        reference="Dao-AILab/flash-attention 41b2ef6c",
        suite="attention",
        dtype="bfloat16",
        model="generation-qwen3",
        structural=False,
        inject=_last_row,
        applies=lambda config, role: None,
    ),
    _window(
        id="window.plus-one",
        description="The sliding window is one key longer than the model's.",
        reference="huggingface/transformers#39408, huggingface/transformers#29623",
        inject=_window_plus_one,
    ),
    _window(
        id="window.minus-one",
        description="The sliding window is one key shorter than the model's.",
        reference="vllm-project/vllm#3385",
        inject=_window_minus_one,
    ),
    _window(
        id="window.ignored",
        description="Layers with a sliding window attend to everything before.",
        reference="sgl-project/sglang#26516, sgl-project/sglang#33603",
        inject=_window_ignored,
    ),
    _window(
        id="window.everywhere",
        description="The sliding window is applied to layers that have none.",
        reference="sgl-project/sglang#33603",
        model="generation-gemma2",
        scopes=("all",),
        inject=_window_everywhere,
        applies=applies.where(applies.decoder, applies.partly_windowed),
    ),
)
