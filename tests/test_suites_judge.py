"""Every suite passes an honest engine and fails every broken output that its observations can carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from broken_outputs import ALL, Break, garbage_after_the_first_divergence
from replay import bench, embedded, outcomes, recorded

from conformance.criteria.covered import uncovered
from conformance.reference.compute import SHIPPED
from conformance.verdict import Verdict
from suites.greedy import GreedyText

CLAIMS = [(dtype, precision) for dtype, precision in SHIPPED]


@pytest.mark.parametrize("name", sorted(embedded()))
@pytest.mark.parametrize(("dtype", "precision"), CLAIMS)
def test_an_honest_engine_passes_every_promise(name: str, dtype: str, precision: str) -> None:
    found = outcomes(name, bench(name, dtype, precision))
    assert {test: outcome.message for test, outcome in found.items() if outcome.verdict is not Verdict.PASS} == {}


def _kind(suite: Any, asked: str) -> str:
    return str(getattr(suite, asked).__annotations__["return"])


BREAKS = [
    pytest.param(name, asked, broken, id=f"{name}-{asked}-{broken.__name__}")
    for name, (_, suite) in sorted(embedded().items())
    for asked in suite.observations()
    for broken, kinds in ALL.items()
    if _kind(suite, asked) in {kind.__name__ for kind in kinds}
    # Text set back on the reference's course is judged by its tokens alone; free text carries the rest.
    and (asked != "anchored" or broken is garbage_after_the_first_divergence)
]


@pytest.mark.parametrize(("name", "asked", "broken"), BREAKS)
def test_a_broken_output_fails(name: str, asked: str, broken: Break) -> None:
    found = outcomes(name, bench(name, alter=lambda each, honest: broken(honest) if each == asked else honest))
    verdicts = {test: outcome.verdict for test, outcome in found.items()}
    assert Verdict.FAIL in verdicts.values(), verdicts
    assert Verdict.ERROR not in verdicts.values(), {test: outcome.message for test, outcome in found.items()}


@pytest.mark.parametrize("name", sorted(embedded()))
def test_another_kernel_than_the_requested_fails_every_promise(name: str) -> None:
    working = bench(name)
    working.kernels = ["aten::_scaled_dot_product_flash_attention_for_cpu"]
    found = outcomes(name, working)
    assert {outcome.verdict for outcome in found.values()} == {Verdict.FAIL}


@pytest.mark.parametrize("name", sorted(name for name, (model, _) in embedded().items() if model.directions))
def test_an_error_in_the_direction_of_a_known_fault_fails_and_names_it(name: str) -> None:
    """Of the faults that the suite says it could see, the faintest, added to an honest engine's rounding."""
    working, suite = bench(name), embedded()[name][1]
    honest = outcomes(name, working)["test_error_is_no_known_fault"]
    assert honest.verdict is Verdict.PASS, honest.message
    case = suite("test_error_is_no_known_fault")
    case.bench = working
    case.run()
    unseen = uncovered(case.judgements[-1])
    seen = {fault: found for fault, found in working.directions.items() if found.any() and fault not in unseen}
    faintest = min(seen, key=lambda fault: float(np.nansum(seen[fault].astype(np.float64) ** 2)))
    asked = next(each for each, wants in suite.observations().items() if wants.yardstick)

    def faulty(each: str, found: Any) -> Any:
        if {"decoded": "prefilled"}.get(each, each) != asked:
            return found
        values = np.array(found.values, dtype=np.float64)
        moved = values[..., 0] if issubclass(suite, GreedyText) else values
        if suite.role == "rerank.decoder":
            moved = values[:, 0]
        moved += working.directions[faintest]
        return type(found)(**{**vars(found), "values": values})

    found = outcomes(name, bench(name, alter=faulty))["test_error_is_no_known_fault"]
    assert found.verdict is Verdict.FAIL and f"c of {faintest} is" in found.message, found.message


@pytest.mark.parametrize("name", sorted(embedded()))
def test_three_times_the_rounding_fails(name: str) -> None:
    reference, _ = recorded(name, "bfloat16", "eager")

    def noisier(asked: str, honest: object) -> object:
        values = getattr(honest, "values", None)
        if values is None:
            return honest
        r = reference["prefilled" if asked == "decoded" else asked].values
        return type(honest)(**{**vars(honest), "values": r + 3 * (np.asarray(values) - r)})

    found = outcomes(name, bench(name, alter=noisier))
    assert Verdict.FAIL in {outcome.verdict for outcome in found.values()}
