"""The transformers runner with pictures: placeholders, positions, batches, and the vision tower's own attention."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay import embedded

from conformance.execution.group import parameters
from conformance.runner import LoadRequest, NotSupported, VisionEffective

pytestmark = pytest.mark.torch

NAME = "multimodal-qwen2vl"
FUSED, EAGER = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_softmax"
PLACED = {"positions": "qwen2-vl"}
SHORT = [1, 11, 12, 15, 17, 18, 27]
"""Prompts with one image, with two and three, with videos, and with a video and an image."""


def _runner(attention: str = "sdpa", dtype: str = "float32", **changes: Any) -> Any:
    from conformance.engines.transformers import TransformersRunner

    model, suite = embedded()[NAME]
    request = LoadRequest(NAME, str(model.folder), suite.role, "cpu", attention, dtype, parameters(model))
    return TransformersRunner(replace(request, **changes))


def _chosen(rows: Sequence[int] = SHORT) -> dict[str, Any]:
    inputs = embedded()[NAME][1].inputs()
    return {kind: [getattr(inputs, kind)[row] for row in rows] for kind in ("prompts", "images", "videos")}


def _generate(runner: Any, rows: Sequence[int] = SHORT, **changes: Any) -> Any:
    given = _chosen(rows) | changes
    return runner.generate(
        given["prompts"], max_tokens=changes.get("max_tokens", 4), images=given["images"], videos=given["videos"]
    )


def test_a_placeholder_becomes_one_token_for_every_merged_patch_of_its_picture() -> None:
    with _runner() as runner:
        found = _generate(runner)
        tokens = set(runner.vision.tokens.values())
    assert len(found.grids) == len(SHORT)
    for ids, grids in zip(found.prompt_token_ids, found.grids, strict=True):
        assert sum(token in tokens for token in ids) == sum(t * h * w for t, h, w in grids) // 4


def test_ids_with_placeholders_for_every_patch_are_used_as_they_are() -> None:
    with _runner() as runner:
        text = _generate(runner)
        ids = _generate(runner, prompts=text.prompt_token_ids)
    assert (ids.token_ids, ids.prompt_token_ids, ids.grids) == (text.token_ids, text.prompt_token_ids, text.grids)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": [()]}, "1 placeholder of images, but 0 images; each needs one"),
        ({"images": [(np.zeros((30, 30, 3), np.uint8),) * 2]}, "1 placeholder of images, but 2 images"),
        ({"videos": [(np.zeros((2, 30, 30, 3), np.uint8),)]}, "0 placeholders of videos, but 1 video"),
        ({"images": []}, "images for 0 prompts, but there are 1"),
        ({"images": [("cat.png",)]}, "an image is a str"),
    ],
)
def test_pictures_that_do_not_go_with_the_prompt_are_refused(change: dict[str, Any], says: str) -> None:
    with _runner() as runner, pytest.raises(ValueError, match=says):
        _generate(runner, [1], **change)


def test_ids_whose_placeholders_are_not_the_pictures_size_are_refused() -> None:
    with _runner() as runner:
        (ids,) = _generate(runner, [1]).prompt_token_ids
        shorter = [token for at, token in enumerate(ids) if at != ids.index(runner.vision.tokens["image"])]
        with pytest.raises(ValueError, match="but their merged patches are"):
            _generate(runner, [1], prompts=[shorter])


def test_ids_whose_placeholders_are_those_of_other_pictures_are_refused() -> None:
    with _runner() as runner:
        token = runner.vision.tokens["image"]
        pictures = runner.vision.read([np.zeros((168, 112, 3), np.uint8), np.zeros((56, 56, 3), np.uint8)], [])
        for right in ([24, 4], [28]):
            runner.vision.check([one for size in right for one in (*[token] * size, 5)], pictures)
        with pytest.raises(ValueError, match=r"\[4, 24\] placeholders of images, but .* are \[24, 4\]"):
            runner.vision.check([*[token] * 4, 5, *[token] * 24, 5], pictures)


@pytest.mark.parametrize("positions", ["qwen2-vl", "transformers"])
def test_a_prompt_in_a_padded_batch_has_the_answer_that_it_has_alone(positions: str) -> None:
    """With transformers' own positions only from 5.0 on: that quirk of the profiles can go when this test fails."""
    import transformers

    with _runner(options={"positions": positions}) as runner:
        together = _generate(runner, max_tokens=8)
        alone = [_generate(runner, [row], max_tokens=8) for row in SHORT]
    apart = [float(np.abs(together.logprobs[row] - one.logprobs[0]).max()) for row, one in enumerate(alone)]
    if positions == "transformers" and transformers.__version__.startswith("4."):
        assert max(apart) > 0.01
    else:
        assert max(apart) < 2e-4
        assert together.token_ids == tuple(one.token_ids[0] for one in alone)


