"""A Python function as an engine: it is found, asked for what it takes, and called with just that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.runner import AttentionCall, LoadRequest, NotSupported

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from conformance.engines import kernel  # noqa: E402

WRONG = "trial_kernels.wrong"


def load(name: str, dtype: str = "float32") -> kernel.KernelRunner:
    return kernel.KernelRunner(LoadRequest("none", "none", "attention", "cpu", name, dtype, options={"kernel": name}))


def call(**arguments: Any) -> AttentionCall:
    draw = np.random.default_rng(3)
    shapes = [(2, 4, 9, 64), (2, 2, 9, 64), (2, 2, 9, 64)]
    query, key, value = (draw.integers(-8, 9, shape).astype(np.float32) / 8 for shape in shapes)
    return AttentionCall(query, key, value, **arguments)


def test_a_call_is_made_and_counted_as_the_functions() -> None:
    name = f"{WRONG}:right"
    with load(name) as runner:
        found = runner.attention([call(), call(causal=False)], repeats=2)
    assert found.faults == ((),) * 4
    assert dict(found.effective.kernels) == {name: 4}
    assert (found.effective.layers, found.effective.forwards, found.effective.attention) == (1, 4, name)
    np.testing.assert_array_equal(found.values[0], found.values[1])
    assert not np.array_equal(found.values[0], found.values[2])


def test_every_argument_that_is_taken_is_given_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def takes_some(query: Any, key: Any, value: Any, lengths: Any = None, *, softcap: Any, own: int = 3) -> Any:
        given.update(lengths=lengths, softcap=softcap, own=own)
        return query

    monkeypatch.setattr("trial_kernels.wrong.takes_some", takes_some, raising=False)
    with load(f"{WRONG}:takes_some") as runner:
        runner.attention([call(causal=False, softcap=20.0, lengths=(9, 4))])
        assert given.pop("lengths").tolist() == [9, 4]
        assert given == {"softcap": 20.0, "own": 3}
        with pytest.raises(NotSupported, match="takes no causal and no window, which this call needs"):
            runner.attention([call(window=3)])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong_dtype", "dtype is float64, but should be bfloat16"),
        ("wrong_device", "device is meta, but should be cpu"),
        ("raises", "raised ValueError: no kernel for"),
    ],
)
def test_what_is_wrong_with_an_answer_is_told(name: str, said: str) -> None:
    with load(f"{WRONG}:{name}", "bfloat16") as runner:
        (faults,) = runner.attention([call()]).faults
    assert [fault[: len(said)] for fault in faults] == [said]


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("trial_kernels.wrong:right", ["causal", "scale"]),
        ("trial_kernels.wrong:fixed_scale", ["causal"]),
        ("docs.examples.tiled_attention:attention", ["causal", "lengths", "scale", "softcap", "window"]),
    ],
)
def test_what_a_function_takes_is_read_from_its_signature(name: str, takes: list[str]) -> None:
    assert kernel.describe(name) == {"takes": takes}


def test_a_function_that_takes_anything_is_given_everything() -> None:
    assert len(kernel.taken(lambda *tensors, **arguments: None)) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trial_kernel.wrong:right", "there is no module 'trial_kernel'; did you mean 'trial_kernels'?"),
        ("trial_kernels.wrogn:right", "there is no module 'trial_kernels.wrogn'; did you mean 'wrong'?"),
        ("trial_kernels.wrong.more:right", "trial_kernels.wrong is a module, not a package"),
        ("zq_nothing_like_it:right", "it is looked for in the current folder and where Python's packages are"),
        ("trial_kernels.wrong:rihgt", "'rihgt'; did you mean 'right'?"),
        ("trial_kernels.wrong:not_a_function", "is a int, but should be a function"),
        ("trial_kernels.wrong:takes_two", "it takes 2 positional arguments, but should take query, key and value"),
        ("trial_kernels.wrong:asks_for_more", "it needs 'cuasal', which it is not given; did you mean 'causal'?"),
        ("torch:add", "its signature cannot be read; wrap it in a function that has one"),
    ],
)
def test_what_is_no_kernel_is_said_with_what_would_be_right(name: str, said: str) -> None:
    found = kernel.describe(name)
    assert said in found["fault"]
    assert found["trace"] == ""


def test_a_module_that_cannot_be_imported_shows_its_own_trace() -> None:
    found = kernel.describe("trial_kernels.broken:attention")
    assert found["fault"] == "trial_kernels.broken cannot be imported: RuntimeError: nvcc not found"
    assert "in compile_kernel" in found["trace"]
    assert "importlib" not in found["trace"]
    assert "engines" not in found["trace"]
