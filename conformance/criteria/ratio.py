"""The error ratio R = rms(x - r) / rms(e - r), by which every kind of numeric output is judged.

R = sqrt(sum ||x_i - r_i||^2 / sum max(||e_i - r_i||, 0.2 eps(dtype) ||r_i||)^2), i over prompts. The engine is
allowed the error of an honest rounding of the same computation, not a fixed tolerance, which would measure the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.criteria.arrays import Float64, Mask, Triple
from conformance.criteria.limits import Limit, limits
from conformance.names import unknown

EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The distance from 1 to the next number of each served dtype."""


def eps(dtype: str) -> float:
    """Machine epsilon of a served dtype; ValueError for any other name."""
    if dtype not in EPS:
        raise ValueError(unknown("dtype", dtype, EPS))
    return EPS[dtype]


def pick(dtype: str, in_16bit: Limit, in_float32: Limit) -> Limit:
    """The limit that holds in this dtype; ValueError for an unknown one."""
    return in_float32 if eps(dtype) == EPS["float32"] else in_16bit


@dataclass(frozen=True)
class Errors:
    """Per prompt: the norms of the engine's error, of the allowed error (the yardstick's, floored), and of r; [n]."""

    dtype: str
    engine: Float64
    allowed: Float64
    reference: Float64

    def __getitem__(self, index: Mask) -> Errors:
        """The same norms at the chosen prompts."""
        return Errors(self.dtype, self.engine[index], self.allowed[index], self.reference[index])


@dataclass(frozen=True)
class Ratio:
    """A ratio beside the limit that holds for it, and the relative error behind it."""

    value: float
    limit: float
    relative_error: float


def errors(t: Triple, dtype: str, *, counted: Mask | None = None) -> Errors:
    """The norms per prompt, over all other axes; with `counted` [n, positions], over those positions only."""
    return Errors(
        dtype,
        _norms(t.x - t.r, counted),
        np.maximum(_norms(t.e - t.r, counted), limits().ratio.floor_eps.value * eps(dtype) * _norms(t.r, counted)),
        _norms(t.r, counted),
    )


def pooled(found: Errors, limit: float) -> Ratio:
    """R over all prompts of `found`, with the limit that holds for it.

    In float32 no pooled ratio is a fault while the relative error is at most 1e-5, so there the limit is raised to
    the ratio at which that error is reached; for a single prompt or a bucket in proportion to its wider limit.
    """
    engine, allowed, reference = (_total(norms) for norms in (found.engine, found.allowed, found.reference))
    raised = _raised(limit, found.dtype, allowed, reference)
    return Ratio(_quotient(engine, allowed), raised, _quotient(engine, reference))


def worst(found: Errors, limit: float) -> tuple[int, Ratio]:
    """The prompt that is worst relative to its own limit, and its ratio."""
    values, relative = _quotients(found.engine, found.allowed), _quotients(found.engine, found.reference)
    raised = np.array([_raised(limit, found.dtype, a, b) for a, b in zip(found.allowed, found.reference, strict=True)])
    index = int(np.argmax(values / raised))
    return index, Ratio(float(values[index]), float(raised[index]), float(relative[index]))


def noise(t: Triple, dtype: str) -> float:
    """Rms over all values of the yardstick's error, floored as in the ratio."""
    return float(np.sqrt(np.square(errors(t, dtype).allowed).sum() / t.r.size))


def relative_allowance(dtype: str, scale: float) -> float:
    """The error that is never a fault by ratio alone: 1e-5 of `scale` in float32, none in 16 bit."""
    return limits().ratio.allowed_relative_error_float32.value * scale if eps(dtype) == EPS["float32"] else 0.0


def widened(limit: float, independent_samples: float) -> float | None:
    """The limit, or the F quantile of this many samples where that is wider; None where the table does not reach."""
    quantile = limits().quantile.ratio(independent_samples)
    return None if quantile is None else max(limit, quantile)


def effective_samples(weights: Float64) -> float:
    """How many equal samples a sum with these weights is worth: (sum w)^2 / sum w^2."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _raised(limit: float, dtype: str, allowed: float, reference: float) -> float:
    allowance = relative_allowance(dtype, reference) * limit / limits().ratio.pooled_float32.value
    return max(limit, _quotient(allowance, allowed)) if allowance else limit


def _norms(values: Float64, counted: Mask | None) -> Float64:
    if counted is not None:
        values = np.where(counted.reshape(counted.shape + (1,) * (values.ndim - counted.ndim)), values, 0.0)
    with np.errstate(over="ignore"):  # an absurd value becomes an infinite ratio, which fails
        norms: Float64 = np.sqrt(np.square(values).reshape(len(values), -1).sum(axis=1))
    return norms


def _total(norms: Float64) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(norms).sum()))


def _quotients(errors: Float64, allowed: Float64) -> Float64:
    return np.array([_quotient(a, b) for a, b in zip(errors.tolist(), allowed.tolist(), strict=True)])


def _quotient(error: float, allowed: float) -> float:
    if allowed > 0:
        return error / allowed
    return 0.0 if error == 0 else float("inf")
