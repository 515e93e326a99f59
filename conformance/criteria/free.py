"""The logprobs that an engine gives with its own free text, against the reference's of the same tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Mask, triple
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.generated import first_divergences
from conformance.criteria.limits import limits
from conformance.criteria.measures import bucket_measure
from conformance.criteria.observed import generation_faults
from conformance.criteria.ratio import errors, pick
from conformance.judgement import Figure, Judgement
from conformance.runner import Generations, TokenIds


def free_logprobs_agree(
    *, x: Generations, ids: tuple[TokenIds, ...], r: ArrayLike, e: ArrayLike, dtype: str
) -> Judgement:
    """Engine's logprobs of the tokens that it chose, against reference r, allowed the error of yardstick e.

    `ids` are the reference's tokens, and r and e, both [n, T] in nats, their logprobs. A prompt counts up to where
    the engine's tokens leave the reference's: from there on the contexts differ. Judged: the pooled ratio. Forced
    logprobs need not have gone through the code that reports these (temperature, processed logits). UNDERPOWERED
    where too few tokens are common. ValueError where r, e or `dtype` are at fault.
    """
    name = "tokens.free_logprobs_agree"
    limit = limits().tokens
    faults = generation_faults(x, len(ids))
    if faults:
        return refuse(name, f"{len(ids)} generations: {'; '.join(faults[:3])}.")
    reference = np.asarray(r, dtype=np.float64)
    counted = _common(x, ids, reference.shape)
    values = np.full(reference.shape, np.nan)
    width = min(reference.shape[1], x.logprobs.shape[1])
    values[:, :width] = x.logprobs[:, :width]
    t = triple(values, reference, e, ("prompts", "positions"), counted=counted)
    if isinstance(t, str):
        return refuse(name, f"logprobs of free text: {t}")
    chosen = pick(dtype, limit.bucket_16bit, limit.bucket_float32)
    total = int(counted.sum())
    power = Figure("tokens in common", total, limit.bucket_positions.value, "min", limit.bucket_positions.provenance)
    compared = f"logprobs of {total} tokens that engine and reference chose alike, of {len(ids)} prompts, {dtype}"
    measures = [Measure(power, Decides.POWER)]
    if total:
        measures.insert(0, bucket_measure(errors(t, dtype, counted=counted), chosen, "free text's logprobs"))
    rows = {"x": np.where(counted, t.x, 0.0), "r": np.where(counted, t.r, 0.0), "counted": counted}
    return conclude(name, compared, measures, rows=rows)


def _common(x: Generations, ids: tuple[TokenIds, ...], shape: tuple[int, ...]) -> Mask:
    if len(shape) != 2 or shape[0] != len(ids):
        raise ValueError(f"r has shape {list(shape)}, but must be [{len(ids)} prompts, positions]")
    counted = np.zeros(shape, dtype=np.bool_)
    for row, (first, own) in enumerate(zip(first_divergences(x.token_ids, ids), ids, strict=True)):
        counted[row, : len(own) if first is None else first] = True
    return counted
