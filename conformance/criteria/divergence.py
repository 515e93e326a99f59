"""Kullback-Leibler divergence from the reference, computed so that float32 rounding (1e-12 nats) still shows."""

from __future__ import annotations

import numpy as np

from conformance.criteria.arrays import Float64
from conformance.criteria.finding import Measure
from conformance.criteria.limits import Limit
from conformance.criteria.ratio import effective_samples, widened
from conformance.judgement import Figure

_LARGEST = 200.0  # nats; further off is as wrong, and sums of exp(200) stay finite


def terms(reference_logprobs: Float64, logprobs: Float64) -> Float64:
    """The summands p (exp(d) - 1 - d) of KL(p || q), d = log q - log p, over the last axis unsummed.

    Equal to sum p (log p - log q) where both sum to 1, but every summand is positive, so nothing cancels, and a
    selection of tokens needs no normalising (generalised KL: sum p log(p / q) - p + q).
    """
    d = np.clip(logprobs - reference_logprobs, -_LARGEST, _LARGEST)
    return np.asarray(np.exp(np.minimum(reference_logprobs, _LARGEST)) * (np.expm1(d) - d))


def uncertainty(reference_logprobs: Float64) -> Float64:
    """1 - sum p^2 over the last axis: how much an error of the logits moves this distribution."""
    return np.asarray(1 - np.exp(2 * np.minimum(reference_logprobs, 0.0)).sum(axis=-1)).clip(0.0)


def ratio_measure(
    engine: float, yardstick: float, *, ratio_limit: float, limit: Limit, weights: Float64, samples: Limit, share: float
) -> list[Measure]:
    """KL(r || x) / KL(r || e), judged where enough of the distributions are uncertain, else reported.

    The limit is that of the error ratio, squared, or `limit`, or the square of the F quantile of the effective
    samples, whichever is widest. `weights` are the uncertainties; `share` is how many samples one of them is worth.
    """
    value = engine / yardstick if yardstick > 0 else (0.0 if engine == 0 else float("inf"))
    effective = effective_samples(weights.ravel()) * share
    quantile = widened(0.0, effective)
    reported = Measure(Figure("effective samples of the divergence", effective))
    if quantile is None or effective < samples.value:
        return [Measure(Figure("divergence ratio", value, None, "max", samples.provenance)), reported]
    allowed = max(limit.value, ratio_limit**2, quantile**2)
    return [Measure(Figure("divergence ratio", value, allowed, "max", limit.provenance, limit.name)), reported]
