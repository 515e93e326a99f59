"""How far honest rounding can take a product of matrices and an attention from the right answer; numpy only.

Each bound holds for every element, every order of the sums and every input, so what breaks it is wrong, not unlucky.
With the unit roundoff u and gamma(n, u) = n u / (1 - n u), N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd edition (SIAM 2002), has |fl(x.y) - x.y| <= gamma(n, u) |x|.|y| for n products (3.5), and for matrices
|fl(AB) - AB| <= gamma(n, u) |A||B| (3.13). What is added here for inputs, probabilities and outputs that are rounded to
a narrower dtype follows from the same model, fl(a op b) = (a op b)(1 + d), |d| <= u (2.4).

They are wide for a bound's sake: `conformance run` measures precision, these find a device that is wrong. Inputs are
short enough (sums of 64 to 256 products) that TF32's products, whose error grows more slowly than the bound, lie
several times outside the bound of float32.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff of each dtype: half the distance from 1 to the next number."""

SMALLEST = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest number above 0 of each dtype: what rounding near 0 can be off by."""

TF32_UNIT = 2.0**-10  # 11 bits, and some units cut off instead of rounding
FUNCTION_ULPS = 16
"""What an exponential may be off by, in units of roundoff; device libraries promise 1 to 4."""


@dataclass(frozen=True)
class Rounding:
    """Unit roundoffs: of factors before they are multiplied, of sums, and of what is stored."""

    factors: float
    sums: float
    stored: float
    smallest: float


def rounding(dtype: str, claims: Collection[str]) -> Rounding:
    """What a dtype may lose where the profile claims these precisions for it; the weakest counts.

    Sums of 16-bit products are kept in 32 bits, where some matrix units cut off instead of rounding: 2^-23.
    """
    if dtype == "float32":
        factors = TF32_UNIT if "tf32" in claims and "ieee" not in claims else 0.0
        return Rounding(factors, 2.0**-23 if factors else UNIT[dtype], 0.0, SMALLEST[dtype])
    sums = UNIT[dtype] if "fp16-acc" in claims else 2.0**-23
    return Rounding(0.0, sums, UNIT[dtype], SMALLEST[dtype])


def product(left: Array, right: Array) -> Array:
    """`left @ right` by plain loops: BLAS is what may be wrong, and its threads stall where others use the cores."""
    found: Array = np.einsum("...mn,...nk->...mk", left, right)
    return found


def gamma(count: int, unit: float) -> float:
    """Higham's gamma; infinite where so many roundings leave no digit."""
    return count * unit / (1 - count * unit) if count * unit < 1 else float("inf")


def product_bound(left: Array, right: Array, allowed: Rounding) -> Array:
    """The bound of each element of `left @ right`, [m, n] and [n, k], both exact in the dtype."""
    magnitude = product(np.abs(left), np.abs(right))
    factors = (1 + allowed.factors) ** 2 - 1
    summed = (factors + (1 + factors) * gamma(left.shape[-1], allowed.sums)) * magnitude
    stored: Array = summed + allowed.stored * (np.abs(product(left, right)) + summed) + allowed.smallest
    return stored


def attention_right(query: Array, key: Array, value: Array, visible: Array) -> tuple[Array, Array, Array]:
    """Scores, probabilities and output in fp64. [..., length, size]; `visible` is true where a query sees a key."""
    scores = product(query, key.swapaxes(-1, -2)) / np.sqrt(query.shape[-1])
    seen = np.where(visible, scores, -np.inf)
    exponentials = np.exp(seen - seen.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return scores, probabilities, product(probabilities, value)


def attention_bound(query: Array, key: Array, value: Array, visible: Array, allowed: Rounding) -> Array:
    """The bound of each element of softmax(Q K^T / sqrt(d)) V, whichever honest kernel computes it.

    A score may be off by e = (factors + gamma(d + 4)) |q|.|k| / sqrt(d), where in 16 bit the scaled query and key and
    the score itself may have been stored (3 u), plus the rounding of the exponential's argument and of the exponential.
    Scores off by at most e change a probability by a factor of at most exp(2 e); the sums over the keys, above and
    below the fraction, add gamma(2 length), and a stored probability u. All of it weighs P|V|.
    """
    size, length = query.shape[-1], key.shape[-2]
    scores, probabilities, output = attention_right(query, key, value, visible)
    factors = (1 + allowed.factors) ** 2 - 1
    magnitude = product(np.abs(query), np.abs(key).swapaxes(-1, -2)) / np.sqrt(size)
    error = (factors + gamma(size + 4, allowed.sums) + 3 * allowed.stored) * magnitude
    error = error + 4 * allowed.sums * np.abs(scores) + FUNCTION_ULPS * allowed.sums
    worst = np.where(visible, error, 0.0).max(axis=-1, keepdims=True)
    relative = np.expm1(2 * worst) + gamma(2 * length, allowed.sums) + factors + allowed.stored
    absolute = allowed.smallest * np.abs(value).sum(axis=-2, keepdims=True)
    summed = relative * product(probabilities, np.abs(value)) + absolute
    stored: Array = summed + allowed.stored * (np.abs(output) + summed) + allowed.smallest
    return stored
