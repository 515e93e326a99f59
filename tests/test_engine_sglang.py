"""SGLang's adapter without SGLang: what it is started with, and what is made of its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from conformance.engines import sglang_answers as answers
from conformance.engines.pooled import single
from conformance.engines.sglang_arguments import NEEDED, SUPPORTED, engine_arguments, require_version, resolved
from conformance.engines.sglang_folder import with_score_bias
from conformance.registry import discover
from conformance.runner import LoadRequest, NotSupported, Unavailable

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ROOT / "suites" / "checkpoints"
OPTIONS = (
    *NEEDED,
    *("model_path", "device", "dtype", "is_embedding", "mm_attention_backend", "chunked_prefill_size"),
    *("disable_radix_cache", "max_running_requests", "page_size", "json_model_override_args"),
)
BIAS = "score-bias.safetensors"
KERNEL = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
CPU = {"attention_backend": "torch_native", "device": "cpu"}


def request(role: str = "generation", **fields: Any) -> LoadRequest:
    """A request for a model of a role."""
    given: dict[str, Any] = {"attention": "torch_native", "dtype": "float32", **fields}
    return LoadRequest(model="m", folder="/m", role=role, device="cpu", **given)


def arguments(asked: LoadRequest, options: tuple[str, ...] = OPTIONS) -> dict[str, Any]:
    """What SGLang is started with."""
    backends = ("torch_native", "triton", "intel_amx")
    return engine_arguments(asked, options=options, backends=backends, calls="/calls", at_fault=print)


def generation(tokens: list[int], **meta: Any) -> dict[str, Any]:
    """An answer of SGLang to a prompt of three ids, with the two best ids at every position."""
    return {
        "text": "t",
        "output_ids": tokens,
        "prompt_token_ids": [5, 6, 7],
        "meta_info": {
            "prompt_tokens": 3,
            "cached_tokens": 1,
            "finish_reason": {"type": "length", "length": len(tokens)},
            "output_token_logprobs": [(-0.5, token, None) for token in tokens],
            "output_top_logprobs": [[(-0.5, token, None), (-1.5, 99, None)] for token in tokens],
            **meta,
        },
    }


def call(layer: int, **fields: Any) -> str:
    """A line of an attention call."""
    return json.dumps({"layer": layer, "kernel": KERNEL, "dtype": "float32", **fields})


def test_the_adapter_is_found_without_being_imported() -> None:
    assert discover(ROOT).engines["sglang"].value == "conformance.engines.sglang:SglangRunner"


@pytest.mark.parametrize("version", ["0.4.9", "0.6.0", "1.0.5", "dev"])
def test_another_version_is_refused_with_those_that_are_supported(version: str) -> None:
    require_version("0.5.23")
    with pytest.raises(Unavailable) as refusal:
        require_version(version)
    assert all(line in str(refusal.value) for line in SUPPORTED) and version in str(refusal.value)


@pytest.mark.parametrize("missing", NEEDED)
def test_a_release_that_cannot_be_asked_or_seen_is_refused_with_what_it_lacks(missing: str) -> None:
    with pytest.raises(Unavailable, match=missing):
        arguments(request(), tuple(each for each in OPTIONS if each != missing))


def test_a_backend_that_this_sglang_does_not_know_is_refused_with_the_nearest_that_it_knows() -> None:
    with pytest.raises(Unavailable, match="did you mean 'torch_native'"):
        arguments(request(attention="torch_nativ"))


def test_an_option_that_this_sglang_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'page_size'"):
        arguments(request(options={"page_sise": 16}))


def test_options_of_the_profile_come_last() -> None:
    found = arguments(request("embedding.encoder", options={"disable_radix_cache": False, "batch_size": 8}))
    assert found["disable_radix_cache"] is False and found["max_running_requests"] == 8
    assert "batch_size" not in found


@pytest.mark.parametrize("role", ["embedding.encoder", "rerank.cross_encoder"])
def test_encoders_are_neither_cut_nor_cached(role: str) -> None:
    found = arguments(request(role))
    assert (found["chunked_prefill_size"], found["disable_radix_cache"]) == (-1, True)
    assert "chunked_prefill_size" not in arguments(request("embedding.last"))


def test_an_encoder_that_is_not_pooled_by_its_first_token_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="'mean'"):
        arguments(request("embedding.encoder", parameters={"pooling": "mean"}))


def test_a_text_as_long_as_the_model_is_pooled_whole() -> None:
    assert arguments(request("embedding.last", parameters={"max_tokens": 1280}))["context_length"] > 1280
    assert "context_length" not in arguments(request(parameters={"max_tokens": 1280}))


def test_only_models_that_answer_with_tokens_take_forced_ones() -> None:
    assert arguments(request())["enable_custom_logit_processor"] is True
    assert "enable_custom_logit_processor" not in arguments(request("classification"))


def test_a_backend_that_replaced_another_without_a_word_is_what_ran() -> None:
    assert resolved({"attention_backend": "torch_native", "dtype": "float32"}) == ("torch_native", "float32")
    assert resolved({"attention_backend": "fa3", "decode_attention_backend": "triton", "dtype": "float16"})[0] == (
        "fa3+triton"
    )


def test_calls_are_counted_by_kernel_and_pass() -> None:
    lines = [call(layer) for _ in range(3) for layer in range(2)]
    found = answers.effective(lines, CPU, 2, [generation([8])])
    assert found.kernels == {KERNEL: 6} and found.evidence == "counted"
    assert (found.layers, found.forwards, found.cached_tokens, found.dtype) == (2, 3, 1, "float32")


def test_a_call_of_another_kernel_or_dtype_shows() -> None:
    lines = [call(0), call(1, kernel="other", dtype="bfloat16")]
    found = answers.effective(lines, CPU, 2, [generation([8])])
    assert found.kernels == {KERNEL: 1, "other": 1} and found.dtype == "bfloat16+float32"


def test_calls_inside_graphs_are_counted_once_a_layer_and_said_to_be_resolved() -> None:
    lines = [call(layer) for _ in range(3) for layer in range(2)]
    found = answers.effective(lines, {**CPU, "device": "cuda", "disable_cuda_graph": False}, 2, [generation([8])])
    assert (found.kernels, found.layers, found.forwards, found.evidence) == ({KERNEL: 2}, 2, 1, "resolved")
    mixed = answers.effective([*lines, call(0, kernel="other")], {**CPU, "device": "cuda"}, 2, [])
    assert sum(mixed.kernels.values()) == 3


def test_fewer_answers_than_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="1 answers, but 2 prompts"):
        answers.complete([generation([8])], 2)


@pytest.mark.parametrize("told", [None, [], "abc", ["a", "b", "c"]])
def test_text_or_nothing_in_place_of_ids_is_refused(told: Any) -> None:
    assert answers.prompt_ids([generation([8])]) == ((5, 6, 7),)
    with pytest.raises(ValueError, match="ids were asked for"):
        answers.prompt_ids([{**generation([8]), "prompt_token_ids": told}])


def test_another_count_of_ids_than_of_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="names 3 token ids, but counts 4"):
        answers.prompt_ids([generation([8], prompt_tokens=4)])


def test_generations_are_ragged_with_the_best_first() -> None:
    found = answers.generated([generation([8, 9]), generation([8])], 2)
    assert found["token_ids"] == ((8, 9), (8,)) and found["finish_reasons"] == ("length", "length")
    assert found["top_ids"].tolist() == [[[8, 99], [9, 99]], [[8, 99], [-1, -1]]]
    assert np.isnan(found["logprobs"][1, 1]) and found["logprobs"][0, 1] == -0.5


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"output_token_logprobs": [(-0.5, 8, None)]}, "for 1 positions, but 2"),
        ({"output_token_logprobs": [(-0.5, 8, None), (-0.5, 7, None)]}, "no logprob of token 9"),
        ({"output_token_logprobs": [(-0.5, 8, None), (None, 9, None)]}, "no logprob of token 9"),
        ({"output_top_logprobs": [[(-0.5, 8, None), (-1.5, 99, None)], [(-0.5, 9, None)]]}, "1 logprobs, but 2"),
        ({"finish_reason": {"type": "abort", "message": "out of memory"}}, "out of memory"),
    ],
)
def test_truncated_logprobs_and_aborted_text_are_refused(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answers.generated([generation([8, 9], **meta)], 2)


def prefill(first: float | None = None) -> dict[str, Any]:
    """An answer to a prompt that ends with the forced ids 3, 4, asked for 3, 4, 6 from the position before on."""
    table = [(-1.0, 3, None), (-2.0, 4, None), (-3.0, 6, None)]
    own = [(first, 2, None), (-1.0, 3, None), (-2.0, 4, None)]
    return generation([], input_token_logprobs=own, input_token_ids_logprobs=[None, table, table])


CANDIDATES = np.array([[[3, 6], [4, 6]]])


def test_prefilled_logprobs_are_those_after_the_position_that_has_none() -> None:
    found = answers.prefilled([prefill()], [[3, 4]], CANDIDATES)
    assert found.tolist() == [[[-1.0, -3.0], [-2.0, -3.0]]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("input_token_logprobs", [(None, 2, None), (-1.0, 3, None)], "for 2 positions, but 3"),
        ("input_token_ids_logprobs", [None, None, [(-2.0, 4, None)]], "forced token 0: SGLang returned no logprob"),
        ("input_token_logprobs", [(None, 2, None), (None, 3, None), (-2.0, 4, None)], "no logprob of token 3"),
        ("input_token_logprobs", [(None, 2, None), (-1.0, 8, None), (-2.0, 4, None)], "no logprob of token 3"),
    ],
)
def test_truncated_prompt_logprobs_are_refused(name: str, value: Any, message: str) -> None:
    broken = prefill()
    broken["meta_info"][name] = value
    with pytest.raises(ValueError, match=message):
        answers.prefilled([broken], [[3, 4]], CANDIDATES)


def test_decoded_logprobs_are_read_in_any_order_and_all_of_them() -> None:
    lines = [json.dumps([0, 1, [-2.0, -3.0]]), json.dumps([0, 0, [-1.0, -3.0]])]
    assert answers.decoded(lines, [[3, 4]], CANDIDATES).tolist() == [[[-1.0, -3.0], [-2.0, -3.0]]]
    with pytest.raises(ValueError, match="forced token 1: there are logits for 1 of 2"):
        answers.decoded(lines[1:], [[3, 4]], CANDIDATES)


def test_vectors_of_different_widths_are_refused_and_a_score_is_one_number() -> None:
    assert single(answers.pooled([{"embedding": 1.5}, {"embedding": [2.5]}])).tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="one and the same width"):
        answers.pooled([{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}])
    with pytest.raises(ValueError, match="one score"):
        single(answers.pooled([{"embedding": [1.0, 2.0]}]))


def test_logprobs_of_named_tokens_are_those_of_the_next_position() -> None:
    found = generation([8], output_token_ids_logprobs=[[(-0.1, 11, None), (-2.0, 12, None)]])
    assert answers.named_logprobs([found], [12, 11]).tolist() == [[-2.0, -0.1]]
    with pytest.raises(ValueError, match="no logprob of token 13"):
        answers.named_logprobs([found], [13])


def test_a_score_without_a_bias_gets_one_of_zeros_beside_its_weights(tmp_path: Path) -> None:
    source = CHECKPOINTS / "classification-qwen2"
    found = with_score_bias(source, tmp_path / "folder")
    assert {file.name for file in found.iterdir()} == {
        *(each.name for each in source.iterdir()),
        "score-bias.safetensors",
    }
    bias = load_file(found / BIAS)["score.bias"]
    assert bias.shape == (6,) and not bias.any()
    assert (found / "config.json").read_bytes() == (source / "config.json").read_bytes()


def test_a_model_without_a_score_is_given_as_it_is(tmp_path: Path) -> None:
    source = CHECKPOINTS / "generation-qwen3"
    assert with_score_bias(source, tmp_path / "folder") == source and not (tmp_path / "folder").exists()


def test_weights_in_several_files_get_no_bias(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 files of weights"):
        with_score_bias(tmp_path, tmp_path / "folder")
