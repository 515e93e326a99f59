"""What is said of a device that multiplies or attends wrongly, in part, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stand_in_torch as torch

from conformance.doctor.arithmetic import check, compare, exact_inputs
from conformance.doctor.asking import NoAnswer
from conformance.doctor.finding import Finding, Status, exit_code

CLAIMS = {"bfloat16": ["fused"], "float16": ["eager"]}


def device(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> Any:
    """Zenith's device, asked without a worker."""
    monkeypatch.setattr(torch, "FAULT", fault)

    def ask(function: str, kind: str, dtype: str, *inputs: Any) -> Any:
        def there(array: Any) -> torch.Tensor:
            return torch.from_numpy(array).to(kind, dtype)

        if function == "matmul":
            return {"value": torch.matmul(*map(there, inputs)).numpy()}
        query, key, value, mask, causal = inputs
        seen = None if mask is None else torch.from_numpy(mask)
        return {"value": torch.attend(there(query), there(key), there(value), seen, causal).numpy()}

    return ask


def findings(ask: Any) -> dict[str, Finding]:
    return {f"{each.check} {each.found.split(':')[0]}": each for each in check(ask, "zenith", CLAIMS, [64, 128])}


def test_an_honest_device_is_right_in_every_dtype_of_the_plan_and_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(device(monkeypatch))
    assert list(found) == [
        f"{op} {dtype}" for dtype in ("float32", "bfloat16", "float16") for op in ("matmul", "attention")
    ]
    assert {each.status for each in found.values()} == {Status.OK}
    assert all(0 < each.figures["error_over_bound"] <= 1 for each in found.values())


def test_one_wrong_element_is_named_with_what_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [each for each in check(device(monkeypatch, "matmul"), "zenith", {}, [64]) if each.check == "matmul"]
    assert found[0].status is Status.PROBLEM and found[0].wrong_numbers
    assert "element [64, 128] is " in found[0].found and "off by 1)" in found[0].found
    assert exit_code(found) == 1


@pytest.mark.parametrize(
    ("fault", "operation", "form"),
    [("mask", "attention", "padded and causal"), ("attention", "attention", ""), ("nan", "matmul", "not finite")],
)
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: str, operation: str, form: str) -> None:
    wrong = [each for each in findings(device(monkeypatch, fault)).values() if each.wrong_numbers]
    assert {each.check for each in wrong} == {operation}
    assert form in wrong[0].found


def test_tf32_is_noticed_and_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(device(monkeypatch, "tf32"))["matmul float32, 65x67 by 67x129"]
    assert found.wrong_numbers and "TF32" in found.found and "unset" in found.advice
    assert 1e-4 < found.figures["relative_rms_error"] < 1e-3


def test_tf32_that_the_profile_claims_of_products_is_right_for_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = device(monkeypatch, "tf32")
    for matmul, status in (("tf32", Status.OK), ("ieee", Status.PROBLEM)):
        found = {each.check: each.status for each in check(ask, "zenith", {"float32": ["ieee"]}, [64], matmul)}
        assert found["matmul"] is status


def test_tf32_that_the_profile_claims_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(check(device(monkeypatch, "tf32"), "zenith", {"float32": ["tf32"]}, [64]))
    assert [each.status for each in found] == [Status.OK, Status.OK]


def test_an_answer_of_another_shape_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(device(monkeypatch, "shape"))["matmul float32"]
    assert "the answer has the shape (255, 256), but should have (256, 256)" in found.found
    assert exit_code([found]) == 6


def test_a_question_without_an_answer_is_a_problem_and_the_others_are_asked() -> None:
    asked = []

    def ask(function: str, *arguments: Any) -> NoAnswer:
        asked.append(function)
        return NoAnswer("the worker was killed by SIGSEGV")

    found = list(check(ask, "zenith", {}, [64, 128]))
    assert asked == ["matmul", "attention"], "a kernel that kills its worker is not asked again and again"
    assert all("SIGSEGV" in each.found and not each.wrong_numbers for each in found)
    assert exit_code(found) == 6


def test_a_difference_of_nothing_is_right_and_an_infinite_one_is_not() -> None:
    right = np.ones((2, 2))
    assert compare("x", right, right, right).share == 0
    broken = np.array([[1, np.inf], [1, 1]])
    assert compare("x", broken, right, right).share == float("inf")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_inputs_for_16_bit_are_exact_in_it(dtype: str) -> None:
    numbers = exact_inputs(np.random.default_rng(1), (1000,), dtype)
    assert (torch.rounded(numbers, dtype) == numbers).all() and len(set(numbers.tolist())) > 100
