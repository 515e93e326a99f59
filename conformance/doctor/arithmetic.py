"""Does the device multiply and attend rightly? Seeded inputs, fp64 on the CPU, and a bound that holds for everyone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.doctor.asking import NoAnswer
from conformance.doctor.finding import Finding, ok, problem
from conformance.doctor.rounding import (
    Array,
    Rounding,
    attention_bound,
    attention_right,
    product,
    product_bound,
    rounding,
)
from conformance.results.printable import one_line

Ask = Callable[..., Mapping[str, Any] | NoAnswer]
SEED = 20260731
PRODUCTS = ((256, 256, 256), (65, 67, 129))  # a whole tile of most kernels, and one that is ragged in every direction
BATCH, HEADS, LENGTH = 2, 4, 100
FORMS = ("no mask", "causal", "padded and causal")

_CHECK_DEVICE = "run nothing on this device until driver and torch build have been changed or the device was tested"
_NO_RESULT = "see the message; another torch build or driver may have what is missing"


@dataclass(frozen=True)
class Comparison:
    """An answer beside the right one. `share` is the largest error over its bound: above 1 it is wrong."""

    what: str
    share: float
    relative: float  # rms of the error over rms of what is right
    worst: str
    finite: bool


def check(
    ask: Ask, kind: str, claims: Mapping[str, Collection[str]], head_sizes: Sequence[int], matmul: str = "ieee"
) -> Iterator[Finding]:
    """A finding for each operation and dtype.

    `claims` holds the precisions that the plan claims of attention in each dtype, `matmul` is what the profile claims
    of float32 products of matrices.
    """
    # Float32 in every case: matrix units that round float32's factors show nowhere else.
    for dtype in sorted({"float32", *claims}, key=lambda name: (name != "float32", name)):
        allowed = rounding(dtype, claims.get(dtype, ()))
        is_reduced = dtype == "float32" and matmul == "tf32"
        products = rounding(dtype, [matmul]) if is_reduced else allowed
        yield _finding("matmul", dtype, _products(ask, kind, dtype, products))
        yield _finding("attention", dtype, _attentions(ask, kind, dtype, allowed, head_sizes))


def compare(what: str, value: Array, right: Array, bound: Array) -> Comparison:
    """Hold an answer against the right one. Raises ValueError for another shape."""
    if value.shape != right.shape:
        raise ValueError(f"{what}: the answer has the shape {value.shape}, but should have {right.shape}")
    finite = bool(np.isfinite(value).all())
    error = np.where(np.isfinite(value), np.abs(value - right), np.inf)
    shares = error / bound
    place = tuple(int(index) for index in np.unravel_index(int(shares.argmax()), shares.shape))
    worst = (
        f"element {list(place)} is {value[place]:.9g}, but should be {right[place]:.9g} "
        f"within {bound[place]:.3g} (off by {error[place]:.3g})"
    )
    scale = float(np.sqrt(np.mean(right**2)))
    return Comparison(what, float(shares[place]), float(np.sqrt(np.mean(error**2))) / scale, worst, finite)


def exact_inputs(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal numbers, float32, that are exact in `dtype`; those for 16 bit are multiples of 1/32 below 4."""
    numbers = random.standard_normal(shape)
    if dtype != "float32":
        numbers = np.clip(np.round(numbers * 32), -127, 127) / 32
    return numbers.astype(np.float32)


def _products(ask: Ask, kind: str, dtype: str, allowed: Rounding) -> Iterator[Comparison | NoAnswer]:
    random = np.random.default_rng(SEED)
    for rows, inner, columns in PRODUCTS:
        left = exact_inputs(random, (rows, inner), dtype)
        right = exact_inputs(random, (inner, columns), dtype)
        answer = ask("matmul", kind, dtype, left, right)
        a, b = left.astype(np.float64), right.astype(np.float64)
        yield _compared(f"{rows}x{inner} by {inner}x{columns}", answer, product(a, b), product_bound(a, b, allowed))


def _attentions(
    ask: Ask, kind: str, dtype: str, allowed: Rounding, head_sizes: Sequence[int]
) -> Iterator[Comparison | NoAnswer]:
    random = np.random.default_rng(SEED)
    later = np.tri(LENGTH, dtype=bool)
    kept = np.arange(LENGTH) >= np.array([[0], [37]])  # the second of the batch is padded on its left
    # Every query sees itself: a row that sees nothing has no right answer.
    padded = (later & kept[:, None, None, :]) | np.eye(LENGTH, dtype=bool)
    for size in head_sizes:
        query, key, value = (exact_inputs(random, (BATCH, HEADS, LENGTH, size), dtype) for _ in range(3))
        wide = [each.astype(np.float64) for each in (query, key, value)]
        for form, visible in zip(FORMS, (np.ones_like(later), later, padded), strict=True):
            mask = padded if form == FORMS[2] else None
            answer = ask("attention", kind, dtype, query, key, value, mask, form == FORMS[1])
            right = attention_right(wide[0], wide[1], wide[2], visible)[2]
            bound = attention_bound(wide[0], wide[1], wide[2], visible, allowed)
            yield _compared(f"{form}, head size {size}", answer, right, bound)


def _compared(what: str, answer: Mapping[str, Any] | NoAnswer, right: Array, bound: Array) -> Comparison | NoAnswer:
    if isinstance(answer, NoAnswer):
        return NoAnswer(f"{what}: {answer.reason}", answer.raised)
    try:
        return compare(what, np.asarray(answer["value"], dtype=np.float64), right, bound)
    except ValueError as error:
        return NoAnswer(str(error), raised=True)


def _finding(check_name: str, dtype: str, answers: Iterator[Comparison | NoAnswer]) -> Finding:
    """The worst of the answers; a worker that dies or hangs is not asked for the rest."""
    worst: Comparison | None = None
    count = 0
    for answer in answers:
        if isinstance(answer, NoAnswer):
            return problem(check_name, f"{dtype}: no result: {one_line(answer.reason, 600)}", _NO_RESULT)
        count += 1
        if worst is None or not answer.share <= worst.share:
            worst = answer
    if worst is None:
        raise ValueError(f"{check_name} {dtype}: nothing was compared")
    figures = {"error_over_bound": worst.share, "relative_rms_error": worst.relative}
    if worst.share <= 1:
        text = f"{dtype}: right: the largest error is {worst.share:.2g} of rounding's bound ({count} inputs)"
        return ok(check_name, text, **figures)
    text = f"{dtype}, {worst.what}: {worst.worst}"
    if not worst.finite:
        return problem(check_name, f"{text}: not finite", _CHECK_DEVICE, wrong_numbers=True, **figures)
    reduced = _reduced(dtype, worst.relative)
    advice = (
        "float32 is computed with less than float32's precision though the suite turns that off: unset the variables "
        "and driver settings that force it, or claim it in the profile"
        if reduced
        else _CHECK_DEVICE
    )
    return problem(check_name, text + reduced, advice, wrong_numbers=True, **figures)


def _reduced(dtype: str, relative: float) -> str:
    """What an error of this size looks like in float32: rounding the factors leaves 0.8 of their unit roundoff, rms."""
    if dtype != "float32":
        return ""
    if 1e-4 < relative < 1e-3:
        return f"; the error (relative rms {relative:.1e}) is what TF32 leaves, which rounds factors to 11 bits"
    if 1e-3 <= relative < 6e-3:
        return f"; the error (relative rms {relative:.1e}) is what factors rounded to bfloat16 leave"
    return ""
