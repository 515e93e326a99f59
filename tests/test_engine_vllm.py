"""vLLM's adapter without vLLM: what it is started with, what is made of its answers, what is written to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.engines import vllm_answers as answers
from conformance.engines.pooled import single
from conformance.engines.vllm_arguments import SUPPORTED, engine_arguments, require_version
from conformance.engines.vllm_prompts import PicturePrompts, collapsed
from conformance.registry import discover
from conformance.runner import LoadRequest, Unavailable

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ROOT / "suites" / "checkpoints"
OPTIONS = (
    *("model", "dtype", "runner", "trust_remote_code", "worker_extension_cls", "attention_backend", "block_size"),
    *("mm_encoder_attn_backend", "max_num_seqs", "max_logprobs", "logits_processors", "async_scheduling"),
    *("pooler_config", "hf_overrides", "mm_processor_cache_gb", "enforce_eager", "attention_config"),
    "enable_trace_replay",
)
BACKENDS = ("CPU_ATTN", "FLASH_ATTN", "TORCH_SDPA", "TRITON_ATTN")


def request(role: str = "generation", **fields: Any) -> LoadRequest:
    """A request for a model of a role."""
    given: dict[str, Any] = {"attention": "CPU_ATTN", "dtype": "float32", **fields}
    return LoadRequest(model="m", folder="/m", role=role, device="cpu", **given)


def arguments(asked: LoadRequest, options: tuple[str, ...] = OPTIONS, **shape: Any) -> dict[str, Any]:
    """What vLLM is started with."""
    known: dict[str, Any] = {"backends": BACKENDS, "pooler": ("seq_pooling_type",), **shape}
    return engine_arguments(asked, options=options, **known)


def test_the_adapter_is_found_without_being_imported() -> None:
    assert discover(ROOT).engines["vllm"].value == "conformance.engines.vllm:VllmRunner"


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0+cpu", "0.33.1rc1"])
def test_the_current_and_the_two_releases_before_it_are_taken(version: str) -> None:
    require_version(version)


@pytest.mark.parametrize("version", ["0.30.9", "0.34.0", "1.32.0", "dev", "0.3.2"])
def test_another_version_is_refused_with_those_that_are_supported(version: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        require_version(version)
    assert all(release in str(refusal.value) for release in SUPPORTED) and version in str(refusal.value)


def test_text_and_tower_are_told_their_attention_backends() -> None:
    found = arguments(request("multimodal", vision_attention="TORCH_SDPA"))
    assert (found["attention_backend"], found["mm_encoder_attn_backend"]) == ("CPU_ATTN", "TORCH_SDPA")
    older = arguments(request(), options=tuple(each for each in OPTIONS if each != "attention_backend"))
    assert older["attention_config"] == {"backend": "CPU_ATTN"}


def test_a_backend_that_this_vllm_does_not_know_is_refused_with_the_nearest_that_it_knows() -> None:
    with pytest.raises(Unavailable, match="unknown attention backend 'CPU_ATN'; did you mean 'CPU_ATTN'"):
        arguments(request(attention="CPU_ATN"))
    with pytest.raises(Unavailable, match="of a vision tower 'TORCH_SPDA'; did you mean 'TORCH_SDPA'"):
        arguments(request("multimodal", vision_attention="TORCH_SPDA"))


def test_a_backend_that_this_vllm_cannot_be_told_is_refused() -> None:
    options = tuple(each for each in OPTIONS if each != "mm_encoder_attn_backend")
    with pytest.raises(Unavailable, match="no option 'mm_encoder_attn_backend'"):
        arguments(request("multimodal", vision_attention="TORCH_SDPA"), options=options)


def test_options_of_the_profile_reach_vllm_as_they_are_and_come_last() -> None:
    found = arguments(
        request(options={"block_size": 32, "max_logprobs": 30, "enforce_eager": True, "batch": "unpadded"})
    )
    assert (found["block_size"], found["max_logprobs"], found["enforce_eager"]) == (32, 30, True)
    assert "batch" not in found
    assert arguments(request(options={"batch_size": 4}))["max_num_seqs"] == 4


def test_an_option_that_vllm_does_not_take_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="unknown option 'blok_size'; did you mean 'block_size'"):
        arguments(request(options={"blok_size": 32}))


def test_pooling_and_shortened_vectors_are_asked_of_embedding_models() -> None:
    asked = request(
        "embedding.last", parameters={"pooling": "mean", "dimensions": [64]}, options={"hf_overrides": {"a": 1}}
    )
    found = arguments(asked)
    assert (found["runner"], found["pooler_config"]) == ("pooling", {"seq_pooling_type": "MEAN"})
    assert found["hf_overrides"] == {"is_matryoshka": True, "a": 1}
    assert arguments(asked, pooler=("pooling_type",))["pooler_config"] == {"pooling_type": "MEAN"}
    with pytest.raises(ValueError, match="unknown pooling 'lst'; did you mean 'last'"):
        arguments(request("embedding.last", parameters={"pooling": "lst"}))


@pytest.mark.parametrize("role", ["rerank.cross_encoder", "classification", "reward"])
def test_models_that_score_leave_pooling_to_themselves(role: str) -> None:
    found = arguments(request(role))
    assert found["runner"] == "pooling" and "pooler_config" not in found and "logits_processors" not in found


@pytest.mark.parametrize("role", ["generation.window", "rerank.decoder", "multimodal"])
def test_tokens_can_be_forced_on_models_that_generate(role: str) -> None:
    found = arguments(request(role))
    assert found["runner"] == "generate" and found["async_scheduling"] is False
    assert found["logits_processors"] == ["conformance.engines.vllm_rows:Forced"]


@dataclass
class Logprob:
    """As vLLM's."""

    logprob: float
    rank: int | None = None


