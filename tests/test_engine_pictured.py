"""Prompts with pictures as conversations: nothing of prompt or picture is lost on the way."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from conformance.engines.pictured import conversation, png
from conformance.runner import NotSupported

IMAGE, VIDEO = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
OPEN = "<|im_start|>assistant\n"


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def pixels(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def read(url: str, kind: str) -> Any:
    Image = pytest.importorskip("PIL.Image")
    data = url.removeprefix(f"data:{kind};base64,")
    return np.stack([np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in data.split(",")])


def test_parts_stand_where_their_placeholders_stood() -> None:
    prompt = turn("system", "be kind") + turn("user", f"{IMAGE}and{VIDEO}{IMAGE} go") + OPEN
    one, other, video = pixels(1, 5, 7, 3), pixels(2, 4, 4, 3), pixels(3, 2, 6, 3, 3)
    system, user = conversation(prompt, [one, other], [video])
    assert system == {"role": "system", "content": "be kind"}
    kinds = [part["type"] for part in user["content"]]
    assert kinds == ["image_url", "text", "video_url", "image_url", "text"]
    assert user["content"][1]["text"] == "and" and user["content"][4]["text"] == " go"
    np.testing.assert_array_equal(read(user["content"][0]["image_url"]["url"], "image/png")[0], one)
    np.testing.assert_array_equal(read(user["content"][2]["video_url"]["url"], "video/jpeg"), video)
    np.testing.assert_array_equal(read(user["content"][3]["image_url"]["url"], "image/png")[0], other)


@pytest.mark.parametrize("prompt", ["just text", turn("user", "x"), "before" + turn("user", "x") + OPEN, OPEN + OPEN])
def test_other_formats_are_not_supported(prompt: str) -> None:
    with pytest.raises(NotSupported, match="no chat format"):
        conversation(prompt, [], [])


@pytest.mark.parametrize(("text", "images"), [(IMAGE, 0), ("none", 1), (VIDEO, 1)])
def test_placeholders_and_pictures_must_go_together(text: str, images: int) -> None:
    with pytest.raises(ValueError, match="placeholder"):
        conversation(turn("user", text) + OPEN, [pixels(1, 2, 2, 3)] * images, [])


def test_a_picture_is_a_png() -> None:
    assert png(pixels(1, 3, 2, 3)).startswith(b"\x89PNG\r\n\x1a\n")
