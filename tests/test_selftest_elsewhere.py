"""The rules in use elsewhere, against arrays whose answer is known without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.selftest import elsewhere
from conformance.selftest.elsewhere import RULES, Outputs, rows_to_outputs

RULE = {rule.id: rule.alarms for rule in RULES}
RANDOM = np.random.default_rng(20261130)
VECTORS = RANDOM.standard_normal((16, 32))


def outputs(kind: str, x: Any, r: Any, *, role: str = "", dtype: str = "bfloat16", **more: Any) -> Outputs:
    return Outputs(kind, role, dtype, np.asarray(x, np.float64), np.asarray(r, np.float64), **more)


def turned(vectors: Any, cosine: float) -> Any:
    """The first vector turned until its cosine to what it was is this; the others stay."""
    found = vectors.copy()
    first = found[0] / np.linalg.norm(found[0])
    aside = np.eye(1, len(first))[0] - first[0] * first
    found[0] = cosine * first + np.sqrt(1 - cosine**2) * aside / np.linalg.norm(aside)
    return found


@pytest.mark.parametrize(("rule", "tolerance"), [("cosine-1e-3", 1e-3), ("cosine-1e-2", 1e-2)])
def test_a_cosine_rule_sees_one_turned_vector_and_no_scale(rule: str, tolerance: float) -> None:
    near, far = turned(VECTORS, 1 - 0.9 * tolerance), turned(VECTORS, 1 - 1.1 * tolerance)
    assert RULE[rule](outputs("vector.agrees", near, VECTORS)) is False
    assert RULE[rule](outputs("vector.agrees", far, VECTORS)) is True
    assert RULE[rule](outputs("vector.agrees", VECTORS * 2, VECTORS)) is False  # its blind spot
    assert RULE[rule](outputs("score.agrees", [1.0], [2.0])) is None


def test_a_rerank_score_is_a_probability_for_a_decoder_and_a_logit_for_a_cross_encoder() -> None:
    r = np.array([9.0, -8.0, 0.0])
    saturated, undecided = r + np.array([0.5, 0, 0]), r + np.array([0, 0, 0.05])
    decoder = {"role": "rerank.decoder"}
    assert RULE["score-1e-2"](outputs("score.agrees", saturated, r, **decoder)) is False  # saturation hides it
    assert RULE["score-1e-2"](outputs("score.agrees", undecided, r, **decoder)) is True
    assert RULE["score-1e-2"](outputs("score.agrees", saturated, r, role="rerank.cross_encoder")) is True
    assert RULE["score-1e-2"](outputs("score.agrees", r, r + 1, role="reward")) is None
    logs = np.log([0.9, 0.5])
    assert RULE["score-1e-2"](outputs("score.agrees", logs + np.array([0, 0.03]), logs, **decoder)) is True


def test_a_reward_rule_allows_fifteen_hundredths() -> None:
    r = np.zeros(4)
    assert RULE["reward-1.5e-1"](outputs("score.agrees", r + 0.14, r, role="reward")) is False
    assert RULE["reward-1.5e-1"](outputs("score.agrees", r + 0.16, r, role="reward")) is True


def test_a_class_rule_sees_probabilities_and_the_top_class_and_no_common_offset() -> None:
    r = np.log([[0.6, 0.3, 0.1]])
    assert RULE["class-5e-2"](outputs("classes.agrees", r + 7, r)) is False
    assert RULE["class-5e-2"](outputs("classes.agrees", np.log([[0.54, 0.36, 0.1]]), r)) is True
    tie = np.log([[0.4, 0.39, 0.21]])
    assert RULE["class-5e-2"](outputs("classes.agrees", np.log([[0.39, 0.4, 0.21]]), tie)) is True


def test_top_containment_looks_at_the_first_differing_token_only() -> None:
    r = np.log(np.array([[[0.3, 0.25, 0.2, 0.15, 0.06, 0.04]] * 3]))
    forced = np.ones((1, 3), bool)
    swapped = r.copy()
    swapped[0, 1, [0, 1]] = swapped[0, 1, [1, 0]]  # the second best is chosen: contained
    rule = RULE["top-5-containment"]
    assert rule(outputs("tokens.logprobs_agree", r, r, forced=forced)) is False
    assert rule(outputs("tokens.logprobs_agree", swapped, r, forced=forced)) is False
    later = swapped.copy()
    later[0, 2] = later[0, 2, ::-1]  # nobody looks behind the first
    assert rule(outputs("tokens.logprobs_agree", later, r, forced=forced)) is False
    outside = r.copy()
    outside[0, 1, 5] = 0.0  # the sixth best is chosen
    assert rule(outputs("tokens.logprobs_agree", outside, r, forced=forced)) is True
    unforced = np.array([[True, False, True]])
    assert rule(outputs("tokens.logprobs_agree", outside, r, forced=unforced)) is False
    assert rule(outputs("vector.agrees", VECTORS, VECTORS)) is None


def test_rules_of_eager_compare_the_greatest_errors() -> None:
    r = np.zeros((4, 4))
    eager, x = r.copy(), r.copy()
    eager[0, 0], x[3, 3] = 0.01, 0.03
    assert RULE["2x-eager"](outputs("vector.agrees", x, r, eager=eager)) is True
    assert RULE["5x-eager"](outputs("vector.agrees", x, r, eager=eager)) is False
    assert RULE["5x-eager"](outputs("vector.agrees", x * 2, r, eager=eager)) is True
    tiny = np.full((4, 4), 1e-6)
    assert RULE["5x-eager"](outputs("vector.agrees", tiny, r, eager=tiny / 1000)) is False  # its floor
    assert RULE["2x-eager"](outputs("vector.agrees", x, r)) is None


def test_four_fifths_of_the_rows_are_enough_for_one_rule_and_not_for_the_other() -> None:
    x = VECTORS[:10].copy()
    x[:2] += 100
    assert RULE["allclose"](outputs("vector.agrees", x, VECTORS[:10])) is True
    assert RULE["allclose-80%"](outputs("vector.agrees", x, VECTORS[:10])) is False
    x[2] += 100
    assert RULE["allclose-80%"](outputs("vector.agrees", x, VECTORS[:10])) is True


@pytest.mark.parametrize(("dtype", "error"), [("float32", 2e-4), ("float16", 2e-2), ("bfloat16", 4e-2)])
def test_allclose_has_its_tolerances_by_dtype(dtype: str, error: float) -> None:
    r = np.ones((2, 2))
    assert RULE["allclose"](outputs("score.agrees", r + error, r, dtype=dtype)) is True
    assert RULE["allclose"](outputs("score.agrees", r + error / 10, r, dtype=dtype)) is False


@given(
    st.sampled_from(["vector.agrees", "score.agrees", "classes.agrees", "vision.features_agree"]),
    st.sampled_from(["reward", "rerank.decoder", "rerank.cross_encoder", "embedding.last"]),
)
@settings(max_examples=30, deadline=None)
def test_no_rule_accuses_the_reference_itself(kind: str, role: str) -> None:
    values = VECTORS[:, 0] if kind == "score.agrees" else VECTORS
    for rule in RULES:
        assert rule.alarms(outputs(kind, values, values, role=role, eager=values)) in (False, None), rule.id


def test_only_numbers_beside_the_references_are_outputs() -> None:
    rows = {"x": VECTORS, "r": VECTORS, "e": VECTORS}
    assert rows_to_outputs("vector.agrees", "embedding.last", "bfloat16", rows, None) is not None
    assert rows_to_outputs("vector.have_unit_norm", "embedding.last", "bfloat16", rows, None) is None
    assert rows_to_outputs("vector.agrees", "embedding.last", "bfloat16", {"x": VECTORS}, None) is None
    other = rows_to_outputs("vector.agrees", "embedding.last", "bfloat16", rows, VECTORS[:3])
    assert other is not None and other.eager is None  # another shape: of other prompts


def test_every_rule_names_its_source() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.source and rule.description for rule in RULES)
    assert elsewhere.is_compared("tokens.logprobs_agree") and not elsewhere.is_compared("observed.is_complete")


def test_a_kernels_rows_are_answered_by_eager_attention_too() -> None:
    from conformance.criteria.attention_calls import kept
    from conformance.criteria.attention_math import exact, ideal
    from conformance.runner import AttentionCall
    from conformance.selftest.kernel_rows import eager_answer

    query, key, value = (RANDOM.standard_normal((2, heads, 5, 8)).astype(np.float32) for heads in (4, 2, 2))
    call = AttentionCall(query, key, value, window=3, softcap=20.0, lengths=(5, 4))
    found = eager_answer(kept(call, exact(call), exact(call)), "bfloat16")
    assert found is not None and np.array_equal(found, ideal(call, "bfloat16", "eager"))
    assert eager_answer(kept(call, exact(call)), "float32") is None
    assert eager_answer({"x": exact(call)}, "bfloat16") is None
