"""The counter of attention operators: it sees what is dispatched, once each, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def _counted(work: Any, device: str = "cpu") -> dict[str, int]:
    import torch

    from conformance.engines.kernels import KernelCounter

    with torch.no_grad(), KernelCounter(device) as counter:
        work()
    return dict(counter.counts)


def _query(torch: Any, dtype: str = "float32") -> Any:
    return torch.randn(2, 4, 16, 64, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_fused_kernel_and_the_eager_softmax_are_told_apart(torch: Any, dtype: str) -> None:
    query = _query(torch, dtype)
    attend = torch.nn.functional.scaled_dot_product_attention
    assert _counted(lambda: attend(query, query, query)) == {"aten::_scaled_dot_product_flash_attention_for_cpu": 1}
    assert _counted(lambda: (torch.softmax(query, -1), query.softmax(-1))) == {"aten::_softmax": 2}


def test_a_fallback_to_the_math_kernel_is_counted_once(torch: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(query, query, query)

    query = _query(torch)
    assert _counted(attend) == {"aten::_safe_softmax": 1}


def test_other_operators_are_not_counted(torch: Any) -> None:
    query = _query(torch)
    assert _counted(lambda: torch.nn.functional.silu(query @ query.transpose(-1, -2)).log_softmax(-1)) == {}


def test_the_answers_are_those_without_a_counter(torch: Any) -> None:
    query, found = _query(torch), []

    def attend() -> None:
        found.append(torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True))
        found.append(torch.softmax(query, -1, dtype=torch.float32))

    attend()
    _counted(attend)
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])


def test_operators_have_their_gradients_again_and_are_counted_no_more(torch: Any) -> None:
    from conformance.engines.kernels import KernelCounter

    with torch.no_grad(), KernelCounter("cpu") as counter:
        pass
    leaf = torch.randn(3, requires_grad=True)
    torch.softmax(leaf, 0)[0].backward()
    assert leaf.grad.abs().sum() > 0
    assert not counter.counts


def test_what_is_raised_while_counting_passes_through_and_leaves_nothing_behind(torch: Any) -> None:
    def fail() -> None:
        torch.softmax(query, -1)
        raise ValueError("the model is at fault")

    query = _query(torch)
    with pytest.raises(ValueError, match="at fault") as kept:  # an error that is kept keeps its frames alive
        _counted(fail)
    assert _counted(lambda: torch.softmax(query, -1)) == {"aten::_softmax": 1}
    assert kept.value


def test_counters_follow_one_another(torch: Any) -> None:
    query = _query(torch)
    for _ in range(3):
        assert _counted(lambda: torch.softmax(query, -1)) == {"aten::_softmax": 1}


def test_what_runs_on_another_device_is_not_counted(torch: Any) -> None:
    query = _query(torch)
    assert _counted(lambda: torch.softmax(query, -1), device="cuda") == {}
