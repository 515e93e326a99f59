"""The transformers runner: what really ran, what it refuses, and how it batches."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from replay import embedded

from conformance.execution.group import parameters
from conformance.runner import LoadRequest, NotSupported, Unavailable

pytestmark = pytest.mark.torch


def _request(name: str, **changes: Any) -> LoadRequest:
    model, suite = embedded()[name]
    folder = changes.pop("folder", model.folder)
    settings = {"device": "cpu", "attention": "eager", "dtype": "float32", "parameters": parameters(model)}
    return LoadRequest(model=name, folder=str(folder), role=suite.role, **(settings | changes))


def _runner(name: str, **changes: Any) -> Any:
    from conformance.engines.transformers import TransformersRunner

    return TransformersRunner(_request(name, **changes))


def _runner_as(role: str, **changes: Any) -> Any:
    from conformance.engines.transformers import TransformersRunner

    return TransformersRunner(replace(_request("reward-qwen3", **changes), role=role))


@pytest.mark.parametrize(
    ("attention", "kernel"),
    [("eager", "aten::_softmax"), ("sdpa", "aten::_scaled_dot_product_flash_attention_for_cpu")],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["reward-qwen3", "rerank-xlmr"])
def test_every_attention_call_is_accounted_for(name: str, attention: str, kernel: str, dtype: str) -> None:
    inputs = embedded()[name][1].inputs()
    with _runner(name, attention=attention, dtype=dtype) as runner:
        found = runner.score_pairs(inputs.pairs[:9]) if "rerank" in name else runner.reward(inputs.conversations[:9])
    ran = found.effective
    assert (ran.attention, ran.dtype) == (attention, dtype)
    assert ran.kernels == {kernel: ran.layers * ran.forwards}
    assert ran.forwards >= 1


def test_another_kernel_shows_as_another_kernel() -> None:
    """SDPA forced onto its math kernel is seen, although the requested attention is still `sdpa`."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with _runner("reward-qwen3", attention="sdpa") as runner, sdpa_kernel(SDPBackend.MATH):
        found = runner.reward(embedded()["reward-qwen3"][1].inputs().conversations[:2])
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" not in found.effective.kernels


def test_the_order_and_the_size_of_batches_change_no_answer() -> None:
    inputs = embedded()["rerank-xlmr"][1].inputs()
    with _runner("rerank-xlmr") as one, _runner("rerank-xlmr", options={"batch_size": 1}) as other:
        batched, alone = one.score_pairs(inputs.pairs[:20]), other.score_pairs(inputs.pairs[:20])
    assert batched.prompt_token_ids == alone.prompt_token_ids
    np.testing.assert_allclose(batched.values, alone.values, rtol=1e-4, atol=1e-5)
    assert alone.effective.forwards == 20


def test_forced_tokens_score_alike_through_prefill_and_decode() -> None:
    prompts = [[5, 9, 12, 40], [7], [300, 301, 302, 303, 304, 305, 306]]
    forced = [[8, 9, 10], [11, 12], [13, 14, 15]]
    candidates = np.arange(3 * 3 * 4).reshape(3, 3, 4)
    with _runner("generation-qwen3") as runner:
        prefilled = runner.score_tokens(prompts, forced, candidates, via="prefill")
        decoded = runner.score_tokens(prompts, forced, candidates, via="decode")
    assert np.isnan(prefilled.values[1, 2]).all()
    assert np.isfinite(prefilled.values[[0, 2]]).all()
    np.testing.assert_allclose(prefilled.values, decoded.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_prompts_in_chunks_have_the_answers_of_whole_ones(attention: str) -> None:
    prompts = [list(range(5, 75)), [7], list(range(300, 333))]
    forced, candidates = [[8, 9, 10]] * 3, np.arange(3 * 3 * 4).reshape(3, 3, 4)
    answers = []
    for options in ({}, {"prefill_chunk": 32}):
        with _runner("generation-qwen3", attention=attention, options=options) as runner:
            read = [runner.score_tokens(prompts, forced, candidates, via=via) for via in ("prefill", "decode")]
            answers.append([*read, runner.generate(prompts, max_tokens=3)])
        with _runner("embedding-qwen3", attention=attention, options=options) as runner:
            answers[-1].append(runner.embed([" river" * 70, "", " summer" * 32]))
    for whole, chunked in zip(*answers, strict=True):
        assert chunked.prompt_token_ids == whole.prompt_token_ids
        values = [each.logprobs if hasattr(each, "logprobs") else each.values for each in (whole, chunked)]
        np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-4)
        assert chunked.effective.forwards > whole.effective.forwards
        (count,) = chunked.effective.kernels.values()
        assert count == chunked.effective.layers * chunked.effective.forwards


