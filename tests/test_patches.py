"""Pictures as the vision tower reads them: equal to the processors of transformers, and refused where they are none."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.engines.patches import PatchSettings, image_patches, resized, video_patches

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SETTINGS = PatchSettings(14, 2, 2, 56 * 56, 12_845_056, MEAN, STD)
SIZES = [(1, 1), (28, 28), (57, 113), (85, 33), (10, 1999), (300, 201), (1501, 2003)]
VIDEOS = [(1, 30, 31), (2, 57, 113), (3, 56, 28), (7, 41, 90), (2, 56, 84)]


def _noise(*shape: int) -> Any:
    pixels = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)
    pixels.flat[0] = 255  # a single dark pixel would be taken for one that is scaled already
    return pixels


def _processor() -> Any:
    """The image processor of the installed transformers that needs no torchvision."""
    try:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil as Processor
    except ImportError:
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor as Processor
    try:
        return Processor(min_pixels=SETTINGS.min_pixels, max_pixels=SETTINGS.max_pixels)
    except TypeError:
        return Processor(size={"shortest_edge": SETTINGS.min_pixels, "longest_edge": SETTINGS.max_pixels})


@pytest.fixture(scope="module", autouse=True)
def importable_torchvision() -> Iterator[None]:
    """A torchvision of another build than torch's does not import for want of two operators, which nobody calls."""
    if importlib.util.find_spec("torchvision") is None or not _lacks_operators():
        yield
        return
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield


def _lacks_operators() -> bool:
    tried = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False)
    return "torchvision::nms does not exist" in tried.stderr


def _reads_videos() -> bool:
    """Whether the installed transformers has the last image processor that also read videos: that of 4.x."""
    from transformers import __version__

    return __version__.startswith("4.")


@pytest.mark.torch
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_an_image_is_read_as_transformers_reads_it(height: int, width: int) -> None:
    image = _noise(height, width, 3)
    found = _processor()(images=[image], input_data_format="channels_last", return_tensors="np")
    mine = image_patches(image, SETTINGS)
    assert found["image_grid_thw"].tolist() == [list(mine.grid)]
    np.testing.assert_array_equal(mine.values, found["pixel_values"], strict=True)


@pytest.mark.torch
@pytest.mark.parametrize(("frames", "height", "width"), VIDEOS)
def test_a_video_is_read_as_transformers_4_reads_it(frames: int, height: int, width: int) -> None:
    if not _reads_videos():
        pytest.skip("transformers 5 reads no video without torchvision; `tox run -e oldest` compares with 4.56")
    video = _noise(frames, height, width, 3)
    found = _processor()(images=None, videos=[video], input_data_format="channels_last", return_tensors="np")
    mine = video_patches(video, SETTINGS)
    assert found["video_grid_thw"].tolist() == [list(mine.grid)]
    np.testing.assert_array_equal(mine.values, found["pixel_values_videos"], strict=True)


@pytest.mark.torch
@pytest.mark.parametrize(("frames", "height", "width"), VIDEOS)
def test_a_video_is_read_as_torchvision_reads_it(frames: int, height: int, width: int) -> None:
    """But for the order of roundings, and for the bicubic filter: Pillow's and torchvision's are 2 steps apart."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed; `tox run -e torchvision` compares with it")
    from transformers import Qwen2VLVideoProcessor

    limits = {"shortest_edge": SETTINGS.min_pixels, "longest_edge": SETTINGS.max_pixels}
    video = _noise(frames, height, width, 3)
    found = Qwen2VLVideoProcessor(size=limits)(videos=[video], do_sample_frames=False, return_tensors="pt")
    mine = video_patches(video, SETTINGS)
    assert found["video_grid_thw"].tolist() == [list(mine.grid)]
    is_resized = resized(height, width, SETTINGS) != (height, width)
    apart = 2.01 / 255 / min(STD) if is_resized else 1e-6
    np.testing.assert_allclose(mine.values, found["pixel_values_videos"].numpy(), rtol=0, atol=apart)


@given(st.integers(1, 3000), st.integers(1, 3000))
@settings(max_examples=200, deadline=None)
def test_sides_become_multiples_of_a_merged_patch_within_the_limits(height: int, width: int) -> None:
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(ValueError, match="at most 200 times"):
            resized(height, width, SETTINGS)
        return
    rows, columns = resized(height, width, SETTINGS)
    assert rows % 28 == columns % 28 == 0
    assert rows * columns <= SETTINGS.max_pixels
    assert rows * columns >= SETTINGS.min_pixels


def test_the_last_frame_is_repeated_to_whole_temporal_patches() -> None:
    video = _noise(3, 56, 56, 3)
    longer = np.concatenate([video, video[-1:]])
    found = [video_patches(each, SETTINGS) for each in (video, longer)]
    assert [each.grid for each in found] == [(2, 4, 4)] * 2
    assert np.array_equal(found[0].values, found[1].values)


def test_an_image_is_a_video_of_one_frame() -> None:
    image = _noise(56, 84, 3)  # of a size that is not resized, so that Pillow is not needed
    assert np.array_equal(image_patches(image, SETTINGS).values, video_patches(image[None], SETTINGS).values)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("cat.png", "an image is a str, but should be a uint8 array"),
        (None, "an image is a NoneType"),
        (_noise(30, 30, 3).astype(np.float32), "float32"),
        (_noise(30, 30), r"uint8 \[30, 30\]"),
        (_noise(30, 30, 4), "4 channels.*alpha.*CMYK.*convert it to RGB"),
        (_noise(30, 30, 1), "1 channels"),
        (np.zeros((0, 30, 3), np.uint8), "no height"),
        (_noise(10, 20_000, 3), "20000 x 10 pixels: one side is 2000 times the other"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        image_patches(image, SETTINGS)


@pytest.mark.parametrize(
    ("video", "says"),
    [
        (np.zeros((0, 30, 30, 3), np.uint8), "no frames"),
        (_noise(30, 30, 3), r"uint8 \[30, 30, 3\], but should be a uint8 array \[frames"),
        (_noise(2, 30, 30, 4), "4 channels"),
        ([_noise(30, 30, 3)], "a video is a list"),
    ],
)
def test_what_is_no_video_is_refused(video: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        video_patches(video, SETTINGS)


CONFIGURATION = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "image_mean": MEAN,
    "image_std": STD,
}


def test_settings_are_read_from_either_spelling(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CONFIGURATION))
    assert PatchSettings.read(tmp_path) == SETTINGS
    newer = {key: value for key, value in CONFIGURATION.items() if "pixels" not in key}
    newer["size"] = {"shortest_edge": 3136, "longest_edge": 12845056}
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": newer}))
    assert PatchSettings.read(tmp_path) == SETTINGS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "neither preprocessor_config.json nor"),
        ("{", "no preprocessor configuration"),
        ("[]", "no preprocessor configuration"),
        (json.dumps({**CONFIGURATION, "patch_size": "x"}), "no preprocessor configuration"),
        ("[" * 100_000, "no preprocessor configuration"),
        (json.dumps({**CONFIGURATION, "patch_size": float("inf")}), "no preprocessor configuration"),
        (json.dumps({**CONFIGURATION, "merge_size": 0}), "must be above 0"),
        (json.dumps({**CONFIGURATION, "image_std": [0.5, 0.0, 0.5]}), "must be above 0"),
        (json.dumps({**CONFIGURATION, "image_mean": [0.5]}), "3 numbers"),
        (json.dumps({**CONFIGURATION, "do_resize": False}), "do_resize is off"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(ValueError, match=says):
        PatchSettings.read(tmp_path)
