"""How an engine served a question: whether what a comparison is about took place at all.

Two ways of serving that were in truth one have equal answers, and equal answers then show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.judgement import Figure, Judgement
from conformance.runner import Effective, Observation, TokenIds


def in_chunks(whole: Effective, chunked: Effective) -> Judgement:
    """The prompts were read in more forward passes than whole ones; UNDERPOWERED where they were not.

    Where an engine's passes are not counted, nothing but its word says so.
    """
    name = "served.in_chunks"
    if "counted" not in (whole.evidence, chunked.evidence) or whole.evidence != chunked.evidence:
        return conclude(name, "prefill in chunks, unseen", [Measure(Figure("forward passes counted", 0))], rows={})
    least = Figure(
        "forward passes in chunks",
        chunked.forwards,
        whole.forwards + 1.0,
        "min",
        f"whole prompts took {whole.forwards}: with no more, no prompt was cut",
    )
    return conclude(name, "prefill in chunks", [Measure(least, Decides.POWER)], rows={})


def anew(found: Effective) -> Judgement:
    """No cache had tokens of the prompts; UNDERPOWERED where one had, and no fault where the engine does not tell."""
    figure = Figure(
        "tokens from the cache", found.cached_tokens or 0, 0.0, "max", "what is read from it is not read anew"
    )
    return conclude("served.anew", "prompts that are read anew", [Measure(figure, Decides.POWER)], rows={})


def from_cache(found: Effective, *, shared: Sequence[int], block: int) -> Judgement:
    """A cache had the tokens that the prompts share with earlier ones: `shared` says how many each of them does.

    A cache keeps whole blocks of at most `block` tokens, and the last token of a prompt is computed in any case.
    UNDERPOWERED where fewer tokens came from it, or the engine does not tell; FAIL where more did than were shared.
    """
    name = "served.from_cache"
    compared = f"tokens of {len(shared)} prompts that a cache had"
    if found.cached_tokens is None:
        told = Figure(
            "engines that tell how many tokens a cache had", 0, 1.0, "min", "a hit that nobody saw may be none"
        )
        return conclude(name, compared, [Measure(told, Decides.POWER)], rows={})
    blocks = sum(tokens // block * block for tokens in shared)
    least = Figure("tokens from the cache", found.cached_tokens, blocks, "min", f"the whole blocks of {block} tokens")
    beyond = max(0, found.cached_tokens - sum(shared))
    most = Figure("tokens from the cache beyond those that are shared", beyond, 0.0, "max", "they are of other prompts")
    rows = {"shared": np.array(shared, dtype=np.int64)}
    return conclude(name, compared, [Measure(most, Decides.EXACT), Measure(least, Decides.POWER)], rows=rows)


def at_edges(found: Observation, beside: Sequence[TokenIds], *, blocks: Sequence[int]) -> Judgement:
    """The prompts share with those beside them a token less than a block, a block, one more, and two blocks.

    UNDERPOWERED where one of these lengths is missing for one of the sizes `blocks`.
    """
    name = "served.at_edges"
    if len(found.prompt_token_ids) != len(beside):
        return refuse(name, f"token ids for {len(found.prompt_token_ids)} prompts, but {len(beside)} were asked")
    lengths = {in_common(*pair) for pair in zip(found.prompt_token_ids, beside, strict=True)}
    missing = sorted({edge for block in blocks for edge in edges(block)} - lengths)
    doubts = [f"no prompt shares {', '.join(map(str, missing))} tokens"] if missing else []
    figure = Figure(
        "lengths at edges of blocks that are missing", len(missing), 0.0, "max", "where blocks begin and end"
    )
    compared = f"prefixes at the edges of blocks of {', '.join(map(str, blocks))} tokens"
    return conclude(name, compared, [Measure(figure, Decides.POWER)], rows={}, doubts=doubts)


def edges(block: int) -> tuple[int, ...]:
    """The lengths at which a prefix in blocks of that many tokens is told apart: one less, whole, one more, double."""
    return tuple(length for length in (block - 1, block, block + 1, 2 * block) if length > 0)


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two prompts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
