"""Keys laid out in pages: every key on one slot of its own, nothing in order, and back where it came from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from paged_kernels import PagedKernel, in_numpy  # noqa: E402
from test_suite_attention import EVERYTHING, judged  # noqa: E402

from conformance.engines.paged_calls import HUGE, Packed, counted, filled_up, lay_out, poisoned  # noqa: E402
from conformance.runner import AttentionCall  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from suites.inputs.attention import inputs  # noqa: E402
from suites.inputs.attention_forms import on_pages, windowed_on_pages  # noqa: E402

quick = settings(max_examples=60, deadline=None)
rows = st.lists(st.integers(1, 90), min_size=1, max_size=6)


@quick
@given(rows, st.sampled_from([1, 2, 7, 16, 64]))
def test_every_key_has_a_slot_of_its_own_on_its_rows_pages(lengths: list[int], size: int) -> None:
    pages = lay_out(lengths, size)
    slots = pages.slots([0] * len(lengths), lengths)
    assert len(set(slots)) == sum(lengths) == len(slots)
    assert slots.min() >= size  # page 0 is nobody's
    assert slots.max() < pages.count * size
    for row, part in enumerate(np.split(slots, np.cumsum(lengths)[:-1])):
        for key, slot in enumerate(part):
            assert (pages.tables[row, key // size], key % size) == divmod(int(slot), size)


@quick
@given(rows, st.sampled_from([1, 2, 7, 16, 64]))
def test_pages_of_a_row_are_in_no_order_and_some_are_nobodys(lengths: list[int], size: int) -> None:
    pages = lay_out(lengths, size)
    for row, length in enumerate(lengths):
        own = pages.tables[row, : -(-length // size)]
        steps = np.diff(own)
        assert len(steps) == 0 or (steps < 0).any()
        assert len(steps) < 2 or (steps > 0).any()
        assert (pages.tables[row, len(own) :] == pages.nobodys).all()
    assert pages.nobodys not in pages.owned and 0 not in pages.owned
    assert len(pages.owned) < pages.count / 2
    assert pages.tables.tobytes() == lay_out(lengths, size).tables.tobytes()


def test_rows_are_interleaved() -> None:
    pages = lay_out([500, 500], 16)
    of_first = np.isin(pages.owned, pages.tables[0])
    assert np.abs(np.diff(of_first.astype(int))).sum() > 10


@pytest.mark.parametrize(("lengths", "size"), [([], 16), ([3, 0], 16), ([3], 0)])
def test_pages_without_keys_are_refused(lengths: list[int], size: int) -> None:
    with pytest.raises(ValueError, match="each should be 1 or more"):
        lay_out(lengths, size)


def test_a_pool_is_nan_where_nobody_owns_it_and_huge_where_keys_may_come() -> None:
    pages = lay_out([33, 5], 16)
    pool = poisoned(torch.zeros(pages.count, 16, 2, 8), pages)
    owned = np.isin(np.arange(pages.count), pages.owned)
    assert torch.isnan(pool[~owned]).all()
    assert (pool[owned] == HUGE).all()
    assert torch.isfinite(torch.tensor(HUGE, dtype=torch.float16))


def call_of(lengths: list[int], queries: int, keys: int) -> tuple[AttentionCall, Any, Any]:
    draw = np.random.default_rng(3)
    query = draw.standard_normal((len(lengths), 4, queries, 8)).astype(np.float32)
    key = draw.standard_normal((len(lengths), 2, keys, 8)).astype(np.float32)
    return AttentionCall(query, key, key, lengths=tuple(lengths)), torch.from_numpy(query), torch.from_numpy(key)


@quick
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(1, 20))
def test_what_is_packed_comes_back_in_its_place_without_padding(lengths: list[int], queries: int) -> None:
    queries = min(queries, max(lengths))
    call, query, key = call_of(lengths, queries, max(lengths))
    packed = Packed.of(call)
    tokens = packed.queries(query)
    assert tokens.shape == (sum(packed.counts), 4, 8)
    back = packed.unpacked(tokens.flatten(1), query.shape)
    for row, length in enumerate(lengths):
        n = min(queries, length)
        assert torch.equal(back[row, :, queries - n :], query[row, :, queries - n :])
        assert (back[row, :, : queries - n] == 0).all()
    assert [a + b for a, b in zip(packed.before, packed.counts, strict=True)] == lengths
    halves = [packed.keys(key, [0] * len(lengths), packed.before), packed.keys(key, packed.before, lengths)]
    assert sum(map(len, halves)) == sum(lengths)
    first = key[0, :, : lengths[0]].transpose(0, 1)
    assert torch.equal(torch.cat([halves[0][: packed.before[0]], halves[1][: packed.counts[0]]]), first)


def test_an_answer_of_another_dtype_stays_one() -> None:
    call, query, _ = call_of([5, 3], 2, 5)
    packed = Packed.of(call)
    assert packed.unpacked(packed.queries(query).to(torch.float64).flatten(1), query.shape).dtype == torch.float64


def test_queries_are_filled_up_for_encoders_in_front_of_the_calls_own() -> None:
    call, query, _ = call_of([5, 3], 2, 5)
    every = filled_up(query, 5)
    assert torch.equal(every[:, :, 3:], query) and (every[:, :, :3] == 0).all()
    assert Packed.whole(call).queries(every).shape == (8, 4, 8)


def test_two_backends_that_answered_are_both_named() -> None:
    ran = {("FLASH", "a.Flash"): 2, ("TRITON", "a.Triton"): 1}
    effective = counted(ran, "bfloat16", [(), (), (), ("raised ValueError: head size 40 [x.py, line 1]",)])
    assert (effective.attention, effective.forwards) == ("FLASH+TRITON", 3)
    assert effective.kernels == {"a.Flash": 2, "a.Triton": 1}


@pytest.mark.parametrize("size", [1, 16, 48, 64, 128])
def test_calls_in_pages_prefill_extend_and_decode_at_edges_of_pages(size: int) -> None:
    forms = on_pages(size)
    assert {form.page_size for form in (*forms, *windowed_on_pages(size))} == {size}
    assert any(form.queries == form.keys for form in forms)
    assert any(1 < form.queries < form.keys and (form.keys - form.queries) % size == 0 for form in forms)
    assert any(form.queries == 1 and form.lengths for form in forms)
    lengths = {n for form in forms for n in form.lengths or (form.keys,)}
    assert {n % size for n in lengths} >= {0, 1 % size, size - 1}


PAGED = tuple(
    f"test_{name}"
    for name in (
        "queries_see_their_pages",
        "keys_are_found_on_pages",
        "paged_outputs_agree",
        "paged_sliding_outputs_agree",
    )
)
CLAIM = replace(EVERYTHING, page_sizes=(16, 64))


def verdicts(kernel: PagedKernel, dtype: str = "bfloat16", claim: Any = CLAIM) -> dict[str, Verdict]:
    found = judged(in_numpy(kernel), dtype, claim=claim, asked=inputs(), tests=PAGED)
    return {test: outcome.verdict for test, (outcome, _) in found.items()}


@pytest.mark.parametrize("dtype", EVERYTHING.precision)
def test_a_right_kernel_in_pages_keeps_every_promise(dtype: str) -> None:
    assert set(verdicts(PagedKernel(), dtype).values()) == {Verdict.PASS}


WRONG = {
    "the table is ignored": PagedKernel(ignores_table=True),
    "the page behind each": PagedKernel(next_page=True),
    "off by one at a page's edge": PagedKernel(edge=True),
    "a slot behind the row's keys": PagedKernel(beyond=1),
    "this step's keys are not written": PagedKernel(stale=True),
    "the first row's pages for all": PagedKernel(first_row=True),
}


@pytest.mark.parametrize("kernel", WRONG.values(), ids=list(WRONG))
def test_a_kernel_that_reads_pages_wrongly_breaks_every_promise_about_them(kernel: PagedKernel) -> None:
    assert set(verdicts(kernel, claim=replace(CLAIM, page_sizes=(16,))).values()) == {Verdict.FAIL}


def test_a_kernel_that_is_wrong_in_one_page_size_alone_is_found() -> None:
    right = in_numpy(PagedKernel())
    wrong = in_numpy(PagedKernel(edge=True))
    found = judged(
        lambda call, dtype: (wrong if call.page_size == 64 else right)(call, dtype),
        claim=CLAIM,
        asked=inputs(),
        tests=("test_keys_are_found_on_pages",),
    )
    ((outcome, _),) = found.values()
    assert outcome.verdict is Verdict.FAIL
    assert "pages of 64" in outcome.message
