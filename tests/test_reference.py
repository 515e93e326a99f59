"""The reference is fp64 throughout, what ships equals a fresh computation, and it agrees with plain transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from replay import embedded, recorded

from conformance.execution.group import parameters
from conformance.reference import compute
from conformance.runner import LoadRequest
from conformance.suite import Answers, Ask
from conformance.tokenization import Tokenizer

pytestmark = pytest.mark.torch
NAMES = sorted(embedded())
EPS = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-24}


def _subject(name: str) -> compute.Subject:
    model, suite = embedded()[name]
    request = LoadRequest(name, str(model.folder), suite.role, "cpu", "eager", "float64", parameters(model))
    return compute.Subject(suite, request, Tokenizer(model.folder))


def _observe(name: str, asked: str, **changes: Any) -> Any:
    """One observation of the model's suite by the reference runner, `changes` applied to its request."""
    from conformance.reference.runner import ReferenceRunner

    subject = _subject(name)
    reference, _ = recorded(name, "float32", "ieee")
    with ReferenceRunner(replace(subject.request, **changes)) as runner:
        known = Answers(reference.__getitem__)
        ask = Ask(runner, subject.suite.inputs(), subject.request.parameters, {}, subject.tokenizer, known, known)
        return getattr(subject.suite, asked)(ask)


def _relative(found: Any, expected: Any) -> float:
    return float(np.sqrt(np.nansum((found - expected) ** 2) / np.nansum(expected**2)))


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_reference_equals_a_fresh_one(name: str) -> None:
    from conformance.reference.runner import ReferenceRunner

    shipped, _ = recorded(name, "float32", "ieee")
    fresh = compute.compute_reference(_subject(name), ReferenceRunner)
    assert fresh.keys() == shipped.keys()
    for asked, found in fresh.items():
        assert found.prompt_token_ids == shipped[asked].prompt_token_ids
        if hasattr(found, "values"):
            assert _relative(found.values, compute.values_of(shipped[asked])) < 1e-12
        else:
            assert found.token_ids == shipped[asked].token_ids
            np.testing.assert_allclose(found.top_logprobs, shipped[asked].top_logprobs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "precision"), [key for key in compute.SHIPPED if key[0] != "float16"])
def test_the_shipped_yardstick_is_as_far_off_as_a_fresh_one(name: str, dtype: str, precision: str) -> None:
    """Another instruction set rounds otherwise, so the size of the error is compared and not its values.

    float16 is left to `tools/compute_references.py`: without units for it a CPU takes a minute a model.
    """
    from conformance.reference.runner import ReferenceRunner

    reference, shipped = recorded(name, dtype, precision)
    fresh = compute.compute_yardstick(_subject(name), reference, dtype, precision, ReferenceRunner)
    for asked, found in fresh.items():
        r = compute.values_of(reference[asked])
        ratio = _relative(compute.values_of(found), r) / _relative(compute.values_of(shipped[asked]), r)
        assert 0.7 < ratio < 1.4, asked


@pytest.mark.parametrize("name", [name for name in NAMES if "xlmr" not in name])
def test_fp64_is_fp64_throughout(name: str) -> None:
    """Eager alone and in a padded batch agree with SDPA, or the ideal fused attention, which caps scores too; without
    widening they do not."""
    asked = next(each for each, wants in embedded()[name][1].observations().items() if wants.yardstick)
    reference, _ = recorded(name, "float32", "ieee")
    r = compute.values_of(reference[asked])
    fused = "sdpa" if embedded()[name][0].softcap is None else "conformance_ideal_fused"
    for attention in ("eager", fused):
        found = _observe(name, asked, attention=attention, options={"batch_size": 32, "widen": True})
        assert _relative(found.values, r) < 1e-12, attention
    narrow = _observe(name, asked, options={"batch_size": 1})
    assert _relative(narrow.values, r) > 1e-9


def test_decoding_with_the_cache_agrees_with_prefill() -> None:
    reference, _ = recorded("generation-qwen3", "float32", "ieee")
    found = _observe("generation-qwen3", "decoded", options={"batch_size": 32, "widen": True})
    assert _relative(found.values, compute.values_of(reference["prefilled"])) < 1e-12


