"""The suite `attention` passes honest kernels, and every promise rejects the kernels that break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_kernels import KERNEL, Flash, KernelInNumpy, changed, with_nan_in_a_tile

from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.judgement import Judgement
from conformance.profile import Claim
from conformance.runner import RAISED, AttentionCall
from conformance.suite import Answers, Ask, Bench
from conformance.verdict import Verdict
from suites import attention
from suites.inputs.attention import LENGTHS, SIZES, AttentionInputs, Form, inputs

EVERYTHING = Claim(
    "toy",
    "plain",
    {"bfloat16": "fused", "float16": "fused", "float32": "ieee"},
    dict.fromkeys(("bfloat16", "float16", "float32"), (KERNEL,)),
    page_sizes=(16,),
    softcap=True,
    window=True,
    deterministic=True,
    masked_rows="zero",
    denormals=True,
)

SMALL = replace(
    inputs(),
    ordinary=(
        Form((4, 2), 129, 129, 64),
        Form((4, 2), 129, 129, 64, "peaky"),
        Form((14, 2), 33, 129, 40, "peaky"),
        Form((8, 1), 1, 500, 128, batch=4),
        Form((4, 2), 64, 129, 80, causal=False),
    ),
    hard=(
        Form((4, 2), 129, 129, 64, "structured"),
        Form((5, 1), 129, 129, 64, "rising"),
        Form((4, 2), 65, 65, 64, "huge"),
        Form((4, 2), 65, 65, 64, "tiny"),
    ),
    repeats=3,
)
"""Fewer and smaller calls of numbers: kernels in numpy are slow."""


def judged(
    kernel: Callable[[AttentionCall, str], Any],
    dtype: str = "bfloat16",
    *,
    claim: Claim = EVERYTHING,
    asked: AttentionInputs = SMALL,
    tests: tuple[str, ...] = (),
) -> dict[str, tuple[Outcome, list[Judgement]]]:
    """Every promise's outcome, by the test's name without `test_`."""
    runner: Any = KernelInNumpy(kernel, dtype)

    def ask(name: str) -> Any:
        none: Any = None
        return getattr(attention.Attention, name)(Ask(runner, asked, {}, {}, none, none, none, claim))

    none: Any = Answers(lambda name: None)
    bench = Bench(
        Answers(ask), none, none, asked, dtype, claim.precision[dtype], "plain", claim.kernels[dtype], none, claim=claim
    )
    found = {}
    for test in tests or attention.Attention.promises():
        case = attention.Attention(test)
        case.bench = bench
        recorder = Recorder()
        case.run(recorder)
        found[test.removeprefix("test_")] = outcome_of(recorder.error), case.judgements
    return found


def broken(found: dict[str, tuple[Outcome, list[Judgement]]]) -> dict[str, str]:
    return {test: outcome.message for test, (outcome, _) in found.items() if outcome.verdict is not Verdict.PASS}


@pytest.mark.parametrize("dtype", EVERYTHING.precision)
def test_an_honest_kernel_keeps_every_promise(dtype: str) -> None:
    assert broken(judged(Flash(), dtype)) == {}


WRONG = {
    "sees the key behind": (Flash(later=1), {"queries_see_their_keys", "queries_see_their_windows"}),
    "misses its own key": (Flash(later=-1), {"queries_see_their_keys", "queries_see_their_windows"}),
    "window one wider": (Flash(wider=1), {"queries_see_their_windows", "sliding_outputs_agree"}),
    "window one narrower": (Flash(wider=-1), {"queries_see_their_windows", "sliding_outputs_agree"}),
    "scale off by a hundredth": (Flash(scale=1.01), {"outputs_agree", "scaled_outputs_agree"}),
    "head map in tiles": (Flash(tiled=True), {"heads_are_mapped", "outputs_agree"}),
    "tail not masked": (Flash(tail=True), {"ones_give_one", "outputs_agree"}),
    "padding seen": (Flash(padding=True), {"queries_see_no_padding", "ragged_outputs_agree"}),
    "accumulator in the dtype": (Flash(narrow_sum=True), {"outputs_agree"}),
    "weights in eight bits": (Flash(narrow_weights=True), {"ones_give_one", "outputs_agree"}),
    "softcap dropped": (Flash(capped=False), {"capped_outputs_agree"}),
    "last row misses itself": (Flash(blind=True), {"queries_see_their_keys"}),
    "one stale key": (Flash(stale=7), {"queries_see_their_keys", "outputs_agree"}),
    "last page read from the first": (Flash(page=64), {"keys_are_found", "outputs_agree"}),
    "half a percent too much": (Flash(gain=1.005), {"outputs_agree"}),
    "a tile not written": (changed(with_nan_in_a_tile), {"numbers_are_finite", "repeats_agree"}),
    "a tile of zeros": (
        changed(lambda x, call: np.where(np.arange(x.shape[2])[:, None] // 64 == 1, 0, x)),
        {"ones_give_one", "outputs_agree"},
    ),
}


@pytest.mark.parametrize(("kernel", "promises"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_kernel_breaks_the_promises_that_are_about_it(kernel: Any, promises: set[str]) -> None:
    found = judged(kernel, tests=tuple(f"test_{promise}" for promise in sorted(promises)))
    verdicts = {test: outcome.verdict for test, (outcome, _) in found.items()}
    assert verdicts == dict.fromkeys(promises, Verdict.FAIL), {t: o.message for t, (o, _) in found.items()}


@pytest.mark.parametrize(
    "fault",
    [
        "shape is [1, 4, 1, 64], but should be [1, 4, 500, 64]",
        "dtype is float32, but should be bfloat16",
        "device is meta, but should be cpu",
        "wrote into its key, but inputs should be left as they are",
        RAISED + "ValueError: head size 40 is not taken [flash.py, line 7]",
    ],
)
def test_an_answer_at_fault_breaks_every_promise_with_the_sentence_and_the_call(fault: str) -> None:
    found = judged(lambda call, dtype: fault)
    assert {outcome.verdict for outcome, _ in found.values()} == {Verdict.FAIL}
    message = found["calls_are_answered"][0].message
    assert f"{fault} (batch 1, 4 heads on 2, 129 queries of 129 keys, size 64, causal)" in message


def test_a_kernel_that_answers_otherwise_now_and_then_is_not_equal_but_may_agree() -> None:
    answered = iter(range(10_000))

    def kernel(call: AttentionCall, dtype: str) -> Any:
        x = Flash()(call, dtype)
        x[0, 0, 0, 0] *= 1 + 2.0**-7 * (next(answered) % 3 == 2)
        return x

    found = judged(kernel, tests=("test_repeats_agree", "test_repeats_are_equal"))
    assert {test: outcome.verdict for test, (outcome, _) in found.items()} == {
        "repeats_agree": Verdict.PASS,
        "repeats_are_equal": Verdict.FAIL,
    }
    assert "1 of 3 answers differ from the first" in found["repeats_are_equal"][0].message


def test_a_tile_that_is_not_written_once_breaks_the_promise_of_repeats() -> None:
    answered = iter(range(10_000))

    def kernel(call: AttentionCall, dtype: str) -> Any:
        x = Flash()(call, dtype)
        return with_nan_in_a_tile(x, call) if next(answered) == 4 else x

    found = judged(kernel, tests=("test_repeats_agree",))
    assert "in 1 of 3 repeats" in found["repeats_agree"][0].message


def test_claims_of_masked_rows_and_denormals_are_held_against_the_kernel() -> None:
    def kernel(call: AttentionCall, dtype: str) -> Any:
        x = Flash()(call, dtype)
        if call.lengths is not None:
            x = np.where(x == 0, 0.5, x)
        return np.where(np.abs(x) < 2.0**-126, 0, x)

    found = judged(kernel, tests=("test_masked_rows_are_zero", "test_denormals_stay"))
    assert {outcome.verdict for outcome, _ in found.values()} == {Verdict.FAIL}
    assert "sees no key, but head 0 gives [0.5 0.5 0.5]" in found["masked_rows_are_zero"][0].message


def test_a_failure_names_row_head_query_and_key_and_keeps_the_call() -> None:
    ((outcome, judgements),) = judged(Flash(later=1), tests=("test_queries_see_their_keys",)).values()
    assert "row 0, head 0, query 0 must see keys 0 to 0, but sees key 1, which it must not" in outcome.message
    rows = judgements[-1].rows
    assert {"query", "key", "value", "x", "r"} <= set(rows)
    assert len({array.shape[0] for array in rows.values()}) == 1


def test_a_failure_of_numbers_keeps_the_reference_and_the_ideal() -> None:
    ((outcome, judgements),) = judged(Flash(scale=1.01), tests=("test_outputs_agree",)).values()
    assert "5 calls, bfloat16 claimed fused" in outcome.message and "size" in outcome.message
    rows = judgements[-1].rows
    assert rows["x"].shape == rows["r"].shape == rows["e"].shape == rows["query"].shape


def test_only_what_is_claimed_is_asked_for() -> None:
    asked = inputs()
    claim = replace(EVERYTHING, head_sizes=(64, 128), batch=("unpadded",), encoder=False)
    calls = [
        *asked.numeric((*asked.ordinary, *asked.hard, *asked.ragged), "float32", claim),
        *asked.visible((*asked.square, *asked.padded), "float32", claim),
        *asked.ones("float32", claim),
        *asked.pointed("float32", claim).calls,
    ]
    assert {call.query.shape[3] for call in calls} == {64, 128}
    assert all(call.causal and call.lengths is None and call.query.shape[2] > 1 for call in calls)


def test_calls_that_no_claim_leaves_show_nothing() -> None:
    claim = replace(EVERYTHING, batch=("decode",))
    asked = replace(SMALL, ordinary=SMALL.ordinary[:1])
    found = judged(Flash(), claim=claim, asked=asked, tests=("test_outputs_agree", "test_calls_are_answered"))
    assert {outcome.verdict for outcome, _ in found.values()} == {Verdict.UNDERPOWERED}


def test_shapes_cover_sizes_groups_and_lengths() -> None:
    for shapes in ("quick", "full"):
        asked = inputs(shapes=shapes)
        forms = (*asked.square, *asked.ordinary, *asked.hard)
        assert {form.size for form in forms} == set(SIZES)
        assert {form.heads[0] // form.heads[1] for form in forms} == {1, 2, 5, 7, 8}
        assert set(LENGTHS) <= {form.keys for form in forms}
        assert any(form.queries == 1 for form in forms) and any(1 < form.queries < form.keys for form in forms)
    assert len(inputs(shapes="full").ordinary) > 100


def test_fresh_inputs_are_four_times_as_many_other_numbers() -> None:
    first, fresh = inputs(), attention.Attention.fresh(2**40, 4)
    for forms in ("ordinary", "ragged"):
        own, other = (each.numeric(getattr(each, forms), "float32", None) for each in (first, fresh))
        for one, more in zip(own, other, strict=True):
            assert len(more.query) == 4 * len(one.query) and more.query.shape[1:] == one.query.shape[1:]
            assert not np.array_equal(more.query[0], one.query[0])


@pytest.mark.parametrize("dtype", EVERYTHING.precision)
def test_inputs_are_numbers_of_the_served_dtype(dtype: str) -> None:
    from conformance.criteria.rounding import rounded

    asked = inputs()
    forms = (*asked.ordinary, *asked.hard, *asked.capped, *asked.scaled, *asked.repeated)
    for call in (*asked.numeric(forms, dtype, None), *asked.pointed(dtype, None).calls, *asked.denormal(dtype, None)):
        for tensor in (call.query, call.key, call.value):
            assert tensor.dtype == np.float32 and np.array_equal(rounded(tensor, dtype), tensor)
            assert np.isfinite(tensor).all()
