"""Criterion F, metamorphic pairs: one engine, asked twice what must have one answer, in another company or order.

No reference is needed to see a difference, but to say how large an honest one may be. Two answers that are each off by
honest rounding differ by sqrt(2) times the yardstick's error where their roundings are independent, and by less where
they share some; so with a and b the two answers, and pooled over prompts,

    R = rms(a - b) / (sqrt(2) rms(e - r))

Where a suite has no yardstick, a number of eps takes its place. Answers that are equal in every bit pass at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64, engine, own
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import pooled_measure, single_measure
from conformance.criteria.ratio import Errors, eps, pick, pooled, widened
from conformance.judgement import Figure, Judgement
from conformance.runner import Observation


@dataclass(frozen=True)
class Honest:
    """What is known of honest rounding: reference r and yardstick e of a suite's prompts, float [n, ...].

    Both are None where the suite has none. `rows` are the prompts that were asked twice, in the order of the answers.
    With `alike` those were not themselves asked, but others like them, so that each is allowed the rms of their errors.
    """

    r: ArrayLike | None
    e: ArrayLike | None
    rows: Sequence[int]
    alike: bool = False


def agree(
    one: Observation, other: Observation, *, honest: Honest, dtype: str, what: str, control: Observation | None = None
) -> Judgement:
    """Two answers to the same questions are equal within rounding: `what` says how they were asked.

    Judged: the same token ids, then R pooled and of the worst prompt. UNDERPOWERED with too few prompts; and where
    `control`, `one`'s answers to prompts that differ from its own by a token, are hardly other than its own.
    ValueError where r, e, rows or `dtype` are at fault.
    """
    name = "metamorphic.agree"
    pair = _pair(one, other, honest, dtype)
    if isinstance(pair, str):
        return refuse(name, f"{what}: {pair}")
    measures = pair.measures()
    if control is not None:
        edited = _pair(one, control, honest, dtype)
        if isinstance(edited, str):
            return refuse(name, f"{what}, the control of one other token a prompt: {edited}")
        measures.append(replace(_moved(edited, "change by one other token a prompt"), decides=Decides.POWER))
    faults = other_tokens(one, other)
    return conclude(name, f"{_count(pair)} {what}, {dtype}", measures, rows=pair.rows, faults=faults)


def earlier_stay(one: Observation, other: Observation, *, edited: int, honest: Honest, dtype: str) -> Judgement:
    """Two forced texts that differ from token `edited` on have the same logprobs up to it: none sees a later token.

    The values are [n, positions, candidates], where position t is what token t is drawn from, so position `edited`
    still counts. UNDERPOWERED where the later logprobs hardly differ: then the edit changed nothing.
    ValueError where r, e, rows, `edited` or `dtype` are at fault.
    """
    name = "metamorphic.earlier_stay"
    pair = _pair(one, other, honest, dtype)
    if isinstance(pair, str):
        return refuse(name, f"logprobs before an edited token: {pair}")
    if pair.a.ndim != 3 or not 0 <= edited < pair.a.shape[1] - 1:
        raise ValueError(f"token {edited} of values {list(pair.a.shape)}: some position must lie behind the edited one")
    earlier, later = pair.at(slice(0, edited + 1)), pair.at(slice(edited + 1, None))
    control = replace(_moved(later, "change of the later logprobs"), decides=Decides.POWER)
    compared = f"logprobs of {_count(pair)} at and before token {edited}, the tokens from it on edited, {dtype}"
    faults = other_tokens(one, other)
    return conclude(name, compared, [*earlier.measures(), control], rows=pair.rows, faults=faults)


def reacts(original: Observation, edited: Observation, *, honest: Honest, dtype: str, what: str) -> Judgement:
    """The answers react to an edit at the far end of their prompts: some path leads from there.

    Judged: the pooled change, in units of what honest rounding alone would change. UNDERPOWERED where the two were not
    read as prompts that differ in their second half alone. ValueError where r, e, rows or `dtype` are at fault.
    """
    name = "metamorphic.reacts"
    pair = _pair(original, edited, honest, dtype)
    if isinstance(pair, str):
        return refuse(name, f"{what}: {pair}")
    far = sum(map(_differ_late, original.prompt_token_ids, edited.prompt_token_ids))
    prompts = len(pair.a)
    measures = [
        _moved(pair, "change over rounding"),
        Measure(Figure("prompts that did not change in any bit", pair.equal)),
        Measure(
            Figure("prompts edited in their second half alone", far, prompts, "min", "an edit nearby shows no path"),
            Decides.POWER,
        ),
    ]
    return conclude(name, f"{_count(pair)} {what}, {dtype}", measures, rows=pair.rows)


@dataclass(frozen=True)
class _Pair:
    """Two answers a and b, float64 of one shape, beside the honest errors of the same prompts, where known."""

    a: Float64
    b: Float64
    dtype: str
    honest: Float64 | None  # e - r of the same prompts
    spread: float | None  # rms of the norm of e - r over many prompts, where a prompt's own does not tell

    @property
    def rows(self) -> dict[str, Float64]:
        return {"a": self.a, "b": self.b, **({} if self.honest is None else {"honest": self.honest})}

    @property
    def equal(self) -> int:
        """Prompts whose two answers are equal in every bit."""
        return int((self.a == self.b).reshape(len(self.a), -1).all(axis=1).sum())

    @property
    def values(self) -> int:
        """Of one prompt."""
        return int(self.a[0].size)

    def at(self, positions: slice) -> _Pair:
        honest = None if self.honest is None else self.honest[:, positions]
        return replace(self, a=self.a[:, positions], b=self.b[:, positions], honest=honest)

    def errors(self) -> Errors:
        """Per prompt: ||a - b|| / sqrt(2), the honest error's norm, floored, and the size of the answer."""
        size = np.maximum(_norms(self.a), _norms(self.b))
        floor = limits().ratio.floor_eps.value
        if self.honest is None:
            in_16bit, in_float32 = limits().metamorphic.floor_eps_16bit, limits().metamorphic.floor_eps_float32
            floor = pick(self.dtype, in_16bit, in_float32).value
            size = np.full_like(size, np.sqrt(np.square(size).mean()))
            allowed = np.zeros_like(size)
        elif self.spread is not None:
            size = np.full_like(size, np.sqrt(np.square(size).mean()))
            allowed = np.full_like(size, self.spread)
        else:
            allowed = _norms(self.honest)
        apart = _norms(self.a - self.b) / np.sqrt(2.0)
        return Errors(self.dtype, apart, np.maximum(allowed, floor * eps(self.dtype) * size), size)

    def measures(self) -> list[Measure]:
        limit = limits().metamorphic
        found, prompts = self.errors(), len(self.a)
        few = self.values < limit.own_values.value
        start = pick(self.dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
        wide: float | None = start.value
        if few:
            share = max(1.0, (self.values - 1) * limits().classes.independent_share.value)
            wide = widened(start.value, prompts * share)
        power = Figure("prompts asked twice", prompts, limit.prompts.value, "min", limit.prompts.provenance)
        judged = [] if wide is None else [pooled_measure(found, start, widened_to=wide)]
        return [
            *judged,
            single_measure(found, limit.single_sigma if few else limit.single),
            Measure(Figure("prompts equal in every bit", self.equal)),
            Measure(power, Decides.POWER),
        ]


def _pair(one: Observation, other: Observation, honest: Honest, dtype: str) -> _Pair | str:
    """The two answers beside what is honest, or a sentence that says what is wrong with an answer."""
    first, second = (np.asarray(each.values) for each in (one, other))  # type: ignore[attr-defined]
    axes = ("prompts", *["values"] * (first.ndim - 1))
    eps(dtype)
    if len(first) != len(honest.rows):
        return f"{len(first)} answers to {len(honest.rows)} prompts"
    error = _honest_errors(honest)
    shape = first.shape if error is None else (len(honest.rows), *error.shape[1:])
    found = [engine(values, shape, axes) for values in (first, second)]
    wrong = next((each for each in found if isinstance(each, str)), None)
    if wrong is not None:
        return wrong
    a, b = (np.asarray(each, dtype=np.float64) for each in found)
    if error is None:
        return _Pair(a, b, dtype, None, None)
    few = a[0].size < limits().metamorphic.own_values.value
    of = error[list(honest.rows)]
    spread = None
    if few or honest.alike:
        spread = float(np.sqrt(np.square(_norms(of if honest.alike else error)).mean()))
    return _Pair(a, b, dtype, of, spread)


def _honest_errors(honest: Honest) -> Float64 | None:
    if honest.r is None or honest.e is None:
        return None
    axes = ("prompts", *["values"] * (np.ndim(honest.r) - 1))
    r, e = own("r (reference)", honest.r, axes), own("e (yardstick)", honest.e, axes)
    if r.shape != e.shape:
        raise ValueError(f"r has shape {list(r.shape)} and e {list(e.shape)}; they must be equal")
    if not all(0 <= row < len(r) for row in honest.rows):
        raise ValueError(f"rows {list(honest.rows)} are not all rows of r, which has {len(r)}")
    return e - r


def _moved(pair: _Pair, what: str) -> Measure:
    """The pooled change over honest rounding, which must be well above what rounding alone would change."""
    limit = limits().metamorphic.moved
    value = pooled(pair.errors(), limit.value).value
    return Measure(Figure(what, value, limit.value, "min", limit.provenance))


def other_tokens(one: Observation, other: Observation) -> list[str]:
    """A sentence for every question that was read as other tokens the second time."""
    pairs = enumerate(zip_longest(one.prompt_token_ids, other.prompt_token_ids))
    return [
        f"question {i} was read as {0 if a is None else len(a)} tokens and then as {0 if b is None else len(b)}, not "
        "the same ones"
        for i, (a, b) in pairs
        if a != b
    ]


def _differ_late(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two prompts differ, and in their second half alone."""
    first = next((at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b), None)
    return first is not None and 2 * first >= len(one)


def _count(pair: _Pair) -> str:
    return f"{len(pair.a)} answers"


def _norms(values: Float64) -> Float64:
    with np.errstate(over="ignore"):  # an absurd value becomes an infinite ratio, which fails
        norms: Float64 = np.sqrt(np.square(values).reshape(len(values), -1).sum(axis=1))
    return norms
