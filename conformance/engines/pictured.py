"""Prompts with pictures, as a server takes them: conversations, whose parts are texts and data URLs.

The server's chat template writes the conversation out again; that it comes to the very prompt shows in the ids that it
reports. Pictures travel as PNG, without loss; a video as its frames, which is vLLM's way.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from conformance.engines.completions import Completion, chat_completion
from conformance.engines.server import Server
from conformance.runner import NotSupported, Prompt

PATH = "/v1/chat/completions"
AT_ONCE = 16
"""Requests in flight; each takes one prompt."""
TOP = 20
"""OpenAI's cap on top logprobs here."""

_TURN = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.*?)<\|im_end\|>\n", re.DOTALL)
_OPEN = "<|im_start|>assistant\n"
_PLACE = re.compile(r"<\|vision_start\|><\|(image|video)_pad\|><\|vision_end\|>")


class Pictured:
    """Asks one server for text about pictures."""

    def __init__(self, server: Server, model: str) -> None:
        self._server, self._model = server, model

    def greedy(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]] | None,
        videos: Sequence[Sequence[Any]] | None,
        *,
        max_tokens: int,
        stops: Sequence[int] = (),
    ) -> list[Completion]:
        """The greedy continuations. NotSupported for prompts of ids, and for another format than Qwen's."""

        def ask(index: int) -> Completion:
            return self._one(
                prompts[index],
                images[index] if images is not None else (),
                videos[index] if videos is not None else (),
                max_tokens,
                stops,
            )

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, range(len(prompts))))

    def _one(
        self, prompt: Prompt, images: Sequence[Any], videos: Sequence[Any], max_tokens: int, stops: Sequence[int]
    ) -> Completion:
        if not isinstance(prompt, str):
            raise NotSupported("no API takes token ids together with pictures; only a prompt's text can be asked")
        body: dict[str, Any] = {
            "model": self._model,
            "messages": conversation(prompt, images, videos),
            "max_tokens": max_tokens,
            "temperature": 0,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "logprobs": True,
            "top_logprobs": TOP,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if self._server.offer.takes(PATH, "repetition_penalty"):
            body["repetition_penalty"] = 1
        if stops:
            body["stop_token_ids"] = [int(stop) for stop in stops]
        return chat_completion(self._server.post(PATH, body), f"POST {self._server.address(PATH)}")


def conversation(prompt: str, images: Sequence[Any], videos: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages that a chat template writes out as `prompt`, with the pictures in place of their placeholders.

    NotSupported for a prompt in another format than Qwen's; ValueError where placeholders and pictures differ.
    """
    body = prompt.removesuffix(_OPEN)
    turns = list(_TURN.finditer(body))
    if body == prompt or "".join(turn[0] for turn in turns) != body:
        raise NotSupported("pictures are asked through conversations, and this prompt is in no chat format known here")
    left = {"image": list(images), "video": list(videos)}
    messages = [{"role": turn[1], "content": _parts(turn[2], left)} for turn in turns]
    if left["image"] or left["video"]:
        raise ValueError(
            f"{len(left['image'])} images and {len(left['video'])} videos have no placeholder in the prompt"
        )
    return messages


def _parts(text: str, left: dict[str, list[Any]]) -> str | list[dict[str, Any]]:
    pieces = _PLACE.split(text)
    if len(pieces) == 1:
        return text
    parts: list[dict[str, Any]] = []
    for at, piece in enumerate(pieces):
        if at % 2:
            if not left[piece]:
                raise ValueError(f"the prompt has a placeholder for one more {piece} than there is")
            parts.append(_picture(piece, left[piece].pop(0)))
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts


def _picture(kind: str, pixels: Any) -> dict[str, Any]:
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_base64(png(pixels))}"}}
    frames = ",".join(_base64(png(frame)) for frame in pixels)
    # The media type by which vLLM knows frames one after another; it looks at each to see what it is.
    return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{frames}"}}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def png(pixels: Any) -> bytes:
    """A PNG file of uint8 [height, width, 3], RGB; source: the PNG specification, chunks IHDR, IDAT and IEND."""
    array = np.ascontiguousarray(pixels, dtype=np.uint8)
    height, width, _ = array.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, width * 3)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
