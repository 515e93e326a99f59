"""What is made of a text before the model sees it: chat templates, special tokens, tokenisation, truncation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault, NotApplicable
from conformance.faults.host import Host, during

SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


def _template(host: Host, change: Callable[..., str]) -> None:
    """A conversation is written as `change(original, turns, **arguments)`."""
    host.wrap(host.runner.tokenizer, "apply_chat_template", change)


def _template_dropped(host: Host) -> None:
    _template(host, lambda original, turns, **_: "\n".join(str(turn["content"]) for turn in turns))


def _system_added(host: Host) -> None:
    _template(host, lambda original, turns, **arguments: original([SYSTEM, *turns], **arguments))


def _answer_opened(host: Host) -> None:
    _template(
        host, lambda original, turns, **arguments: original(turns, **{**arguments, "add_generation_prompt": True})
    )


def _texts(host: Host, change: Callable[[str], str]) -> None:
    def tokenize(original: Any, first: list[str], second: list[str] | None = None, **options: Any) -> Any:
        return original(
            [change(text) for text in first], None if second is None else [change(text) for text in second], **options
        )

    host.wrap(host.runner, "_tokenize", tokenize)


def _rows(host: Host, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
    def tokenize(original: Any, *args: Any, **options: Any) -> Any:
        return tuple(change(row) for row in original(*args, **options))

    host.wrap(host.runner, "_tokenize", tokenize)


def _start_twice(host: Host) -> None:
    start = host.runner.tokenizer("", add_special_tokens=True)["input_ids"][:1]
    if not start or start[0] != host.runner.tokenizer.bos_token_id:
        raise NotApplicable("its tokenizer adds no token at the start")
    limit = host.runner.request.parameters.get("max_tokens")
    _rows(host, lambda row: (*start, *row)[:limit])


def _end_missing(host: Host) -> None:
    end = host.runner.tokenizer("", add_special_tokens=True)["input_ids"][-1:]
    if not end:
        raise NotApplicable("its tokenizer adds no token at the end")
    _rows(host, lambda row: row[:-1] if row[-1:] == tuple(end) and len(row) > 1 else row)


def _cut_left(host: Host) -> None:
    def tokenize(original: Any, *args: Any, **options: Any) -> Any:
        with during(host.runner.tokenizer, "truncation_side", "left"):
            return original(*args, **options)

    host.wrap(host.runner, "_tokenize", tokenize)


def _cut_at_512(host: Host) -> None:
    request = host.runner.request
    shorter = replace(request, parameters={**request.parameters, "max_tokens": 512})

    def tokenize(original: Any, *args: Any, **options: Any) -> Any:
        with during(host.runner, "request", shorter):
            return original(*args, **options)

    host.wrap(host.runner, "_tokenize", tokenize)


_reward = partial(
    Fault,
    family="template",
    suite="reward",
    dtype="float32",
    model="reward-qwen3",
    structural=True,
    scopes=("all",),
    applies=applies.roles("reward"),
)
_embedding = partial(
    Fault,
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    structural=True,
    scopes=("all",),
    applies=applies.model,
)
_cut = partial(
    _embedding,
    family="truncation",
    reference="huggingface/text-embeddings-inference#882 (the same class: limits of length)",
    applies=applies.roles("embedding", "rerank", "classification", "reward"),
)

FAULTS = (
    _reward(
        id="template.dropped",
        description="Turns are joined by line ends, without the model's chat template.",
        reference="vllm-project/vllm#21681, QwenLM/Qwen3-Embedding#71",
        inject=_template_dropped,
    ),
    _reward(
        id="template.system-added",
        description="A system prompt is put before the conversation.",
        reference="vllm-project/vllm#27857",
        inject=_system_added,
    ),
    _reward(
        id="template.answer-opened",
        description="The beginning of another answer is put behind the conversation.",
        reference="vllm-project/vllm#24242",
        inject=_answer_opened,
    ),
    _embedding(
        id="tokens.start-twice",
        family="tokens",
        description="The token at the start of a text is added twice.",
        reference="vllm-project/vllm#24242 (the same class: special tokens)",
        model="embedding-xlmr",
        inject=_start_twice,
    ),
    _embedding(
        id="tokens.end-missing",
        family="tokens",
        description="The token at the end of a text, from which the vector is read, is not added.",
        reference="QwenLM/Qwen3-Embedding#71",
        inject=_end_missing,
        applies=applies.roles("embedding", "rerank.cross_encoder"),
    ),
    _embedding(
        id="tokens.lower-cased",
        family="tokens",
        description="Texts are lower-cased.",
        reference="huggingface/candle#1798 (the same class: another model's tokenisation)",
        inject=lambda host: _texts(host, str.lower),
    ),
    _embedding(
        id="tokens.space-added",
        family="tokens",
        description="A space is put before every text.",
        reference="huggingface/candle#1798 (the same class: another model's tokenisation)",
        inject=lambda host: _texts(host, lambda text: " " + text),
    ),
    _cut(
        id="truncation.left",
        description="Texts that are too long lose their beginning, not their end.",
        inject=_cut_left,
    ),
    _cut(
        id="truncation.at-512",
        description="Texts are cut at 512 tokens.",
        inject=_cut_at_512,
    ),
)
