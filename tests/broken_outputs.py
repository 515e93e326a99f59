"""Broken outputs: each takes an honest observation and breaks it as a faulty engine would. None where it cannot."""

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
)

Break = Callable[[Any], "Observation | None"]


def no_tokens(found: Observation) -> Observation | None:
    if not isinstance(found, Generations):
        return None
    return _shortened(found, 0)


def stops_after_a_third_of_the_tokens(found: Observation) -> Observation | None:
    if not isinstance(found, Generations):
        return None
    return _shortened(found, found.logprobs.shape[1] // 3)


def answers_one_prompt_in_three(found: Observation) -> Observation:
    return _first(found, max(1, len(found.prompt_token_ids) // 3))


def empty_batch(found: Observation) -> Observation:
    return _first(found, 0)


def all_numbers_nan(found: Observation) -> Observation:
    if isinstance(found, Generations):
        return replace(
            found, logprobs=np.full_like(found.logprobs, np.nan), top_logprobs=np.full_like(found.top_logprobs, np.nan)
        )
    return _with(found, np.full_like(_values(found), np.nan))


def logprobs_off_by_100(found: Observation) -> Observation | None:
    if isinstance(found, Generations):
        return replace(found, logprobs=found.logprobs + 100, top_logprobs=found.top_logprobs + 100)
    return _with(found, _values(found) - 100) if isinstance(found, (ForcedLogprobs, TokenLogprobs)) else None


def garbage_after_the_first_divergence(found: Observation) -> Observation | None:
    if not isinstance(found, Generations):
        return None
    garbage = [tuple(ids[:5]) + tuple(token + 1 for token in ids[5:]) for ids in found.token_ids]
    return replace(found, token_ids=tuple(garbage))


def text_that_does_not_match_its_ids(found: Observation) -> Observation | None:
    if not isinstance(found, Generations):
        return None
    return replace(found, texts=(*found.texts[1:], found.texts[0]))


def chosen_token_outside_the_top_k(found: Observation) -> Observation | None:
    if not isinstance(found, Generations):
        return None
    other = found.top_ids.copy()
    other[:, 3] = other[:, 3] + 7
    return replace(found, top_ids=other)


def values_swapped_between_tokens(found: Observation) -> Observation | None:
    if isinstance(found, (ForcedLogprobs, TokenLogprobs)):
        values = _values(found).copy()
        values[..., [0, 1]] = values[..., [1, 0]]
        if isinstance(found, ForcedLogprobs):
            values[..., [5, 50]] = values[..., [50, 5]]
        return _with(found, values)
    return None


def logprobs_of_the_neighbouring_position(found: Observation) -> Observation | None:
    return _with(found, np.roll(_values(found), 1, axis=1)) if isinstance(found, ForcedLogprobs) else None


def one_vector_for_all(found: Observation) -> Observation | None:
    if not isinstance(found, Vectors):
        return None
    return _with(found, np.repeat(_values(found)[:1], len(found.prompt_token_ids), axis=0))


def scaled_by_two(found: Observation) -> Observation | None:
    return _with(found, _values(found) * 2) if isinstance(found, Vectors) else None


def two_documents_swapped(found: Observation) -> Observation | None:
    if not isinstance(found, (Scalars, TokenLogprobs)):
        return None
    values = _values(found).copy()
    score = values if values.ndim == 1 else values[:, 0] - values[:, 1]
    best, worst = int(score[:4].argmax()), int(score[:4].argmin())
    values[[best, worst]] = values[[worst, best]]
    return _with(found, values)


def yes_and_no_swapped(found: Observation) -> Observation | None:
    return _with(found, _values(found)[:, ::-1].copy()) if isinstance(found, TokenLogprobs) else None


def class_labels_permuted(found: Observation) -> Observation | None:
    return _with(found, np.roll(_values(found), 1, axis=1)) if isinstance(found, ClassLogits) else None


def constant_added_to_every_score(found: Observation) -> Observation | None:
    return _with(found, _values(found) + 0.5) if isinstance(found, (Scalars, ClassLogits)) else None


ALL: tuple[Break, ...] = (
    no_tokens,
    stops_after_a_third_of_the_tokens,
    answers_one_prompt_in_three,
    empty_batch,
    all_numbers_nan,
    logprobs_off_by_100,
    garbage_after_the_first_divergence,
    text_that_does_not_match_its_ids,
    chosen_token_outside_the_top_k,
    values_swapped_between_tokens,
    logprobs_of_the_neighbouring_position,
    one_vector_for_all,
    scaled_by_two,
    two_documents_swapped,
    yes_and_no_swapped,
    class_labels_permuted,
    constant_added_to_every_score,
)


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
