"""A transformers model's attention function, called alone, computes what the call says, on every implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from conformance.criteria.attention_math import counted, exact, visible  # noqa: E402
from conformance.criteria.rounding import rounded  # noqa: E402
from conformance.engines.model_attention import ModelAttention  # noqa: E402
from conformance.engines.transformers import TransformersRunner  # noqa: E402
from conformance.runner import AttentionCall, LoadRequest, NotSupported  # noqa: E402

pytestmark = pytest.mark.torch

FOLDER = Path(__file__).parents[1] / "suites" / "checkpoints" / "generation-qwen3"
KERNELS = {"eager": "aten::_softmax", "sdpa": "aten::_scaled_dot_product_flash_attention_for_cpu"}


def call(heads: tuple[int, int], queries: int, keys: int, size: int = 16, batch: int = 1, **how: Any) -> AttentionCall:
    rng = np.random.default_rng(queries)
    batch = len(how["lengths"]) if how.get("lengths") else batch
    shapes = [(batch, heads[0], queries, size), *[(batch, heads[1], keys, size)] * 2]
    query, key, value = (rounded(rng.standard_normal(shape), "bfloat16").astype(np.float32) for shape in shapes)
    return AttentionCall(query, key, value, **how)


CALLS = {
    "causal": call((4, 2), 17, 17),
    "chunk": call((4, 2), 5, 17),
    "decode": call((7, 1), 1, 17, batch=2),
    "bidirectional": call((5, 1), 17, 17, causal=False),
    "bidirectional chunk": call((4, 4), 5, 17, causal=False),
    "ragged": call((4, 2), 17, 17, lengths=(17, 5, 1)),
    "ragged decode": call((4, 2), 1, 17, lengths=(17, 5)),
    "ragged and bidirectional": call((4, 2), 17, 17, causal=False, lengths=(17, 5)),
    "window": call((4, 2), 17, 17, window=4),
    "window as long as all": call((4, 2), 17, 17, window=17),
    "window of a chunk": call((4, 2), 5, 17, window=4),
    "window in a decode": call((4, 2), 1, 17, lengths=(17, 5), window=4),
    "window without causal": call((4, 2), 17, 17, causal=False, window=4),
    "scale": call((4, 2), 17, 17, scale=1.0),
}


def runner(attention: str, dtype: str = "float32") -> TransformersRunner:
    return TransformersRunner(LoadRequest("generation-qwen3", str(FOLDER), "attention", "cpu", attention, dtype))


@pytest.mark.parametrize("attention", KERNELS)
def test_each_call_is_answered_with_exact_attention(attention: str) -> None:
    with runner(attention) as loaded:
        found = loaded.attention(list(CALLS.values()), poison=True)
    assert not any(found.faults)
    for name, asked, value in zip(CALLS, CALLS.values(), found.values, strict=True):
        inside = np.broadcast_to(counted(asked)[:, None, :, None], value.shape)
        assert np.abs(value - exact(asked))[inside].max() < 2e-6, name
    ran = found.effective
    assert (ran.kernels, ran.layers, ran.forwards) == ({KERNELS[attention]: len(CALLS)}, 1, len(CALLS))
    assert (ran.attention, ran.dtype, ran.vision) == (attention, "float32", None)


def test_eager_attention_takes_a_softcap_and_sdpa_says_that_it_does_not() -> None:
    capped, plain = call((4, 2), 17, 17, scale=2.0, softcap=2.0), call((4, 2), 17, 17)
    with runner("eager") as loaded:
        found = loaded.attention([capped])
    assert np.abs(found.values[0] - exact(capped)).max() < 2e-6
    with runner("sdpa") as loaded:
        found = loaded.attention([capped, plain])
    assert "ValueError: transformers' sdpa attention takes no softcap" in found.faults[0][0]
    assert not found.faults[1] and np.abs(found.values[1] - exact(plain)).max() < 2e-6
    assert found.effective.forwards == 1


def test_repeats_answer_each_call_so_often() -> None:
    with runner("sdpa", "bfloat16") as loaded:
        found = loaded.attention([CALLS["causal"], CALLS["decode"]], repeats=3, poison=True)
    assert [value.shape for value in found.values] == [(1, 4, 17, 16)] * 3 + [(2, 7, 1, 16)] * 3
    assert found.effective.forwards == 6 and found.effective.dtype == "bfloat16"
    assert np.array_equal(found.values[0], found.values[2])


def test_masks_are_left_out_where_the_model_leaves_them_out() -> None:
    with runner("sdpa") as loaded:
        kernel = ModelAttention(loaded.model)

        def mask(asked: AttentionCall) -> Any:
            return kernel._mask(torch.from_numpy(asked.query), torch.from_numpy(asked.key), asked)

        for name in ("causal", "decode", "bidirectional"):
            assert mask(CALLS[name]) is None, name
        for name in ("chunk", "window", "ragged"):
            assert mask(CALLS[name]).dtype == torch.bool, name
        shown = mask(CALLS["window of a chunk"])[0, 0].numpy()
        assert np.array_equal(shown, visible(CALLS["window of a chunk"])[0])


def test_a_model_without_attention_layers_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="Linear has no attention layer that can be called alone"):
        ModelAttention(torch.nn.Linear(1, 1))
