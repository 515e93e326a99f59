"""From what vLLM returns to observations: pure functions of its output objects, which any object can stand in for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engines.pooled import stacked
from conformance.runner import Effective, Grid, TokenIds, VisionEffective

if TYPE_CHECKING:
    from conformance.runner import Floats, Integers


def prompt_ids(outputs: Iterable[Any]) -> tuple[TokenIds, ...]:
    """The token ids that vLLM says it read."""
    return tuple(tuple(int(token) for token in output.prompt_token_ids or ()) for output in outputs)


def cached_tokens(outputs: Iterable[Any]) -> int | None:
    """How many tokens of the prompts vLLM says that its cache had; None where it does not say so of each."""
    told: list[Any] = [getattr(output, "num_cached_tokens", None) for output in outputs]
    return None if None in told else sum(map(int, told))


def pooled(outputs: Sequence[Any]) -> Floats:
    """What was pooled of each prompt, float [n, width], as vLLM returns it: a vector, or raw logits.

    ValueError where the answers have different widths, or more axes than one.
    """
    rows = [np.asarray(_plain(output.outputs.data)) for output in outputs]
    return stacked(rows, "vLLM")


def named_logprobs(outputs: Sequence[Any], tokens: Sequence[int]) -> Floats:
    """Logprobs of `tokens` at the first generated position, float [n, tokens]; ValueError where one is missing."""
    return np.array(
        [
            [_logprob(_positions(output)[0], token, f"prompt {row}, the next position") for token in tokens]
            for row, output in enumerate(outputs)
        ]
    ).reshape(len(outputs), len(tokens))


def generated(outputs: Sequence[Any], top_k: int) -> dict[str, Any]:
    """Ids, texts, finish reasons and logprobs of `Generations`, but the prompts'.

    ValueError where a position has no logprob of the generated token, or fewer than `top_k` others.
    """
    completions = [output.outputs[0] for output in outputs]
    ids = tuple(tuple(int(token) for token in each.token_ids) for each in completions)
    shape = (len(ids), max(map(len, ids), default=0))
    logprobs = np.full(shape, np.nan)
    top_ids = np.full((*shape, top_k), -1, dtype=np.int64)
    top_logprobs = np.full((*shape, top_k), np.nan)
    for row, (tokens, output) in enumerate(zip(ids, outputs, strict=True)):
        positions = _positions(output)
        if len(positions) != len(tokens):
            raise ValueError(f"prompt {row}: vLLM returned {len(tokens)} tokens, but logprobs of {len(positions)}")
        for at, (token, reported) in enumerate(zip(tokens, positions, strict=True)):
            place = f"prompt {row}, position {at}"
            logprobs[row, at] = _logprob(reported, token, place)
            best = sorted(reported.items(), key=lambda each: (-each[1].logprob, each[1].rank or math.inf))[:top_k]
            if len(best) < top_k:
                raise ValueError(f"{place}: vLLM returned {len(best)} logprobs, but {top_k} were asked for")
            top_ids[row, at] = [int(other) for other, _ in best]
            top_logprobs[row, at] = [one.logprob for _, one in best]
    return {
        "token_ids": ids,
        "texts": tuple(str(each.text) for each in completions),
        "finish_reasons": tuple(str(each.finish_reason) for each in completions),
        "logprobs": logprobs,
        "top_ids": top_ids,
        "top_logprobs": top_logprobs,
    }


def forced_logprobs(
    candidates: Integers,
    forced: Sequence[Sequence[int]],
    reported: Sequence[Sequence[Any]],
    read: Sequence[Sequence[Any]],
) -> Floats:
    """Logprobs of the candidates, float [n, positions, candidates]; NaN behind a row's `forced` tokens.

    `reported` is what vLLM returns, by row and position a table of ids and logprobs, which has the best ids alone;
    `read` are the logprobs of all candidates as they were read beside it, and used where vLLM reports none.
    ValueError where either is incomplete.
    """
    values = np.full(candidates.shape, np.nan)
    for name, rows in (("report", reported), ("logits", read)):
        if len(rows) != len(forced):
            raise ValueError(f"there is vLLM's {name} for {len(rows)} prompts, but {len(forced)} were asked")
        for row, (found, tokens) in enumerate(zip(rows, forced, strict=True)):
            if len(found) != len(tokens):
                raise ValueError(
                    f"prompt {row}: there is vLLM's {name} for {len(found)} of {len(tokens)} forced tokens; was its "
                    "generation cut short?"
                )
    for row, tokens in enumerate(forced):
        for at, forced_token in enumerate(tokens):
            values[row, at] = read[row][at]
            table = reported[row][at]
            _logprob(table, forced_token, f"prompt {row}, forced token {at}")
            for column, token in enumerate(candidates[row, at].tolist()):
                if token in table:
                    values[row, at, column] = table[token].logprob
    return values


def chosen_logprobs(candidates: Integers, forced: Sequence[Sequence[int]], found: Sequence[Any]) -> Floats:
    """The same of arrays [forced tokens, candidates] that vLLM returns for each row; ValueError for another shape."""
    values = np.full(candidates.shape, np.nan)
    if len(found) != len(forced):
        raise ValueError(f"there are vLLM's logprobs for {len(found)} prompts, but {len(forced)} were asked")
    for row, (tokens, answer) in enumerate(zip(forced, found, strict=True)):
        array, wanted = np.asarray(answer if answer is not None else []), (len(tokens), candidates.shape[2])
        if array.shape != wanted:
            raise ValueError(
                f"prompt {row}: vLLM returned logprobs of shape {array.shape}, but {wanted} were asked for"
            )
        values[row, : len(tokens)] = array
    return values


def effective(workers: Sequence[Mapping[str, Any]]) -> Effective:
    """What ran, from what `Witness.conformance_seen` says in each worker.

    ValueError where workers say different things: then no one answer is what ran.
    """
    seen = workers[0]
    for rank, other in enumerate(workers):
        if other != seen:
            differing = {key: (seen[key], other[key]) for key in seen if seen[key] != other[key]}
            raise ValueError(f"vLLM's workers 0 and {rank} did not do the same: {differing}")
    vision = None
    if seen["vision_sequences"]:
        vision = VisionEffective(seen["vision_attention"], seen["vision_layers"], seen["vision_sequences"])
    return Effective(
        dtype=seen["dtype"],
        attention=seen["attention"],
        kernels=dict(seen["kernels"]),
        layers=seen["layers"],
        forwards=seen["forwards"],
        vision=vision,
        evidence=seen["evidence"],
    )


def grids(items: Mapping[str, Sequence[Any]]) -> tuple[Grid, ...]:
    """Those of the images, then of the videos of a prompt, from what vLLM's processor made of them."""
    return tuple(
        (int(grid[0]), int(grid[1]), int(grid[2]))
        for kind in ("image", "video")
        for item in items.get(kind, ())
        for grid in [np.asarray(_plain(item[f"{kind}_grid_thw"].data)).reshape(-1)]
    )


def _positions(output: Any) -> Sequence[Any]:
    found: Sequence[Any] = output.outputs[0].logprobs or ()
    return found


def _logprob(table: Mapping[int, Any] | None, token: int, place: str) -> float:
    if not table or token not in table:
        raise ValueError(f"{place}: vLLM returned no logprob of token {token}, only of {sorted(table or ())[:8]}")
    return float(table[token].logprob)


def _plain(values: Any) -> Any:
    """A tensor as an array, in float32 where numpy has no such type."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.float() if values.is_floating_point() else values).numpy()
    return values
