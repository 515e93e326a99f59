"""Requests as SGLang takes them: texts or ids, and what is wanted of them."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput

from conformance.runner import Prompt


def generation(
    prompt: Prompt, *, max_tokens: int, sampling: dict[str, Any] | None = None, **how: Any
) -> GenerateReqInput:
    """Greedy generation with logprobs; ids are used as they are."""
    return GenerateReqInput(
        **_given(prompt),
        sampling_params={"temperature": 0.0, "max_new_tokens": max_tokens, **(sampling or {})},
        return_logprob=True,
        **how,
    )


def pooling(prompt: Prompt, **how: Any) -> EmbeddingReqInput:
    """One vector, score or row of logits; ids are used as they are."""
    return EmbeddingReqInput(**_given(prompt), **how)


def pair(query: str, document: str) -> EmbeddingReqInput:
    """The score of a pair that SGLang tokenizes itself."""
    return EmbeddingReqInput(text=[[query, document]], is_cross_encoder_request=True)


def _given(prompt: Prompt) -> dict[str, Any]:
    return {"text": prompt} if isinstance(prompt, str) else {"input_ids": [int(token) for token in prompt]}