@dataclass
class Completion:
    """As vLLM's."""

    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    text: str = "t"
    finish_reason: str = "length"


@dataclass
class Output:
    """As vLLM's `RequestOutput`."""

    outputs: list[Completion] = field(default_factory=list)
    prompt_token_ids: list[int] | None = None
    num_cached_tokens: int | None = None


def table(*logprobs: float, first: int = 10) -> dict[int, Logprob]:
    """The best ids of a position, `first` the best."""
    return {first + i: Logprob(each, i + 1) for i, each in enumerate(logprobs)}


def test_generated_text_has_the_chosen_and_the_best_logprobs_best_first() -> None:
    worse = {99: Logprob(-5.0, 40), **table(-0.1, -1.0, -2.0)}
    found = answers.generated(
        [
            Output([Completion([10, 99], [table(-0.5, -0.7, -3.0), worse])]),
            Output([Completion([11], [table(-0.2, -0.3)])]),
        ],
        2,
    )
    assert found["token_ids"] == ((10, 99), (11,))
    assert found["logprobs"][0].tolist() == [-0.5, -5.0]
    assert found["top_ids"].tolist() == [[[10, 11], [10, 11]], [[10, 11], [-1, -1]]]
    assert np.isnan(found["logprobs"][1, 1]) and np.isnan(found["top_logprobs"][1, 1]).all()


def test_truncated_logprobs_are_an_error() -> None:
    with pytest.raises(ValueError, match="prompt 0, position 0: vLLM returned 2 logprobs, but 3 were asked for"):
        answers.generated([Output([Completion([10], [table(-0.1, -0.2)])])], 3)
    with pytest.raises(ValueError, match="vLLM returned 2 tokens, but logprobs of 1"):
        answers.generated([Output([Completion([10, 11], [table(-0.1, -0.2)])])], 1)
    with pytest.raises(ValueError, match="no logprob of token 50"):
        answers.generated([Output([Completion([50], [table(-0.1, -0.2)])])], 1)
    with pytest.raises(ValueError, match="vLLM returned 1 tokens, but logprobs of 0"):
        answers.generated([Output([Completion([10], None)])], 1)


def test_fewer_answers_than_prompts_stay_fewer_so_that_the_count_shows() -> None:
    outputs = [SimpleNamespace(outputs=SimpleNamespace(data=np.ones(3)), prompt_token_ids=[1, 2]) for _ in range(2)]
    assert answers.pooled(outputs).shape == (2, 3) and answers.prompt_ids(outputs) == ((1, 2), (1, 2))
    assert answers.generated([], 5)["token_ids"] == () and answers.pooled([]).shape == (0, 0)


