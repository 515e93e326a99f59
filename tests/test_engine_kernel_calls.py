"""Attention calls on one kernel: what is wrong with an answer before its numbers are looked at."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from conformance.engines.kernel_calls import perform  # noqa: E402
from conformance.runner import RAISED, AttentionCall  # noqa: E402


def call(heads: int = 4, kv_heads: int = 2, queries: int = 64, keys: int = 64, size: int = 64) -> AttentionCall:
    draw = np.random.default_rng(7)
    shapes = [(2, heads, queries, size), (2, kv_heads, keys, size), (2, kv_heads, keys, size)]
    return AttentionCall(*(draw.integers(-8, 9, shape).astype(np.float32) / 8 for shape in shapes))


def right(query: Any, key: Any, value: Any, _: AttentionCall) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def one(kernel: Any, dtype: Any = torch.bfloat16, device: str = "cpu", **arguments: Any) -> tuple[Any, tuple[str, ...]]:
    values, faults = perform([call()], kernel, device=device, dtype=dtype, **arguments)
    return values[0], faults[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_answer_has_no_fault_and_comes_back_as_it_was_returned(dtype: Any) -> None:
    value, faults = one(right, dtype)

    query, key, content = (torch.from_numpy(each).to(dtype) for each in (call().query, call().key, call().value))
    assert faults == ()
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, right(query, key, content, call()).float().numpy())


def test_float64_stays_wide() -> None:
    value, faults = one(right, torch.float64)
    assert value.dtype == np.float64
    assert faults == ()


def test_an_answer_that_is_not_contiguous_is_fine() -> None:
    value, faults = one(lambda *given: right(*given).transpose(1, 2).contiguous().transpose(1, 2))
    assert faults == ()
    assert value.shape == (2, 4, 64, 64)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda *given: right(*given).transpose(1, 2), "shape is [2, 64, 4, 64], but should be [2, 4, 64, 64]"),
        (lambda *given: right(*given).float(), "dtype is float32, but should be bfloat16"),
        (lambda *given: right(*given).to("meta"), "device is meta, but should be cpu"),
        (lambda *_: None, "returned None, but should return a torch.Tensor"),
        (lambda *given: (right(*given),), "returned a tuple, but should return a torch.Tensor"),
        (lambda *given: right(*given).to_sparse(), "left tensors that cannot be read: "),
        (lambda query, key, value, c: right(query.mul_(1), key, value.neg_(), c), "wrote into its value"),
    ],
)
def test_what_is_wrong_before_any_number_is_said(kernel: Any, said: str) -> None:
    _, faults = one(kernel)
    assert len(faults) == 1
    assert faults[0].startswith(said)


def test_numbers_far_too_many_are_told_and_not_read() -> None:
    value, faults = one(lambda query, *_: query.flatten()[:1].expand(2, 4, 64, 10**9))
    assert value.size == 0 and faults == ("shape is [2, 4, 64, 1000000000], but should be [2, 4, 64, 64]",)


def test_a_kernel_that_would_end_its_process_is_a_fault_of_its_call() -> None:
    _, faults = one(lambda *_: sys.exit(0))
    assert faults[0].startswith("raised SystemExit: 0")


def test_what_was_written_and_returned_wrongly_are_both_said() -> None:
    _, faults = one(lambda query, key, value, c: query.zero_().float())
    assert faults == (
        "dtype is float32, but should be bfloat16",
        "wrote into its query, but inputs should be left as they are",
    )


def test_an_input_that_holds_nan_and_is_left_alone_was_not_written() -> None:
    given = call()
    given.value[:, :, -1] = np.nan
    _, faults = perform([given], right, device="cpu", dtype=torch.bfloat16)
    assert faults == ((),)


def test_inputs_are_whole_again_after_a_kernel_wrote_into_them() -> None:
    def destroys(query: Any, key: Any, value: Any, c: AttentionCall) -> Any:
        found = right(query, key, value, c)
        query.fill_(9)
        return found

    values, faults = perform([call()], destroys, device="cpu", dtype=torch.float32, repeats=2)
    np.testing.assert_array_equal(values[0], values[1])
    assert len(faults[1]) == 1


def test_what_a_kernel_raises_is_its_calls_fault_and_the_others_are_made() -> None:
    def picky(query: Any, key: Any, value: Any, c: AttentionCall) -> Any:
        if query.shape[2] == 3:
            raise ValueError("no  three\nqueries" + "x" * 900)
        return right(query, key, value, c)

    values, faults = perform([call(), call(queries=3), call()], picky, device="cpu", dtype=torch.float32)
    assert (faults[0], faults[2]) == ((), ())
    assert values[1].size == 0
    (said,) = faults[1]
    assert said.startswith(f"{RAISED}ValueError: no three queriesxxx")
    assert "test_engine_kernel_calls.py, line" in said
    assert len(said) < 800


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("out of memory")])
def test_running_out_of_memory_passes_through(error: Exception) -> None:
    def greedy(*_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        one(greedy)


def test_repeats_come_in_a_row_for_each_call() -> None:
    count = iter(range(100))
    values, faults = perform(
        [call(), call(queries=5)],
        lambda query, *_: torch.full_like(query, next(count)),
        device="cpu",
        dtype=torch.float32,
        repeats=3,
    )
    assert [value.flat[0] for value in values] == [0, 1, 2, 3, 4, 5]
    assert [value.shape[2] for value in values] == [64, 64, 64, 5, 5, 5]
    assert len(faults) == 6


def test_one_buffer_that_is_returned_again_and_again_does_not_change_earlier_values() -> None:
    buffer = torch.zeros(2, 4, 64, 64)
    values, _ = perform([call()], lambda *_: buffer.add_(1), device="cpu", dtype=torch.float32, repeats=3)
    assert [value.flat[0] for value in values] == [1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("queries", "size"), [(17, 40), (64, 64), (500, 128), (1100, 256)])
def test_what_a_kernel_leaves_unwritten_is_nan_in_poisoned_memory(dtype: Any, queries: int, size: int) -> None:
    given = call(queries=queries, keys=1, size=size)
    values, faults = perform(
        [given], lambda query, *_: torch.empty_like(query), device="cpu", dtype=dtype, repeats=12, poison=True
    )
    assert set(faults) == {()}
    shown = [value for value in values if np.isnan(value).mean() > 0.5]
    assert len(shown) >= 6  # nobody can tell the C library which memory to hand out, so not each time
