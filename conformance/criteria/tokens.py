"""Text models: forced logprobs against the reference, generations against themselves, the reference and known texts."""

from __future__ import annotations

from conformance.criteria.forced import logprobs_agree, sigma_gap
from conformance.criteria.free import free_logprobs_agree
from conformance.criteria.generated import (
    divergence_is_a_tie,
    endings_agree,
    every_divergence_is_a_tie,
    first_divergences,
    generation_is_consistent,
    texts_are_known,
)

__all__ = [
    "divergence_is_a_tie",
    "endings_agree",
    "every_divergence_is_a_tie",
    "first_divergences",
    "free_logprobs_agree",
    "generation_is_consistent",
    "logprobs_agree",
    "sigma_gap",
    "texts_are_known",
]