def test_the_prompt_ids_are_those_that_vllm_says_it_read() -> None:
    assert answers.prompt_ids([Output(prompt_token_ids=[3, 4]), Output()]) == ((3, 4), ())


def test_tokens_from_the_cache_are_added_up_where_every_output_tells_of_them() -> None:
    assert answers.cached_tokens([Output(num_cached_tokens=32), Output(num_cached_tokens=0)]) == 32
    assert answers.cached_tokens([Output(num_cached_tokens=32), Output()]) is None
    assert answers.cached_tokens([SimpleNamespace()]) is None  # an output of a release that tells of none


def test_answers_of_different_widths_are_an_error() -> None:
    outputs = [SimpleNamespace(outputs=SimpleNamespace(data=np.ones(size))) for size in (2, 3)]
    with pytest.raises(ValueError, match="one and the same width"):
        answers.pooled(outputs)
    with pytest.raises(ValueError, match="one score was asked for"):
        single(np.ones((4, 2)))


def test_named_tokens_have_their_logprobs_in_the_order_in_which_they_were_named() -> None:
    outputs = [Output([Completion([10], [table(-0.1, -0.2, -0.3)])])]
    assert answers.named_logprobs(outputs, [12, 10]).tolist() == [[-0.3, -0.1]]
    with pytest.raises(ValueError, match="no logprob of token 7"):
        answers.named_logprobs(outputs, [7])


def forced(**change: Any) -> Any:
    """Forced logprobs of two prompts, the second of one token."""
    candidates = np.array([[[10, 20, 30], [11, 20, 30]], [[12, 20, 30], [0, 0, 0]]])
    asked: dict[str, Any] = {
        "forced": [[10, 11], [12]],
        "reported": [[table(-0.5), table(-0.6, first=11)], [{**table(-0.7, first=12), 30: Logprob(-4.0)}]],
        "read": [[[-0.9, -2.0, -3.0], [-0.9, -2.1, -3.1]], [[-0.9, -2.2, -3.2]]],
        **change,
    }
    return answers.forced_logprobs(candidates, **asked)


def test_forced_logprobs_are_vllms_own_where_it_reports_them() -> None:
    found = forced()
    assert found[0].tolist() == [[-0.5, -2.0, -3.0], [-0.6, -2.1, -3.1]]
    assert found[1, 0].tolist() == [-0.7, -2.2, -4.0] and np.isnan(found[1, 1]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reported": [[table(-0.5)], [table(-0.7, first=12)]]}, "prompt 0: there is vLLM's report for 1 of 2 forced"),
        ({"read": [[[0.0] * 3] * 2]}, "vLLM's logits for 1 prompts, but 2 were asked"),
        ({"read": [[[0.0] * 3] * 2, []]}, "prompt 1: there is vLLM's logits for 0 of 1 forced"),
        ({"forced": [[10, 40], [12]]}, "prompt 0, forced token 1: vLLM returned no logprob of token 40"),
        ({"reported": [[table(-0.5), None], [table(-0.7, first=12)]]}, "prompt 0, forced token 1: vLLM returned no"),
    ],
)
def test_incomplete_forced_logprobs_are_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forced(**change)


def test_logprobs_of_chosen_ids_are_taken_as_they_are_if_they_are_all_there() -> None:
    candidates = np.zeros((2, 2, 3), np.int64)
    found = answers.chosen_logprobs(candidates, [[1, 2], [3]], [np.full((2, 3), -1.0), np.full((1, 3), -2.0)])
    assert (found[0] == -1).all() and (found[1, 0] == -2).all() and np.isnan(found[1, 1]).all()
    for wrong in ([np.zeros((2, 3))], [np.zeros((2, 3)), None], [np.zeros((2, 2)), np.zeros((1, 3))]):
        with pytest.raises(ValueError, match=r"prompts, but 2 were asked|of shape"):
            answers.chosen_logprobs(candidates, [[1, 2], [3]], wrong)


