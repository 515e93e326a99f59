"""Limits: every constant has a value and a provenance, and a damaged file is refused with all its faults."""

from __future__ import annotations

import importlib.resources
import math
from typing import Any

import pytest
import tomli

from conformance.criteria.limits import limits, parse
from conformance.judgement import Figure


def text() -> str:
    return importlib.resources.files("conformance.criteria").joinpath("limits.toml").read_text(encoding="utf-8")


def test_the_shipped_limits_are_those_of_the_design() -> None:
    given = limits()
    assert given.vector.pooled_16bit.value == given.tokens.pooled_16bit.value == 1.25
    assert given.ratio.pooled_float32.value == 2
    assert given.vector.single.value == given.tokens.single.value == 2.5
    assert given.score.pooled_16bit.value == 1.47
    assert (given.vector.prompts.value, given.score.samples.value, given.tokens.prompts.value) == (16, 128, 32)
    assert given.classes.values.value == 256


def test_every_constant_has_a_provenance_and_a_release() -> None:
    for group in tomli.loads(text()).values():
        for entry in group.values():
            assert entry["provenance"].strip()
            assert entry["since"].strip()


def test_a_misspelt_name_is_refused_with_the_right_one() -> None:
    with pytest.raises(ValueError, match=r"'pooled_16bits'; did you mean 'pooled_16bit'\?"):
        parse(text().replace("[vector.pooled_16bit]", "[vector.pooled_16bits]"))


def test_every_fault_is_listed_at_once() -> None:
    damaged = text().replace('since = "0.1.0"', 'since = ""', 1).replace("value = 2.5", 'value = "2.5"', 1)
    with pytest.raises(ValueError, match=r"ratio\.floor_eps needs a provenance.*vector\.single\.value='2\.5' must be"):
        parse(damaged)


@pytest.mark.parametrize("value", ["nan", "true", "[1, 2]"])
def test_a_value_that_is_no_finite_number_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"ratio\.floor_eps\.value"):
        parse(text().replace("value = 0.2", f"value = {value}", 1))


def test_a_table_of_quantiles_that_does_not_pair_up_is_refused() -> None:
    with pytest.raises(ValueError, match="must pair up"):
        parse(text().replace("value = [6.454, ", "value = [", 1))


def test_the_table_of_quantiles_is_that_of_the_f_distribution() -> None:
    stats: Any = pytest.importorskip("scipy.stats")
    table = limits().quantile
    for samples, ratio in zip(table.samples.values, table.ratios.values, strict=True):
        exact = math.sqrt(stats.f.isf(1e-5, samples, samples))
        assert exact <= ratio <= exact + 1e-3


def test_between_tabulated_sample_counts_the_wider_limit_holds() -> None:
    table = limits().quantile
    assert table.ratio(128) == table.ratio(191.9) == 1.466
    assert table.ratio(7) is None


def test_nan_holds_no_limit() -> None:
    assert not Figure("pooled ratio", math.nan, 1.25).holds
