"""The matched filter finds known faults below the noise, is silent about noise, and says what it could not see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria.matched import is_no_known_fault, projection
from conformance.judgement import Judgement
from conformance.verdict import Verdict

PROMPTS, WIDTH = 32, 64
SHAPE = (PROMPTS, WIDTH)
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def judged(x: np.ndarray, r: np.ndarray, e: np.ndarray, **directions: np.ndarray) -> Judgement:
    return is_no_known_fault(x=x, r=r, e=e, directions=directions)


def figure(judgement: Judgement, name: str) -> float:
    return next(each.value for each in judgement.figures if each.name == name)


def normal(seed: int, size: float = 1.0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return size * np.random.default_rng(seed).standard_normal(shape)


@few
@given(seeds, st.floats(0.01, 100))
def test_noise_is_no_alarm(seed: int, size: float) -> None:
    r = normal(seed)
    found = judged(
        r + normal(seed + 1, size), r, r + normal(seed + 2, size), scale=normal(seed + 3), mask=normal(seed + 4, 0.01)
    )
    assert found.verdict is not Verdict.FAIL, found.message


@few
@given(seeds, st.floats(2, 7))
def test_a_fault_is_found_below_the_noise(seed: int, times: float) -> None:
    """At 2 to 7 times less than the noise, on as many numbers as 128 positions of 32 prompts have."""
    shape = (PROMPTS, 512)
    r, fault = normal(seed, 1, shape), normal(seed + 3, 1 / times, shape)
    x, e = r + fault + normal(seed + 1, 1, shape), r + normal(seed + 2, 1, shape)
    found = judged(x, r, e, scale=fault, mask=normal(seed + 4, 1, shape))
    assert found.verdict is Verdict.FAIL
    assert "c of scale is" in found.message and "mask" not in found.message
    assert figure(found, "c of scale") == pytest.approx(1, abs=0.35)


@few
@given(seeds)
def test_a_weak_direction_is_not_covered_and_never_a_pass(seed: int) -> None:
    r = normal(seed)
    x, e = r + normal(seed + 1), r + normal(seed + 2)
    alone = judged(x, r, e, eps=normal(seed + 3, 1e-4))
    assert alone.verdict is Verdict.UNDERPOWERED
    assert "not covered: eps (uncertainty" in alone.message
    beside = judged(x, r, e, eps=normal(seed + 3, 1e-4), mask=normal(seed + 4, 10))
    assert beside.verdict is Verdict.PASS
    assert "could have been seen: mask; not covered: eps (uncertainty" in beside.message


@few
@given(seeds)
def test_a_prompt_order_or_a_scale_of_all_numbers_changes_nothing(seed: int) -> None:
    r, fault = normal(seed), normal(seed + 3)
    x, e = r + normal(seed + 1), r + normal(seed + 2)
    order = np.random.default_rng(seed).permutation(PROMPTS)
    plain = judged(x, r, e, mask=fault)
    turned = judged(8 * x[order], 8 * r[order], 8 * e[order], mask=8 * fault[order])
    assert [each.value for each in turned.figures] == pytest.approx([each.value for each in plain.figures])


@few
@given(seeds, st.sampled_from([1e-150, 1e-30, 1e30]))
def test_a_direction_s_size_only_scales_c(seed: int, scale: float) -> None:
    error, direction = normal(seed), normal(seed + 1)
    plain, scaled = projection(error, direction), projection(error, scale * direction)
    assert scaled.coefficient * scale == pytest.approx(plain.coefficient)
    assert scaled.deviation * scale == pytest.approx(plain.deviation)
    assert (scaled.share, scaled.prompts) == pytest.approx((plain.share, plain.prompts))


def test_scores_with_one_number_a_prompt_have_directions_too() -> None:
    r, fault = normal(1, 1, (128,)), normal(4, 0.5, (128,))
    honest, e = r + normal(2, 0.1, (128,)), r + normal(3, 0.1, (128,))
    assert judged(honest, r, e, bias=fault).verdict is Verdict.PASS
    assert judged(honest + fault, r, e, bias=fault).verdict is Verdict.FAIL


def test_what_is_not_compared_has_no_part_in_it() -> None:
    counted = np.arange(WIDTH) < np.full((PROMPTS, 1), WIDTH // 2)
    r, fault = normal(1), normal(4)
    x, e = r + normal(2), r + normal(3)
    for each in (r, x, e, fault):
        each[~counted] = np.nan
    found = is_no_known_fault(x=x, r=r, e=e, directions={"mask": fault}, counted=counted)
    half = slice(None), slice(WIDTH // 2)
    assert found.figures == judged(x[half], r[half], e[half], mask=fault[half]).figures


def test_a_direction_of_one_prompt_alone_is_not_judged() -> None:
    r, fault = normal(1), np.zeros(SHAPE)
    fault[3] = 1.0
    found = judged(r + fault + 0.01 * normal(2), r, r + 0.01 * normal(3), page=fault)
    assert found.verdict is Verdict.UNDERPOWERED
    assert "not covered: page (uncertainty inf)" in found.message


def test_a_fault_without_effect_is_not_covered() -> None:
    r = normal(1)
    found = judged(r + normal(2), r, r + normal(3), window=np.zeros(SHAPE), mask=normal(4, 10))
    assert found.verdict is Verdict.PASS and "not covered: window (no effect on these prompts)" in found.message


def test_where_honest_rounding_leans_the_engine_may_lean_otherwise() -> None:
    r, lean = normal(1), normal(4, 0.1)
    x, e = r + 3 * lean + normal(2, 0.05), r - 2 * lean + normal(3, 0.05)
    found = judged(x, r, e, eps=lean)
    assert found.verdict is Verdict.UNDERPOWERED and "not covered: eps (uncertainty 2)" in found.message
    assert next(each for each in found.figures if each.name == "c of eps").limit is None
    assert judged(x, r, r + normal(3, 0.05), eps=lean).verdict is Verdict.FAIL


def test_what_the_yardstick_leans_is_allowed_beyond_the_limit() -> None:
    r, lean = normal(1), normal(4)
    e = r + 0.09 * lean + normal(3, 0.1)
    assert judged(r + 0.55 * lean + normal(2, 0.1), r, e, eps=lean).verdict is Verdict.PASS
    assert judged(r + 0.65 * lean + normal(2, 0.1), r, e, eps=lean).verdict is Verdict.FAIL


def test_an_engine_s_own_large_error_hides_no_fault_along_a_direction() -> None:
    """What is judged is decided by honest rounding; another error beside the fault only widens what chance allows."""
    r, fault = normal(1), normal(4)
    x = r + fault + normal(2, 3)
    found = judged(x, r, r + normal(3, 0.01), mask=fault)
    assert found.verdict is Verdict.FAIL


@pytest.mark.parametrize(("wrong", "verdict"), [(np.nan, "FAIL"), (np.inf, "FAIL"), (1e300, "UNDERPOWERED")])
def test_numbers_that_are_none_fail_and_absurd_ones_hide_every_direction(wrong: float, verdict: str) -> None:
    r, fault = normal(1), normal(4)
    x = r.copy()
    x[2, 5] = wrong
    assert judged(x, r, r + normal(3), mask=fault).verdict is Verdict[verdict]


def test_without_any_direction_nothing_is_shown() -> None:
    assert judged(normal(1), normal(1), normal(2)).verdict is Verdict.UNDERPOWERED


def test_another_shape_fails() -> None:
    r = normal(1)
    assert "but must be [32, 64]" in judged(r[:, :3], r, r + normal(3), mask=normal(4)).message


def test_what_is_wrong_with_the_suite_s_own_numbers_is_no_verdict() -> None:
    r = normal(1)
    with pytest.raises(ValueError, match=r"the direction of mask has shape \[32, 3\]"):
        judged(r, r, r, mask=normal(4)[:, :3])
    with pytest.raises(ValueError, match="the direction of mask holds NaN"):
        judged(r, r, r, mask=np.full(SHAPE, np.nan))
    with pytest.raises(ValueError, match="zero throughout"):
        projection(r, np.zeros(SHAPE))


def test_the_standard_error_is_that_of_repeated_draws() -> None:
    fault = normal(4, 0.5)
    drawn = [projection(normal(seed, 1), fault) for seed in range(10, 210)]
    spread = np.std([each.coefficient for each in drawn])
    assert np.mean([each.deviation for each in drawn]) == pytest.approx(spread, rel=0.15)
