"""Broken outputs: each takes an honest observation of one of its kinds and breaks it as a faulty engine would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.runner import (
    ClassLogits,
    ForcedLogprobs,
    Generations,
    Observation,
    Scalars,
    TokenLogprobs,
    Vectors,
    VisionFeatures,
)

Break = Callable[[Any], Observation]


def no_tokens(found: Any) -> Observation:
    return _shortened(found, 0)


def stops_after_a_third_of_the_tokens(found: Any) -> Observation:
    return _shortened(found, found.logprobs.shape[1] // 3)


def answers_one_prompt_in_three(found: Any) -> Observation:
    return _first(found, max(1, len(found.prompt_token_ids) // 3))


def empty_batch(found: Any) -> Observation:
    return _first(found, 0)


def all_numbers_nan(found: Any) -> Observation:
    if isinstance(found, Generations):
        return replace(
            found, logprobs=np.full_like(found.logprobs, np.nan), top_logprobs=np.full_like(found.top_logprobs, np.nan)
        )
    return _with(found, np.full_like(_values(found), np.nan))


def logprobs_off_by_100(found: Any) -> Observation:
    if isinstance(found, Generations):
        return replace(found, logprobs=found.logprobs + 100, top_logprobs=found.top_logprobs + 100)
    return _with(found, _values(found) - 100)


def garbage_after_the_first_divergence(found: Any) -> Observation:
    garbage = [tuple(ids[:5]) + tuple(token + 1 for token in ids[5:]) for ids in found.token_ids]
    return replace(found, token_ids=tuple(garbage))


def text_that_does_not_match_its_ids(found: Any) -> Observation:
    return replace(found, texts=(*found.texts[1:], found.texts[0]))


def chosen_token_outside_the_top_k(found: Any) -> Observation:
    other = found.top_ids.copy()
    other[:, 3] = other[:, 3] + 7
    return replace(found, top_ids=other)


def values_swapped_between_tokens(found: Any) -> Observation:
    values = _values(found).copy()
    values[..., [0, 1]] = values[..., [1, 0]]
    if values.shape[-1] > 50:
        values[..., [5, 50]] = values[..., [50, 5]]
    return _with(found, values)


def logprobs_of_the_neighbouring_position(found: Any) -> Observation:
    return _with(found, np.roll(_values(found), 1, axis=1))


def one_vector_for_all(found: Any) -> Observation:
    return _with(found, np.repeat(_values(found)[:1], len(found.prompt_token_ids), axis=0))


def scaled_by_two(found: Any) -> Observation:
    return _with(found, _values(found) * 2)


def two_documents_swapped(found: Any) -> Observation:
    values = _values(found).copy()
    score = values if values.ndim == 1 else values[:, 0] - values[:, 1]
    best, worst = int(score[:4].argmax()), int(score[:4].argmin())
    values[[best, worst]] = values[[worst, best]]
    return _with(found, values)


def yes_and_no_swapped(found: Any) -> Observation:
    return _with(found, _values(found)[:, ::-1].copy())


def class_labels_permuted(found: Any) -> Observation:
    return _with(found, np.roll(_values(found), 1, axis=1))


def features_of_the_neighbouring_patch(found: Any) -> Observation:
    return _with(found, np.roll(_values(found), 1, axis=0))


def features_of_half_the_pictures(found: Any) -> Observation:
    half = len(found.grids) // 2
    return replace(found, values=found.values[: len(found.values) // 2], grids=found.grids[:half])


def one_picture_that_drifts(found: Any) -> Observation:
    """The last picture's features are off by a twentieth of their size, as by a kernel that misreads its edge."""
    values = _values(found).copy()
    patches = int(np.prod(found.grids[-1])) // 4
    values[-patches:] *= 1.05
    return _with(found, values)


def constant_added_to_every_score(found: Any) -> Observation:
    return _with(found, _values(found) + 0.5)


_ANY: tuple[type[Observation], ...] = (
    Vectors,
    Scalars,
    ClassLogits,
    TokenLogprobs,
    ForcedLogprobs,
    Generations,
)

ALL: dict[Break, tuple[type[Observation], ...]] = {
    no_tokens: (Generations,),
    stops_after_a_third_of_the_tokens: (Generations,),
    answers_one_prompt_in_three: _ANY,
    empty_batch: _ANY,
    all_numbers_nan: (*_ANY, VisionFeatures),
    logprobs_off_by_100: (
        Generations,
        ForcedLogprobs,
        TokenLogprobs,
    ),
    garbage_after_the_first_divergence: (Generations,),
    text_that_does_not_match_its_ids: (Generations,),
    chosen_token_outside_the_top_k: (Generations,),
    values_swapped_between_tokens: (
        ForcedLogprobs,
        TokenLogprobs,
    ),
    logprobs_of_the_neighbouring_position: (ForcedLogprobs,),
    one_vector_for_all: (Vectors,),
    scaled_by_two: (Vectors, VisionFeatures),
    features_of_the_neighbouring_patch: (VisionFeatures,),
    features_of_half_the_pictures: (VisionFeatures,),
    one_picture_that_drifts: (VisionFeatures,),
    two_documents_swapped: (
        Scalars,
        TokenLogprobs,
    ),
    yes_and_no_swapped: (TokenLogprobs,),
    class_labels_permuted: (ClassLogits,),
    constant_added_to_every_score: (
        Scalars,
        ClassLogits,
    ),
}
"""Every break with the kinds of observation that it applies to."""


def _values(found: Any) -> Any:
    return np.asarray(found.values)


def _with(found: Any, values: Any) -> Observation:
    changed: Observation = replace(found, values=values)
    return changed


def _first(found: Any, count: int) -> Observation:
    changes: dict[str, Any] = {"prompt_token_ids": found.prompt_token_ids[:count]}
    if isinstance(found, Generations):
        names = ("token_ids", "texts", "finish_reasons", "logprobs", "top_ids", "top_logprobs")
        changes |= {name: getattr(found, name)[:count] for name in names}
    else:
        changes["values"] = found.values[:count]
    changed: Observation = replace(found, **changes)
    return changed


def _shortened(found: Generations, length: int) -> Generations:
    return replace(
        found,
        token_ids=tuple(ids[:length] for ids in found.token_ids),
        texts=tuple("" if not length else text for text in found.texts),
        logprobs=found.logprobs[:, :length],
        top_ids=found.top_ids[:, :length],
        top_logprobs=found.top_logprobs[:, :length],
    )
