"""The cache of keys and values: wrong pages, stale slots, other rows; chunk boundaries and reused prefixes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host

PAGE = 16
CHUNK = 64


def _cached(host: Host, change: Callable[[Any, Any], Any]) -> None:
    """Decoding reads `change(call, part)`, keys and values alike, in place of what the cache holds."""

    def decode(call: Any) -> Any:
        if not call.is_decode:
            return call.run()
        return call.run(key=change(call, call.key.clone()), value=change(call, call.value.clone()))

    host.attention(decode)


def _stale_slot(host: Host) -> None:
    def change(call: Any, part: Any) -> Any:
        # The slot of the token before still holds what the row beside had there, or its own first token's.
        part[:, :, -2] = part.roll(1, dims=0)[:, :, -2] if len(part) > 1 else part[:, :, 0]
        return part

    _cached(host, change)


def _next_page(host: Host) -> None:
    def change(call: Any, part: Any) -> Any:
        last = part.shape[2] // PAGE  # whole pages
        if last >= 2:
            part[:, :, (last - 2) * PAGE : (last - 1) * PAGE] = part[:, :, (last - 1) * PAGE : last * PAGE].clone()
        return part

    _cached(host, change)


def _last_block(host: Host) -> None:
    def change(call: Any, part: Any) -> Any:
        part[:, :, part.shape[2] // PAGE * PAGE :] = 0
        return part

    _cached(host, change)


def _other_row(host: Host) -> None:
    def change(call: Any, part: Any) -> Any:
        # All but the token that is being decoded; a row alone reads its own cache backwards.
        part[:, :, :-1] = part[:, :, :-1].roll(1, dims=0) if len(part) > 1 else part[:, :, :-1].flip(2)
        return part

    _cached(host, change)


def _slot_reused(host: Host) -> None:
    def change(call: Any, part: Any) -> Any:
        part[:, :, -2] = part[:, :, -1]
        return part

    _cached(host, change)


def _boundary_lost(host: Host) -> None:
    from conformance.faults.kernel import positions

    def change(call: Any) -> Any:
        at, key = positions(call)
        lost = (key % CHUNK == CHUNK - 1) & (at > key)
        return call.run(visible=call.visible() & ~lost)

    host.attention(change)


def _chunks_apart(host: Host) -> None:
    from conformance.faults.kernel import positions

    def change(call: Any) -> Any:
        if call.is_decode:
            return call.run()
        at, key = positions(call)
        return call.run(visible=call.visible() & (key // CHUNK == at // CHUNK))

    host.attention(change)


def _before_chunk(host: Host, hidden: Callable[[Any, Any], Any]) -> None:
    """Queries of a chunk, which attend to a cache before it, do not see the keys that are `hidden(key, first)`, with
    `first` that of the chunk. A prompt that is read whole has no such queries.
    """

    def change(call: Any) -> Any:
        import torch

        queries, keys = call.query.shape[2], call.key.shape[2]
        if not 1 < queries < keys:
            return call.run()
        return call.run(visible=call.visible() & ~hidden(torch.arange(keys, device=call.key.device), keys - queries))

    host.attention(change)


def _cache_unseen(host: Host) -> None:
    _before_chunk(host, lambda key, first: key < first)


def _seam_lost(host: Host) -> None:
    _before_chunk(host, lambda key, first: key == first - 1)


def _prefix_too_long(host: Host) -> None:
    from conformance.faults.kernel import real_keys

    def change(call: Any) -> Any:
        import torch

        rows, _, keys, _ = call.key.shape
        if call.is_decode or rows < 2 or call.query.shape[2] != keys:
            return call.run()
        first = real_keys(call.visible())[:, 0, 0].long().argmax(-1)
        slot = (first + PAGE).clamp(max=keys - 1)  # the token behind the first page of each row
        each = torch.arange(rows, device=slot.device)
        key, value = call.key.clone(), call.value.clone()
        for part, given in ((key, call.key), (value, call.value)):
            part[each, :, slot] = given[each.roll(1), :, slot.roll(1)]
        return call.run(key=key, value=value)

    host.attention(change)


_decode = partial(
    Fault,
    family="cache",
    suite="generation",
    dtype="float32",
    model="generation-qwen3",
    structural=True,
    scopes=("all", "middle"),
    applies=applies.where(applies.decoder, applies.generates),
)
_prefill = partial(
    Fault,
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=applies.decoder,
)
_chunked = partial(
    Fault,
    family="chunk",
    suite="invariance",
    dtype="float32",
    model="embedding-qwen3",
    scopes=("all", "middle"),
    applies=applies.where(applies.decoder, applies.model),
    variant="chunked",
)

FAULTS = (
    _decode(
        id="cache.stale-slot",
        description="Decoding reads, for the token before, what another request left in its slot.",
        reference="vllm-project/vllm#39146, vllm-project/vllm#37076",
        structural=False,
        inject=_stale_slot,
    ),
    _decode(
        id="cache.next-page",
        description="Decoding reads a page of 16 keys from the page behind it.",
        reference="flashinfer-ai/flashinfer#3022, Dao-AILab/flash-attention#2550",
        inject=_next_page,
    ),
    _decode(
        id="cache.last-page-unwritten",
        description="Keys and values of the last page, if it is not full, are zero.",
        reference="flashinfer-ai/flashinfer#3022",
        inject=_last_block,
    ),
    _decode(
        id="cache.other-row",
        description="Decoding reads the cache of another row.",
        reference="vllm-project/vllm#38606",
        inject=_other_row,
    ),
    _decode(
        id="cache.slot-reused",
        description="Each decoded token is also written over the one before it.",
        reference="Dao-AILab/flash-attention#2303",
        inject=_slot_reused,
    ),
    _prefill(
        id="chunk.boundary-lost",
        family="chunk",
        description="Prefill in chunks of 64 loses the last key of every chunk.",
        reference="vllm-project/vllm#26042",
        structural=False,
        inject=_boundary_lost,
    ),
    _prefill(
        id="chunk.apart",
        family="chunk",
        description="Chunks of 64 tokens do not see those before them.",
        reference="vllm-project/vllm#26042",
        structural=True,
        inject=_chunks_apart,
    ),
    _chunked(
        id="chunk.cache-unseen",
        description="Chunks of a prompt do not see what the cache has of those before them.",
        reference="vllm-project/vllm#26042",
        structural=True,
        inject=_cache_unseen,
    ),
    _chunked(
        id="chunk.seam-lost",
        description="Chunks of a prompt do not see the last token before them.",
        reference="vllm-project/vllm#26042 (the same class: the seam between cache and chunk)",
        structural=False,
        inject=_seam_lost,
    ),
    _prefill(
        id="prefix.one-too-long",
        family="prefix",
        description="A reused prefix is one token too long: that token's key and value are another request's.",
        reference="sgl-project/sglang#22819, vllm-project/vllm-ascend#1492",
        structural=False,
        inject=_prefix_too_long,
    ),
)
