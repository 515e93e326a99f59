"""A reference in float32 knows its own error, and is refused where that is not far below what it is to judge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from replay import embedded, recorded

from conformance.execution.group import parameters
from conformance.execution.outcome import outcome_of
from conformance.reference import compute, sample
from conformance.runner import Effective, LoadRequest, Scalars
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict

RAN = Effective("float32", "eager", {}, 1, 1)
NAMES = ("rerank-xlmr", "generation-qwen3")


def scalars(values: list[float]) -> Scalars:
    return Scalars(tuple((1,) * (index + 1) for index in range(len(values))), RAN, np.array(values))


class Fake:
    """Scores a pair by its number, with an error of its own."""

    def __init__(self, error: float) -> None:
        self.error = error

    def score_pairs(self, pairs: Any) -> Scalars:
        return scalars([number + self.error for number in pairs])


def errors(of: float) -> dict[str, sample.OwnError]:
    recording = sample.Recording(Fake(of))  # type: ignore[arg-type]
    scores = recording.score_pairs(list(range(20)))
    return sample.own_errors({"scores": scores}, recording.calls, Fake(0.0))  # type: ignore[arg-type]


def test_the_error_is_that_of_a_few_rows_asked_again() -> None:
    found = errors(1e-3)["scores"]
    assert found.rms == pytest.approx(1e-3)
    assert len(found.rows) == sample.ROWS and set(found.rows) >= {0, 1}, "the shortest are among them"


@pytest.mark.parametrize(
    ("own", "honest", "is_used"),
    [(1e-6, 1e-3, True), (1e-3, 1e-3, False), (0.9e-4, 1e-3, True), (1.1e-4, 1e-3, False), (1e-6, 0.0, False)],
)
def test_a_reference_is_used_only_where_its_error_is_a_tenth(own: float, honest: float, is_used: bool) -> None:
    reference = {"scores": scalars([float(number) for number in range(20)])}
    yardstick = {"scores": scalars([number + honest for number in range(20)])}
    if is_used:
        assert sample.require_small(errors(own), reference, yardstick)["scores"] == pytest.approx(own / honest)
        return
    with pytest.raises(
        sample.UncheckedReference, match=r"scores: .* of the yardstick's; it must be below 0\.1"
    ) as caught:
        sample.require_small(errors(own), reference, yardstick)
    assert outcome_of(caught.value).verdict is Verdict.ENVIRONMENT


def test_an_error_that_was_never_sampled_is_refused() -> None:
    with pytest.raises(sample.UncheckedReference, match="scores was never sampled"):
        sample.require_small({}, {}, {"scores": scalars([1.0])})


def test_an_observation_that_is_no_single_answer_cannot_be_sampled() -> None:
    recording = sample.Recording(Fake(0.0))  # type: ignore[arg-type]
    changed = replace(recording.score_pairs([1, 2]), values=np.array([0.0, 0.0]))
    with pytest.raises(sample.UncheckedReference, match="is not the answer to one call"):
        sample.own_errors({"scores": changed}, recording.calls, Fake(0.0))  # type: ignore[arg-type]


def subject(name: str) -> compute.Subject:
    model, suite = embedded()[name]
    request = LoadRequest(name, str(model.folder), suite.role, "cpu", "eager", "float64", parameters(model))
    return compute.Subject(suite, request, Tokenizer(model.folder))


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_a_float32_reference_of_a_real_suite_is_far_below_16_bit_and_not_below_float32(name: str) -> None:
    from conformance.reference.runner import ReferenceRunner

    whole, fused = recorded(name, "bfloat16", "fused")
    found, own = compute.compute_narrow_reference(subject(name), ReferenceRunner)
    assert found.keys() == whole.keys()
    assert own.keys() == fused.keys()
    for asked, error in own.items():  # the sample says how far it really is from fp64
        rows = list(error.rows)
        real = compute.values_of(found[asked])[rows] - compute.values_of(whole[asked])[rows]
        assert error.rms == pytest.approx(float(np.sqrt(np.nanmean(real**2))), rel=1e-6)
    assert all(share < 0.01 for share in sample.require_small(own, found, fused).values())
    _, narrow = recorded(name, "float32", "ieee")
    with pytest.raises(sample.UncheckedReference):
        sample.require_small(own, found, narrow)


@pytest.mark.torch
def test_weights_widened_module_by_module_give_fp64_and_are_narrow_again() -> None:
    import torch

    from conformance.reference.runner import ReferenceRunner

    name = "rerank-xlmr"
    asked = subject(name)
    pairs = asked.suite.inputs().pairs[:8]
    reference, _ = recorded(name, "float32", "ieee")
    expected = compute.values_of(reference["scores"])[:8]
    request = replace(asked.request, dtype="float32", options={"batch_size": 1, "widen_by_module": True})
    with ReferenceRunner(request) as runner:
        found = runner.score_pairs(pairs).values
        assert {weight.dtype for weight in runner.model.parameters()} == {torch.float32}
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with ReferenceRunner(replace(request, options={"batch_size": 1})) as runner:
        assert not np.allclose(runner.score_pairs(pairs).values, expected, rtol=1e-9)
