"""What vLLM's configuration is made of for a call without a model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from conformance.engines.vllm_attention import Shape, arguments_for  # noqa: E402

SHAPE = Shape(14, 2, 96, 0.1, None, None, False, 64)
HEADS = {"num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": 96}


def test_a_call_decides_heads_and_pages_and_leaves_the_rest() -> None:
    given = {"model": "folder", "block_size": 128, "hf_overrides": {"sliding_window": 64, "head_dim": 8}}
    assert arguments_for(given, SHAPE) == {
        "model": "folder",
        "block_size": 64,
        "hf_overrides": {"sliding_window": 64, **HEADS},
    }
    assert given["hf_overrides"] == {"sliding_window": 64, "head_dim": 8}


def test_a_call_that_names_no_page_size_has_the_engines() -> None:
    assert arguments_for({"block_size": 128}, SHAPE._replace(page_size=None))["block_size"] == 128
    assert arguments_for({}, SHAPE._replace(page_size=None)) == {"hf_overrides": HEADS}


def test_overrides_that_are_a_function_are_refused() -> None:
    with pytest.raises(TypeError, match="hf_overrides is a function"):
        arguments_for({"hf_overrides": lambda config: config}, SHAPE)
