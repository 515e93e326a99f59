"""An engine whose answers depend on what else is asked, or on what comes later, fails the promise that says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay import bench, embedded, outcomes, recorded

from conformance.verdict import Verdict

NAMES = sorted(embedded())
ENCODERS = [name for name in NAMES if not embedded()[name][1].causal]
GREEDY = [name for name in NAMES if hasattr(embedded()[name][1], "judge_future")]

BATCH = "test_answers_do_not_depend_on_the_batch"
ORDER = "test_answers_do_not_depend_on_the_order"
PADDING = "test_answers_do_not_depend_on_padding"
REPEAT = "test_answers_repeat"
COMPANY = {BATCH, ORDER, PADDING, REPEAT, "test_decoding_does_not_depend_on_company"}


def _noise(name: str) -> Any:
    """Honest errors of the compared observation, and from them a difference that is far beyond one."""
    reference, yardstick = recorded(name, "bfloat16", "eager")
    compared = embedded()[name][1].compared
    error = np.asarray(yardstick[compared].values) - np.asarray(reference[compared].values)
    return 40 * float(np.sqrt(np.nanmean(error**2)))


def _failed(name: str, **faults: Any) -> set[str]:
    found = outcomes(name, bench(name, **faults))
    assert {test for test, outcome in found.items() if outcome.verdict is Verdict.ERROR} == set()
    return {test for test, outcome in found.items() if outcome.verdict is Verdict.FAIL}


@pytest.mark.parametrize("name", NAMES)
def test_answers_that_depend_on_the_size_of_the_batch_fail(name: str) -> None:
    far = _noise(name)
    failed = _failed(name, meddle=lambda rows, values: values + far * (len(rows) >= 8))
    assert BATCH in failed and failed <= COMPANY
    assert not failed & {ORDER, REPEAT}


@pytest.mark.parametrize("name", NAMES)
def test_answers_that_depend_on_a_crowd_alone_fail(name: str) -> None:
    far = _noise(name)
    assert _failed(name, meddle=lambda rows, values: values + far * (len(rows) >= 64)) == {BATCH}


@pytest.mark.parametrize("name", NAMES)
def test_one_answer_of_a_crowd_that_is_another_prompts_fails(name: str) -> None:
    def swap(rows: list[int], values: Any) -> Any:
        if len(rows) >= 64:
            first = values.reshape(len(rows), -1)[:, 0]
            least, most = int(first.argmin()), int(first.argmax())
            values[[least, most]] = values[[most, least]]
        return values

    assert _failed(name, meddle=swap) == {BATCH}


@pytest.mark.parametrize("name", NAMES)
def test_answers_that_depend_on_the_place_in_the_batch_fail(name: str) -> None:
    far = _noise(name)

    def last_is_off(rows: list[int], values: Any) -> Any:
        values[-1] += far * (len(rows) > 1)
        return values

    assert ORDER in _failed(name, meddle=last_is_off)


@pytest.mark.parametrize("name", NAMES)
def test_answers_of_short_prompts_beside_long_ones_fail(name: str) -> None:
    far = _noise(name)
    lengths = embedded()[name][1].lengths(_Named(recorded(name, "bfloat16", "eager")[0]))

    def padded(rows: list[int], values: Any) -> Any:
        longest = max(lengths[row] for row in rows)
        shorter = np.array([2 * lengths[row] < longest for row in rows])
        return values + far * shorter.reshape(-1, *[1] * (values.ndim - 1))

    assert PADDING in _failed(name, meddle=padded)


@pytest.mark.parametrize("name", NAMES)
def test_answers_that_differ_the_second_time_fail(name: str) -> None:
    far, calls = _noise(name), [0]

    def drifts(rows: list[int], values: Any) -> Any:
        calls[0] += 1
        return values + far * calls[0]

    assert REPEAT in _failed(name, meddle=drifts)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_that_does_not_see_its_last_word_fails(name: str) -> None:
    assert _failed(name, deaf=True) == {"test_answers_react_to_the_far_end"}


@pytest.mark.parametrize("name", GREEDY)
def test_a_later_token_that_moves_an_earlier_logprob_fails(name: str) -> None:
    assert _failed(name, leak=_noise(name)) == {"test_later_tokens_do_not_leak"}


class _Named:
    def __init__(self, part: Any) -> None:
        self.__dict__.update(part)