def test_forced_logprobs_are_those_of_the_free_run_through_prefill_and_through_decode() -> None:
    """So positions and caches are the same on all three ways."""
    with _runner(options=PLACED) as runner:
        free = _generate(runner, max_tokens=8)
        given = _chosen()
        candidates = np.array([[[token] for token in ids] for ids in free.token_ids])
        for via in ("prefill", "decode"):
            forced = runner.score_tokens(
                free.prompt_token_ids,
                free.token_ids,
                candidates,
                via=via,
                images=given["images"],
                videos=given["videos"],
            )
            np.testing.assert_allclose(forced.values[..., 0], free.logprobs, atol=2e-4)


@pytest.mark.parametrize(("attention", "kernel"), [("eager", EAGER), ("sdpa", FUSED)])
def test_attention_of_text_and_tower_is_accounted_for(attention: str, kernel: str) -> None:
    with _runner(attention, "bfloat16") as runner:
        ran = _generate(runner).effective
        sequences = sum(t for grids in _generate(runner).grids for t, _, _ in grids)
    assert ran.vision == VisionEffective(attention, 3, sequences)
    assert ran.kernels == {kernel: ran.layers * ran.forwards + 3 * sequences}


def test_the_tower_takes_an_attention_backend_of_its_own() -> None:
    with _runner("sdpa", vision_attention="eager") as runner:
        ran = _generate(runner).effective
    assert (ran.attention, ran.vision.attention) == ("sdpa", "eager")
    assert ran.kernels == {
        FUSED: ran.layers * ran.forwards,
        EAGER: ran.vision.layers * ran.vision.sequences,
    }


def test_features_are_the_pictures_in_their_order_images_first() -> None:
    given = _chosen()
    images = [picture for pictures in given["images"] for picture in pictures]
    videos = [picture for pictures in given["videos"] for picture in pictures]
    with _runner() as runner:
        found = runner.vision_features(images, videos)
        last = runner.vision_features([], videos[-1:])
    assert len(found.grids) == len(images) + len(videos)
    assert found.values.shape[0] == sum(t * h * w for t, h, w in found.grids) // 4
    np.testing.assert_allclose(found.values[-len(last.values) :], last.values, atol=1e-4)
    assert found.effective.forwards == 0


def test_a_model_without_a_tower_says_so() -> None:
    from conformance.engines.transformers import TransformersRunner

    model, suite = embedded()["generation-qwen3"]
    request = LoadRequest(model.name, str(model.folder), suite.role, "cpu", "sdpa", "float32", parameters(model))
    with TransformersRunner(request) as runner:
        with pytest.raises(NotSupported, match="generation-qwen3 has no vision tower"):
            runner.vision_features([], [])
        with pytest.raises(NotSupported, match="no vision tower"):
            runner.generate(["a"], max_tokens=1, images=[()])


def test_a_folder_without_preprocessor_configuration_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedded()[NAME][0].folder, folder, ignore=shutil.ignore_patterns("references"))
    (folder / "preprocessor_config.json").write_text(json.dumps({"patch_size": 14}))
    with pytest.raises(ValueError, match=r"preprocessor_config\.json: no preprocessor configuration"):
        _runner(folder=str(folder)).__enter__()


def test_text_goes_on_behind_the_greatest_position_before_it() -> None:
    import torch

    with _runner() as runner:
        image, video = runner.vision.tokens["image"], runner.vision.tokens["video"]
        ids = torch.tensor([[9, 9, 5, *[image] * 6, 6, *[video] * 3, 7]])
        mask = torch.tensor([[0, 0, *[1] * (ids.shape[1] - 2)]])
        positions, excess = runner.vision.rope_index(
            ids,
            image_grid_thw=torch.tensor([[1, 4, 6]]),
            video_grid_thw=torch.tensor([[3, 2, 2]]),
            attention_mask=mask,
        )
    assert positions[:, 0, 2:].tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4, 5, 6, 7, 8],
        [0, 1, 1, 1, 2, 2, 2, 4, 5, 5, 5, 8],
        [0, 1, 2, 3, 1, 2, 3, 4, 5, 5, 5, 8],
    ]
    assert excess.tolist() == [[9 - 12]]


def test_positions_are_those_of_transformers_but_behind_videos_that_are_longer_than_high_and_wide() -> None:
    """Only there, and only from 5.3 on: that quirk of the profiles can go when this test fails."""
    import torch
    import transformers
    from packaging.version import Version

    with _runner() as runner:
        inputs = embedded()[NAME][1].inputs()
        rows, pictures = runner._with_pictures(inputs.prompts, inputs.images, inputs.videos)
        ids, mask, _ = runner._pad(rows, "left")
        grids = {key: value for key, value in runner.vision.arguments(pictures).items() if "grid" in key}
        mine, _ = runner.vision.rope_index(ids, attention_mask=mask, **grids)
        model = runner.model.model
        theirs, _ = type(model).get_rope_index(
            model, ids, attention_mask=mask, **grids, **runner.vision.token_types(ids)
        )
    real = mask.bool()
    apart = [row for row in range(len(ids)) if not torch.equal(mine[:, row, real[row]], theirs[:, row, real[row]])]
    long = [row for row, each in enumerate(pictures) if any(t > max(h, w) // 2 for t, h, w in each.grids)]
    assert len(long) >= 2
    assert apart == (long if Version(transformers.__version__) >= Version("5.3") else [])
