"""Every suite passes an honest engine and fails every broken output that its observations can carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from broken_outputs import ALL, Break, garbage_after_the_first_divergence
from replay import bench, embedded, outcomes, recorded

from conformance.reference.compute import YARDSTICKS
from conformance.verdict import Verdict

CLAIMS = [(dtype, precision) for dtype, precision in YARDSTICKS]


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
