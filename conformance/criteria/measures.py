"""The figures that several kinds of output share: pooled ratio, relative error, the worst prompt, buckets."""

from __future__ import annotations

from conformance.criteria.finding import Decides, Measure
from conformance.criteria.limits import Limit, limits
from conformance.criteria.ratio import EPS, Errors, Ratio, pooled, worst
from conformance.judgement import Figure
from conformance.names import unknown

PRECISIONS = ("ieee", "tf32", "fused", "eager", "fp16-acc")
"""What a profile may claim of an attention backend in one dtype; of float32 products beside it, "ieee" or "tf32"."""


def pooled_measures(found: Errors, limit: Limit, precision: str, *, widened_to: float | None = None) -> list[Measure]:
    """The pooled ratio, and the relative error: limited where float32 is claimed to be `ieee`, else only reported.

    `widened_to` replaces the limit's value where the samples are too few for it. ValueError for an unknown precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(unknown("precision", precision, PRECISIONS))
    measure = pooled_measure(found, limit, widened_to=widened_to)
    error = pooled(found, limit.value).relative_error
    if EPS[found.dtype] == EPS["float32"] and precision == "ieee":
        ieee = limits().ratio.ieee_relative_error_float32
        figure = Figure("relative error", error, ieee.value, "max", ieee.provenance, ieee.name)
        return [measure, Measure(figure, Decides.EXACT)]
    return [measure, Measure(Figure("relative error", error))]


def pooled_measure(found: Errors, limit: Limit, *, widened_to: float | None = None) -> Measure:
    """The pooled ratio; `widened_to` replaces the limit's value where the samples are too few for it."""
    start = limit.value if widened_to is None else widened_to
    ratio = pooled(found, start)
    provenance = limit.provenance
    if start > limit.value:
        provenance += f"; widened from {limit.value:g} for few samples: {limits().quantile.ratios.provenance}"
    explained = _explained(ratio, start, provenance)
    return Measure(Figure("pooled ratio", ratio.value, ratio.limit, "max", explained, limit.name))


def single_measure(found: Errors, limit: Limit, prompts: list[int] | None = None) -> Measure:
    """The ratio of the worst prompt; `prompts` are the prompts' own indices where `found` is a selection."""
    index, ratio = worst(found, limit.value)
    explained = _explained(ratio, limit.value, limit.provenance)
    figure = Figure("worst single prompt's ratio", ratio.value, ratio.limit, "max", explained, limit.name)
    return Measure(figure, where=f"prompt {index if prompts is None else prompts[index]}")


def bucket_measure(found: Errors, limit: Limit, bucket: str) -> Measure:
    """The pooled ratio of one bucket of prompts or positions, under its name."""
    ratio = pooled(found, limit.value)
    provenance = _explained(ratio, limit.value, limit.provenance)
    return Measure(Figure(f"ratio of {bucket}", ratio.value, ratio.limit, "max", provenance, limit.name))


def _explained(ratio: Ratio, start: float, provenance: str) -> str:
    if ratio.limit <= start:
        return provenance
    allowed = limits().ratio.allowed_relative_error_float32
    return f"raised from {start:g} to where the relative error reaches {allowed.value:g}: {allowed.provenance}"
