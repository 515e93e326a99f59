"""One SDPA kernel and no other, and flex_attention, each proved by what ran."""

from __future__ import annotations

from typing import Any

import pytest
from test_reference import embedded

from conformance.runner import LoadRequest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

import torch  # noqa: E402

from conformance.engines.chosen_kernels import KERNELS, registered, spelt  # noqa: E402
from conformance.engines.compiled import FLEX, CompiledCounter, never_unfused  # noqa: E402
from conformance.engines.transformers import TransformersRunner  # noqa: E402

TEXTS = ("one two three", "one two three", "seven")


def embedded_with(attention: str, **options: Any) -> Any:
    model = embedded()["embedding-qwen3"][0]
    request = LoadRequest(
        model.name, str(model.folder), "embedding.last", "cpu", attention, "float32", {"pooling": "last"}, options
    )
    with TransformersRunner(request) as runner:
        return runner.embed(TEXTS)


def test_the_one_kernel_runs_and_is_named_as_it_was_asked_for() -> None:
    free, chosen = embedded_with("sdpa"), embedded_with("sdpa:math")
    assert set(free.effective.kernels) == {"aten::_scaled_dot_product_flash_attention_for_cpu"}
    assert set(chosen.effective.kernels) == {"aten::_safe_softmax"}
    assert chosen.effective.attention == "sdpa:math"
    assert abs(free.values - chosen.values).max() < 1e-6


def test_a_kernel_that_cannot_run_is_an_error_and_no_other_kernel_runs() -> None:
    with pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"):
        embedded_with("sdpa:cudnn")


def test_kernels_that_take_no_mask_get_batches_of_one_length() -> None:
    found = embedded_with("sdpa:flash", batch="unpadded")
    assert found.effective.forwards == 2  # two lengths
    assert abs(found.values - embedded_with("sdpa").values).max() < 1e-6


@pytest.mark.parametrize("name", [*KERNELS, "sdpa", "eager"])
def test_names_come_back_as_they_were_given(name: str) -> None:
    assert spelt(registered(name)) == name


def test_calls_of_compiled_attention_are_counted_and_the_function_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.integrations import flex_attention

    plain = lambda *arguments: arguments  # noqa: E731
    monkeypatch.setattr(flex_attention, "compile_friendly_flex_attention", plain)
    with CompiledCounter("cpu") as counter:
        assert flex_attention.compile_friendly_flex_attention(1, 2) == (1, 2)
    assert counter.counts == {f"compiled {FLEX}": 1}
    assert flex_attention.compile_friendly_flex_attention is plain


def test_where_torch_would_give_up_compiling_it_raises_instead() -> None:
    settings = torch._dynamo.config
    with settings.patch(recompile_limit=settings.recompile_limit, fail_on_recompile_limit_hit=False):
        never_unfused()
        settings.recompile_limit = 1
        compiled = torch.compile(lambda values, factor: values * factor, backend="eager", dynamic=False)
        compiled(torch.ones(2), 2)
        with pytest.raises(Exception, match="recompile_limit"):
            compiled(torch.ones(3), 3)
