"""Pooling and padding: vectors made of the wrong tokens, and padding that counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during


def _pooled(host: Host, pool: Callable[[Any, Any], Any]) -> None:
    """Vectors are `pool(hidden states, mask)`."""
    from conformance.engines import transformers

    host.wrap(transformers, "pooling", lambda original, name: pool)


def _pad_side(host: Host) -> None:
    last = host.runner.request.parameters.get("pooling", "last") == "last"

    def pad(original: Any, rows: Any, _: str) -> Any:
        ids, mask, positions = original(rows, "right" if last else "left")
        return ids, mask, positions.new_tensor(range(ids.shape[1])).expand_as(ids) if last else positions

    host.wrap(host.runner, "_pad", pad, always=True)
    _pooled(host, lambda hidden, mask: hidden[:, -1 if last else 0])


def _mean_of_all(host: Host) -> None:
    _pooled(host, lambda hidden, mask: hidden.mean(1))


def _token_before(host: Host) -> None:
    def pool(hidden: Any, mask: Any) -> Any:
        from conformance.engines.pooling import pooling

        one = pooling(host.runner.request.parameters.get("pooling", "last"))
        # The vector of the token before is the last one of a row that is shifted by one.
        return one(hidden.roll(1, dims=1), mask)

    _pooled(host, pool)


def _other_end(host: Host) -> None:
    from conformance.engines.pooling import pooling

    own = host.runner.request.parameters.get("pooling", "last")
    _pooled(host, pooling("cls" if own == "last" else "last"))


def _not_normalised(host: Host) -> None:
    def embed(original: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        with during(torch.nn.functional, "normalize", lambda values, **_: values):
            return original(*args, **kwargs)

    host.wrap(host.runner, "embed", embed)


def _cut_afterwards(host: Host) -> None:
    def embed(original: Any, prompts: Any, *, dimensions: int | None = None) -> Any:
        from dataclasses import replace

        found = original(prompts)
        return replace(found, values=found.values[:, :dimensions])

    host.wrap(host.runner, "embed", embed)


def _padding_seen(host: Host) -> None:
    from conformance.faults.kernel import positions

    def change(call: Any) -> Any:
        import torch

        seen = call.visible()
        at, key = positions(call)
        causal = getattr(call.module, "is_causal", False)
        return call.run(visible=(key <= at).expand_as(seen) if causal else torch.ones_like(seen))

    host.attention(change)


def _one_pad_seen(host: Host) -> None:
    from conformance.faults.kernel import shifted

    def change(call: Any) -> Any:
        seen = call.visible()
        return call.run(visible=seen | shifted(seen, 1))

    host.attention(change)


def _nan_rows(host: Host) -> None:
    from conformance.faults.kernel import real_keys

    def change(call: Any) -> Any:
        output = call.run()
        seen = call.visible()
        if seen.shape[-2] != seen.shape[-1]:
            return output
        padded = ~real_keys(seen)[:, 0, 0]  # a query that is padding has a key that is
        return output.masked_fill(padded[:, :, None, None], float("nan"))

    host.attention(change)


_embedding = partial(
    Fault,
    family="pooling",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    structural=True,
    scopes=("all",),
    applies=applies.roles("embedding"),
)

FAULTS = (
    _embedding(
        id="pooling.pad-side",
        description="Rows are padded on the side from which their token is read.",
        reference="UKPLab/sentence-transformers#3208, TIGER-AI-Lab/VLM2Vec#18",
        inject=_pad_side,
    ),
    _embedding(
        id="pooling.mean-of-padding",
        description="The vector is the mean of all positions of the padded row.",
        reference="UKPLab/sentence-transformers#3208",
        model="embedding-xlmr",
        inject=_mean_of_all,
    ),
    _embedding(
        id="pooling.token-before",
        description="The vector is that of the token before the last.",
        reference="UKPLab/sentence-transformers#3208",
        inject=_token_before,
    ),
    _embedding(
        id="pooling.other-end",
        description="The first token is read where the last should be, or the last where the first should be.",
        reference="TIGER-AI-Lab/VLM2Vec#18",
        model="embedding-xlmr",
        inject=_other_end,
    ),
    _embedding(
        id="pooling.not-normalised",
        description="Vectors are not normalised.",
        reference="UKPLab/sentence-transformers#3208",
        inject=_not_normalised,
    ),
    _embedding(
        id="pooling.cut-afterwards",
        description="Shortened vectors are cut after they were normalised, and not normalised again.",
        reference="UKPLab/sentence-transformers#3208",
        inject=_cut_afterwards,
    ),
    Fault(
        id="padding.mask-missing",
        family="padding",
        description="An encoder attends to padding: its mask is left out.",
        reference="AI4Bharat/IndicBERT#20, huggingface/candle#1798",
        suite="embedding",
        dtype="float32",
        model="embedding-xlmr",
        structural=True,
        scopes=("all", "middle"),
        inject=_padding_seen,
        applies=applies.where(applies.model, applies.encoder),
    ),
    Fault(
        id="padding.left-seen",
        family="padding",
        description="A decoder attends to the padding on the left of its rows.",
        reference="huggingface/candle#1798",
        suite="rerank",
        dtype="float32",
        model="rerank-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_padding_seen,
        applies=applies.where(applies.model, applies.decoder),
    ),
    Fault(
        id="padding.one-seen",
        family="padding",
        description="An encoder's rows are taken to be one token longer than they are.",
        reference="huggingface/candle#1798",
        suite="embedding",
        dtype="float32",
        model="embedding-xlmr",
        structural=False,
        scopes=("all", "middle"),
        inject=_one_pad_seen,
        applies=applies.where(applies.model, applies.encoder),
    ),
    Fault(
        id="padding.nan-rows",
        family="padding",
        description="Queries that are padding come out as NaN, which reaches the others in the next layer.",
        reference="flashinfer-ai/flashinfer#4401, huggingface/transformers#35647",
        suite="rerank",
        dtype="float32",
        model="rerank-qwen3",
        structural=True,
        scopes=("all", "middle"),
        inject=_nan_rows,
        applies=applies.model,
    ),
)
