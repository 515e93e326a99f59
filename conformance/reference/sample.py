"""How wrong a reference in float32 is: a sample of its answers again, in fp64, and the difference.

A model whose float64 weights do not fit into the host's memory has its reference computed in float32. That is allowed
only as far as its own error is well below the yardstick's, which is what judges the engine. So a few rows of every
observation that is compared by numbers are computed again with weights that are widened module by module.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.runner import Observation, Runner

ROWS, SEED = 4, 20261130
"""Rows of each observation that are checked: the shortest, as fp64 by module is slow, and others drawn from a seed."""

SHARE = 0.1
"""A reference's own error must be below this share of the yardstick's."""

_PER_ROW = {
    **dict.fromkeys(("embed", "score_pairs", "token_logprobs", "classify", "reward"), 1),
    "score_tokens": 3,
    "vision_features": 0,
}
"""Runner methods that answer with `values`, and how many of their first arguments have one entry a row. What has none
is asked again whole."""

_BESIDE = ("images", "videos")
"""Keyword arguments that have one entry a row as well."""


class UncheckedReference(Exception):
    """A reference in float32 cannot be used: its error is not known to be small enough."""


@dataclass(frozen=True)
class OwnError:
    """Of one observation: the `rows` that were checked (none: all), and the root mean square of the error on them."""

    rows: tuple[int, ...]
    rms: float

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"rows": list(self.rows), "rms": self.rms}


@dataclass(frozen=True)
class Call:
    """One call of the runner, and what it answered."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    answer: Observation


class Recording:
    """A runner whose calls are kept, so that a sample of them can be asked again."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runner, name)
        if name not in _PER_ROW:
            return found

        def asked(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            self.calls.append(Call(name, args, kwargs, answer))
            return answer

        return asked


def own_errors(compared: Mapping[str, Observation], calls: Sequence[Call], wide: Runner) -> dict[str, OwnError]:
    """The error of every compared observation, by asking `wide` for a sample of the calls that answered them.

    Raises UncheckedReference for an observation that is not one call's answer, and so cannot be asked again.
    """
    found = {}
    for name, observation in compared.items():
        call = next((each for each in calls if each.answer is observation), None)
        if call is None:
            raise UncheckedReference(
                f"{name} is not the answer to one call of the runner, so its error cannot be sampled"
            )
        split = _PER_ROW[call.method]
        rows = sampled(observation) if split else ()
        chosen = [_rows(argument, rows) for argument in call.args[:split]]
        more = {name: _rows(value, rows) if name in _BESIDE and value else value for name, value in call.kwargs.items()}
        again = getattr(wide, call.method)(*chosen, *call.args[split:], **more)
        found[name] = OwnError(rows, _rms(values_of(observation)[_at(rows)] - values_of(again)))
    return found


def sampled(observation: Observation) -> tuple[int, ...]:
    """The rows that are checked: the two shortest prompts and two others."""
    lengths = [len(ids) for ids in observation.prompt_token_ids]
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    shortest, rest = order[: ROWS // 2], order[ROWS // 2 :]
    others = random.Random(SEED).sample(rest, min(ROWS - len(shortest), len(rest)))
    return tuple(sorted({*shortest, *others}))


def require_small(
    errors: Mapping[str, OwnError], reference: Mapping[str, Observation], yardstick: Mapping[str, Observation]
) -> dict[str, float]:
    """The reference's error as a share of the yardstick's on the same rows, by observation.

    Raises UncheckedReference, with all that are too large, unless each is below `SHARE`.
    """
    shares = {}
    for name, found in yardstick.items():
        if name not in errors:
            raise UncheckedReference(f"the error of the float32 reference's {name} was never sampled")
        rows = _at(errors[name].rows)
        honest = _rms(values_of(found)[rows] - values_of(reference[name])[rows])
        shares[name] = errors[name].rms / honest if honest else float("inf")
    large = {name: share for name, share in shares.items() if not share < SHARE}
    if large:
        told = ", ".join(f"{name}: {share:.3g} of the yardstick's" for name, share in large.items())
        raise UncheckedReference(
            f"the reference is in float32, because this host has too little memory for fp64, and its own error is too "
            f"large to judge by ({told}; it must be below {SHARE:g}); a host with more memory computes it in fp64"
        )
    return shares


def _at(rows: Sequence[int]) -> Any:
    return list(rows) if rows else slice(None)


def values_of(observation: Observation) -> Any:
    """The numbers of an observation, float64."""
    return np.asarray(observation.values, dtype=np.float64)  # type: ignore[attr-defined]


def _rms(difference: Any) -> float:
    return float(np.sqrt(np.nanmean(difference**2)))


def _rows(argument: Any, rows: Sequence[int]) -> Any:
    return argument[list(rows)] if isinstance(argument, np.ndarray) else [argument[row] for row in rows]