SEEN = {
    "dtype": "float32",
    "attention": "CPU_ATTN",
    "kernels": {"_C::cpu_attention_with_kv_cache": 8},
    "layers": 4,
    "forwards": 2,
    "evidence": "counted",
    "vision_attention": "",
    "vision_layers": 0,
    "vision_sequences": 0,
}


def test_what_ran_is_what_the_worker_saw() -> None:
    ran = answers.effective([SEEN])
    assert (ran.attention, ran.layers, ran.forwards, ran.vision, ran.evidence) == ("CPU_ATTN", 4, 2, None, "counted")
    beside = {"vision_attention": "TORCH_SDPA", "vision_layers": 3, "vision_sequences": 5}
    tower = answers.effective([{**SEEN, **beside}]).vision
    assert tower is not None and (tower.attention, tower.layers, tower.sequences) == ("TORCH_SDPA", 3, 5)


def test_several_workers_that_did_the_same_are_one_answer_and_others_are_an_error() -> None:
    assert answers.effective([SEEN, dict(SEEN)]) == answers.effective([SEEN])
    other = {**SEEN, "kernels": {"_C::cpu_attention_with_kv_cache": 7}}
    with pytest.raises(ValueError, match=r"workers 0 and 1 did not do the same: .'kernels'"):
        answers.effective([SEEN, other])


def test_grids_are_those_of_the_images_then_of_the_videos() -> None:
    items = {
        "video": [{"video_grid_thw": SimpleNamespace(data=np.array([2, 4, 4]))}],
        "image": [{"image_grid_thw": SimpleNamespace(data=np.array([[1, 4, 6]]))}],
    }
    assert answers.grids(items) == ((1, 4, 6), (2, 4, 4)) and answers.grids({}) == ()


@given(
    st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(1, 5)), max_size=6), st.lists(st.integers(0, 6), max_size=4)
)
def test_a_repeated_placeholder_stands_once_for_every_picture(pictures: list[tuple[int, int]], text: list[int]) -> None:
    ids, once = list(text), list(text)
    for token, size in pictures:  # side by side, then a text token
        ids += [token] * size
        once += [token]
    counts = {each: [size for token, size in pictures if token == each] for each in (7, 8)}
    assert collapsed((*ids, 1), counts) == (*once, 1)


@pytest.mark.parametrize(
    ("ids", "counts", "message"),
    [
        ((1, 7, 7, 2), {7: [3]}, "has 3 merged patches, but its placeholder 7 is repeated 2 times"),
        ((1, 7, 7), {7: [3]}, "repeated 2 times"),
        ((1, 7, 7, 7), {7: [2]}, "placeholder 7 at position 3 has no picture; there are 1"),
        ((1, 2), {7: [2]}, "pictures without a placeholder: {7: 1}"),
    ],
)
def test_placeholders_and_pictures_must_go_together(
    ids: tuple[int, ...], counts: dict[int, list[int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        collapsed(ids, counts)


def test_pictures_are_given_as_they_are_unless_they_are_to_be_resized_here() -> None:
    pytest.importorskip("PIL")
    folder = CHECKPOINTS / "multimodal-qwen2vl"
    image = np.arange(91 * 81 * 3, dtype=np.uint8).reshape(91, 81, 3)
    video = np.stack([image[:61, :60]] * 3)
    (image_token, video_token) = PicturePrompts(folder).tokens.values()
    ids = [5, *[image_token] * 9, 6, *[video_token] * 8]
    for resizes, sizes in ((False, ((81, 91), (61, 60))), (True, ((84, 84), (56, 56)))):
        written = PicturePrompts(folder, resizes=resizes).write(ids, [image], [video])
        assert written["prompt_token_ids"] == [5, image_token, 6, video_token]
        beside = written["multi_modal_data"]
        assert (beside["image"][0].size, beside["video"][0].shape[1:3]) == sizes
    alone = PicturePrompts(folder).alone("video", video)
    assert alone["prompt_token_ids"] == [video_token] and len(alone["multi_modal_data"]["video"]) == 1
