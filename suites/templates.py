"""How a reranking decoder's prompt is written out, by the name that the catalogue gives the template."""

from __future__ import annotations

from collections.abc import Callable


def _qwen3_reranker(instruction: str, query: str, document: str) -> str:
    """Source: the Qwen3-Reranker model card."""
    return (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        f"<|im_start|>user\n<Instruct>: {instruction}\n\n<Query>: {query}\n\n<Document>: {document}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


RERANK: dict[str, Callable[[str, str, str], str]] = {"qwen3-reranker": _qwen3_reranker}
