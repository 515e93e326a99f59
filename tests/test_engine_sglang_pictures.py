"""Pictures beside prompts of SGLang, without SGLang: what it is given, and what is made of what its tower says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conformance.engines import sglang_answers as answers
from conformance.engines.sglang_pictures import PicturePrompts, check, expanded

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "suites" / "checkpoints" / "multimodal-qwen2vl"
IMAGE, VIDEO = 7, 8
TEXT = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
TOWER = "sglang.srt.layers.attention.vision.VisionSdpaAttention"


def test_a_placeholder_is_repeated_for_every_merged_patch_of_its_own_picture() -> None:
    assert expanded([1, IMAGE, 2, VIDEO, IMAGE], {IMAGE: [2, 3], VIDEO: [1]}) == (1, 7, 7, 2, 8, 7, 7, 7)


@pytest.mark.parametrize("ids", [[1, 2], [IMAGE, IMAGE, IMAGE]])
def test_more_or_fewer_placeholders_than_pictures_are_an_error(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"placeholder 7 stands .* but there are 2 pictures"):
        expanded(ids, {IMAGE: [2, 3], VIDEO: []})


def test_ids_that_repeat_each_placeholder_for_its_picture_are_taken_as_they_are() -> None:
    check([1, 7, 7, 2, 7, 7, 7], {IMAGE: [2, 3]})
    check([1, 7, 7, 7, 7, 7], {IMAGE: [2, 3]})


@pytest.mark.parametrize("ids", [[7, 2, 7, 7, 7, 7], [7, 7, 2, 7, 7], [1, 2]])
def test_ids_whose_placeholders_are_those_of_other_pictures_are_an_error(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"its pictures have \[2, 3\] merged patches"):
        check(ids, {IMAGE: [2, 3]})


@pytest.mark.torch
def test_pictures_are_handed_over_as_a_processor_would_and_side_by_side_by_kind() -> None:
    prompts = PicturePrompts(FOLDER, lambda text: [1, prompts.tokens["video"], prompts.tokens["image"]])
    image, video = np.zeros((56, 84, 3), np.uint8), np.zeros((4, 56, 56, 3), np.uint8)
    ids, beside, grids = prompts.write("text", [image], [video])
    assert grids == ((1, 4, 6), (2, 4, 4))
    assert ids == (1, *[prompts.tokens["video"]] * 8, *[prompts.tokens["image"]] * 6)
    assert prompts.write(ids, [image], [video])[0] == ids
    (shown,), (moved,) = beside["image_data"], beside["video_data"]
    assert shown["format"] == "processor_output" and shown["image_grid_thw"].tolist() == [[1, 4, 6]]
    assert len(shown["pixel_values"]) == 24 and len(moved["pixel_values_videos"]) == 32
    with pytest.raises(ValueError, match="placeholder"):
        prompts.write(ids, [], [video])
    with pytest.raises(ValueError, match="images for 1 prompts, but there are 2"):
        prompts.write_all(["text", "text"], [[image]])


def test_calls_of_a_tower_are_counted_beside_those_of_the_text() -> None:
    lines = [
        *(json.dumps({"tower": "sdpa", "kernel": TOWER, "dtype": "float32"}) for _ in range(6)),
        *(json.dumps({"layer": layer, "kernel": TEXT, "dtype": "float32"}) for layer in (0, 1)),
    ]
    resolved = {"attention_backend": "torch_native", "dtype": "float32", "device": "cpu"}
    seen = answers.effective(lines, resolved, 2, [], 3)
    assert seen.vision is not None
    assert (seen.vision.attention, seen.vision.layers, seen.vision.sequences) == ("sdpa", 3, 2)
    assert dict(seen.kernels) == {TOWER: 6, TEXT: 2} and (seen.layers, seen.forwards) == (2, 1)
    assert answers.effective(lines[6:], resolved, 2, [], 3).vision is None