def test_a_chunk_without_what_came_before_it_is_another_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison above must reject: every chunk by itself, as a cache that is not handed on would have it."""
    from conformance.engines import chunked

    prompts = [list(range(5, 75))]
    with _runner("generation-qwen3") as runner:
        whole = runner.score_tokens(prompts, [[8]], np.arange(4).reshape(1, 1, 4), via="prefill")
        monkeypatch.setattr(runner, "_chunk", 32)
        right = runner.score_tokens(prompts, [[8]], np.arange(4).reshape(1, 1, 4), via="prefill")
        passes = chunked.passes

        def apart(model: Any, inputs: Any, mask: Any, positions: Any, **how: Any) -> Any:
            last = slice(inputs.shape[1] // 32 * 32, None)
            return passes(model, inputs[:, last], mask[:, last], positions[:, last], **how)

        monkeypatch.setattr(chunked, "passes", apart)
        wrong = runner.score_tokens(prompts, [[8]], np.arange(4).reshape(1, 1, 4), via="prefill")
    np.testing.assert_allclose(right.values, whole.values, rtol=1e-4, atol=1e-4)
    assert np.abs(wrong.values - whole.values).max() > 0.01


@pytest.mark.parametrize(
    ("name", "why"), [("reward-qwen3", "the head of Qwen3"), ("rerank-xlmr", "attends in both directions")]
)
def test_models_that_need_a_prompt_whole_take_no_chunks(name: str, why: str) -> None:
    inputs = embedded()[name][1].inputs()
    with _runner(name, options={"prefill_chunk": 32}) as runner, pytest.raises(NotSupported, match=why):
        runner.score_pairs(inputs.pairs[:2]) if "rerank" in name else runner.reward(inputs.conversations[:2])


def test_positions_count_from_each_prompts_own_start() -> None:
    """RoPE hides a constant shift almost completely, so no comparison of outputs would show it."""
    import torch

    from conformance.engines.batching import pad

    ids, mask, positions = pad([[5, 6], [7, 8, 9]], 0, "left", torch.device("cpu"))
    assert ids.tolist() == [[0, 5, 6], [7, 8, 9]]
    assert mask.tolist() == [[0, 1, 1], [1, 1, 1]]
    assert positions.tolist() == [[0, 0, 1], [0, 1, 2]]


def test_a_stop_token_ends_the_text_and_is_not_in_it() -> None:
    stops = [stop for stop in embedded()["generation-qwen3"][1].inputs().stops if stop.stop_word is None]
    with _runner("generation-qwen3") as runner:
        found = runner.generate([stops[0].prompt], max_tokens=64)
    assert found.finish_reasons == ("stop",)
    assert found.texts[0] == stops[0].text
    assert len(found.token_ids[0]) == stops[0].tokens + 1


def test_a_role_of_another_package_is_loaded_by_the_class_that_the_model_names(tmp_path: Path) -> None:
    with _runner_as("similarity") as runner:
        assert type(runner.model).__name__ == "Qwen3ForSequenceClassification"
    folder = tmp_path / "made-up"
    shutil.copytree(embedded()["reward-qwen3"][0].folder, folder, ignore=shutil.ignore_patterns("references"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["os"]}))
    with pytest.raises(ValueError, match="names no model class of transformers as its architecture: 'os'"):
        _runner_as("similarity", folder=folder).__enter__()


def test_weights_that_are_missing_are_never_made_up(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "headless"
    shutil.copytree(embedded()["rerank-xlmr"][0].folder, folder, ignore=shutil.ignore_patterns("references"))
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier.out_proj")}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"no weights for classifier\.out_proj"), _runner("rerank-xlmr", folder=folder):
        pass


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_a_missing_device_is_said(device: str) -> None:
    import torch

    if getattr(torch, device).is_available():
        pytest.skip(f"ENVIRONMENT: this machine has a {device} device")
    with pytest.raises(Unavailable, match=f"sees no {device} device"), _runner("reward-qwen3", device=device):
        pass


def test_an_old_torch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from conformance.engines import device

    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    assert device.missing("cpu") == "torch 2.5.1+cpu is too old; 2.6 or newer is needed"


def test_facts_are_plain_data() -> None:
    from conformance.engines import device

    facts = device.facts("cpu")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["device"]["available"] is True
    assert facts["precision_switches"]["float32_matmul_precision"] == "highest"


def test_a_model_of_several_values_gives_no_single_score() -> None:
    with _runner("classification-qwen2") as runner, pytest.raises(ValueError, match="but one score was asked for"):
        runner.score_pairs([("a query", "a document")])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "expected"), [("cls", [1.0, 4.0]), ("last", [2.0, 6.0]), ("mean", [1.5, 5.0])])
def test_pooling_leaves_padding_out(name: str, expected: list[float], side: str) -> None:
    import torch

    from conformance.engines.pooling import pooling

    rows, longest = [[1.0, 2.0], [4.0, 5.0, 6.0]], 3
    hidden, mask = torch.full((2, longest, 1), 99.0), torch.zeros(2, longest, dtype=torch.long)
    for index, row in enumerate(rows):
        where = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        hidden[index, where, 0] = torch.tensor(row)
        mask[index, where] = 1
    assert pooling(name)(hidden, mask)[:, 0].tolist() == expected


def test_an_unknown_pooling_is_refused() -> None:
    from conformance.engines.pooling import pooling

    with pytest.raises(ValueError, match="unknown pooling 'maen'; known are cls, last, mean"):
        pooling("maen")


def test_an_old_transformers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.engines import loaded_model

    monkeypatch.setattr(loaded_model, "transformers", SimpleNamespace(__version__="4.55.0"))
    with pytest.raises(Unavailable, match=r"transformers 4\.55\.0 is too old"), _runner("reward-qwen3"):
        pass