@pytest.mark.parametrize("name", [name for name in NAMES if "multimodal" not in name])
def test_plain_transformers_agrees(name: str) -> None:
    """Independent of every line of the runner: each prompt's ids through the plain model, float32, one at a time."""
    import torch
    import transformers

    model, suite = embedded()[name]
    kinds = {"embedding": "AutoModel", "rerank.decoder": "AutoModelForCausalLM", "generation": "AutoModelForCausalLM"}
    kind = kinds.get(suite.role) or kinds.get(suite.role.split(".")[0], "AutoModelForSequenceClassification")
    if suite.role == "rerank.cross_encoder":
        kind = "AutoModelForSequenceClassification"
    kernels = {} if model.softcap is None else {"attn_implementation": "eager"}  # 4.56 drops the cap elsewhere
    plain = getattr(transformers, kind).from_pretrained(model.folder, dtype=torch.float32, **kernels).eval()
    reference, _ = recorded(name, "float32", "ieee")
    asked = next(each for each, wants in suite.observations().items() if wants.yardstick)
    generates = suite.role.startswith("generation")
    observation = reference["greedy" if generates else asked]
    order = sorted(range(len(observation.prompt_token_ids)), key=lambda i: len(observation.prompt_token_ids[i]))
    for index in [*order[:6], *order[-2:]]:
        ids = list(observation.prompt_token_ids[index])
        with torch.no_grad():
            if generates:
                whole = torch.tensor([ids + list(observation.token_ids[index])])
                logits = plain(whole).logits[0, len(ids) - 1 : -1]
                found = torch.log_softmax(logits.double(), -1).max(-1).values.numpy()
                expected = observation.top_logprobs[index, : len(found), 0]
            elif suite.role == "rerank.decoder":
                tokenizer = Tokenizer(model.folder)
                yes, no = tokenizer.encode("yes")[0], tokenizer.encode("no")[0]
                found = torch.log_softmax(plain(torch.tensor([ids])).logits[0, -1].double(), -1)[[yes, no]].numpy()
                expected = observation.values[index]
            elif suite.role.startswith("embedding"):
                hidden = plain(torch.tensor([ids])).last_hidden_state[0, -1 if suite.causal else 0]
                found, expected = (hidden / hidden.norm()).numpy(), observation.values[index]
            else:
                found = plain(torch.tensor([ids])).logits[0].numpy()
                expected = np.atleast_1d(observation.values[index])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-4)


def test_plain_transformers_agrees_about_images() -> None:
    """Independent of the runner, of our patches and of our positions; of videos only torchvision could be."""
    import torch
    from transformers import AutoModelForImageTextToText
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    model, suite = embedded()["multimodal-qwen2vl"]
    inputs = suite.inputs()
    reference, _ = recorded(model.name, "float32", "ieee")
    greedy = reference["greedy"]
    plain = AutoModelForImageTextToText.from_pretrained(model.folder, dtype=torch.float32).eval()
    processor = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=12_845_056)
    with_images = [row for row, videos in enumerate(inputs.videos) if not videos]
    for row in [*with_images[:3], *with_images[-3:]]:
        seen = processor(images=list(inputs.images[row]), input_data_format="channels_last", return_tensors="pt")
        assert [tuple(grid) for grid in seen["image_grid_thw"].tolist()] == list(greedy.grids[row])
        ids = list(greedy.prompt_token_ids[row])
        whole = torch.tensor([ids + list(greedy.token_ids[row])])
        types = (whole == plain.config.image_token_id).int()
        with torch.no_grad():
            logits = plain(input_ids=whole, mm_token_type_ids=types, **seen).logits[0, len(ids) - 1 : -1]
        found = torch.log_softmax(logits.double(), -1).max(-1).values.numpy()
        np.testing.assert_allclose(found, greedy.top_logprobs[row, : len(found), 0], rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_gives_the_right_answers(name: str) -> None:
    from replay import bench, outcomes

    suite = embedded()[name][1]
    answered = [test for test in suite.promises() if getattr(suite, test).requirement.answers]
    assert answered
    found = outcomes(name, bench(name, "float32", "ieee"))
    assert {test: found[test].message for test in answered if found[test].message} == {}


def test_the_worst_legal_variant_is_the_yardstick_of_float32() -> None:
    assert len(compute.YARDSTICKS["float32", "ieee"]) == 4
    with pytest.raises(ValueError, match="no yardstick for float32 with the claim 'fused'"):
        compute.compute_yardstick(_subject(NAMES[0]), {}, "float32", "fused", lambda request: None)  # type: ignore[arg-type, return-value]
