"""What is made of the model's output: heads and labels, sampling, logprobs, and how texts end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host, during

SCALARS = ("score_pairs", "reward")


def _values(host: Host, change: Callable[[Any], Any], *questions: str) -> None:
    """Answers to `questions` have the values `change(values)`."""

    def answer(original: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return replace(found, values=change(found.values))

    for question in questions:
        host.wrap(host.runner, question, answer)


def _bias_dropped(host: Host) -> None:
    def change(original: Any, inputs: Any) -> Any:
        import torch

        return torch.nn.functional.linear(inputs, original.__self__.weight)

    is_head = lambda name, module: name in ("classifier", "classifier.out_proj") and hasattr(module, "bias")  # noqa: E731
    for module in host.modules(is_head):
        host.wrap(module, "forward", change)


def _sigmoid(values: Any) -> Any:
    import numpy as np

    return 1 / (1 + np.exp(-values))


def _softmax(values: Any) -> Any:
    import numpy as np

    shares = np.exp(values - values.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _rolled(values: Any) -> Any:
    import numpy as np

    return np.roll(values, 1, axis=1)


def _second_best(host: Host) -> None:
    def second(ids: Any, scores: Any) -> Any:
        scores = scores.clone()
        for row in scores:
            if host.hits():
                row[row.argmax()] = float("-inf")
        return scores

    def generate(original: Any, *args: Any, **kwargs: Any) -> Any:
        from transformers import LogitsProcessorList

        return original(*args, **kwargs, logits_processor=LogitsProcessorList([second]))

    host.wrap(host.model, "generate", generate, always=True)


def _generate(host: Host, change: Callable[..., Any]) -> None:
    """`generate` answers `change(original, prompts, **arguments)`."""
    host.wrap(host.runner, "generate", change)


def _temperature(host: Host) -> None:
    def change(original: Any, *args: Any, **kwargs: Any) -> Any:
        from conformance.engines import transformers

        honest = transformers._log_softmax
        with during(transformers, "_log_softmax", lambda logits: honest(logits / 0.8)):
            return original(*args, **kwargs)

    _generate(host, change)


def _stops_ignored(host: Host) -> None:
    _generate(host, lambda original, *args, **kwargs: original(*args, **{**kwargs, "stop_token_ids": ()}))


def _end_ignored(host: Host) -> None:
    host.wrap(host.runner, "_end_token_ids", lambda original: [])


def _end_kept(host: Host) -> None:
    def text(original: Any, ids: Any, ends: Any) -> str:
        return str(host.runner.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    host.wrap(host.runner, "_text", text)


def _always_length(host: Host) -> None:
    def change(original: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return replace(found, finish_reasons=("length",) * len(found.finish_reasons))

    _generate(host, change)


_scalar = partial(
    Fault, family="head", suite="reward", dtype="float32", model="reward-qwen3", structural=False, scopes=("all",)
)
_text = partial(
    Fault,
    family="sampling",
    suite="generation",
    dtype="float32",
    model="generation-mistral",
    structural=True,
    scopes=("all",),
    applies=applies.where(applies.model, applies.generates),
)

FAULTS = (
    Fault(
        id="head.labels-permuted",
        family="head",
        description="Each class has the logit of the class before it.",
        reference="vllm-project/vllm#21681",
        suite="classification",
        dtype="float32",
        model="classification-qwen2",
        structural=True,
        scopes=("all",),
        inject=lambda host: _values(host, _rolled, "classify"),
        applies=applies.roles("classification"),
    ),
    Fault(
        id="head.softmax-applied",
        family="head",
        description="Classes have probabilities, where logits are asked for.",
        reference="vllm-project/vllm#21681",
        suite="classification",
        dtype="float32",
        model="classification-qwen2",
        structural=True,
        scopes=("all",),
        inject=lambda host: _values(host, _softmax, "classify"),
        applies=applies.roles("classification"),
    ),
    Fault(
        id="head.yes-and-no-swapped",
        family="head",
        description="The logprobs of yes and no change places.",
        reference="QwenLM/Qwen3-Embedding#71, vllm-project/vllm#27857",
        suite="rerank",
        dtype="float32",
        model="rerank-qwen3",
        structural=True,
        scopes=("all",),
        inject=lambda host: _values(host, lambda values: values[:, ::-1].copy(), "token_logprobs"),
        applies=applies.roles("rerank.decoder"),
    ),
    Fault(
        id="head.sigmoid-applied",
        family="head",
        description="A sigmoid is applied to the score, where the raw logit is asked for.",
        reference="vllm-project/vllm#21681",
        suite="rerank",
        dtype="float32",
        model="rerank-xlmr",
        structural=True,
        scopes=("all",),
        inject=lambda host: _values(host, _sigmoid, *SCALARS),
        applies=applies.roles("rerank.cross_encoder", "reward"),
    ),
    Fault(
        id="head.bias-dropped",
        family="head",
        description="The bias of the head is left out.",
        reference="vllm-project/vllm#24242",
        suite="rerank",
        dtype="float32",
        model="rerank-xlmr",
        structural=False,
        scopes=("all",),
        inject=_bias_dropped,
        applies=applies.where(applies.encoder, applies.roles("rerank.cross_encoder", "classification", "reward")),
    ),
    _scalar(
        id="head.offset",
        description="Every score is 0.1 too large.",
        reference="vllm-project/vllm#24242",
        inject=lambda host: _values(host, lambda values: values + 0.1, *SCALARS),
        applies=applies.roles("rerank.cross_encoder", "reward"),
    ),
    _scalar(
        id="head.gain",
        description="Every score is 2% too large.",
        reference="vllm-project/vllm#24242",
        inject=lambda host: _values(host, lambda values: values * 1.02, *SCALARS),
        applies=applies.roles("rerank.cross_encoder", "reward"),
    ),
    _text(
        id="sampling.second-best",
        description="One token in a hundred is the second best.",
        reference="arXiv:2511.20621, www.anthropic.com/engineering/a-postmortem-of-three-recent-issues",
        inject=_second_best,
        rate=0.01,
    ),
    _text(
        id="sampling.temperature",
        description="Logprobs are those at temperature 0.8.",
        reference="vllm-project/vllm#9567 (the same class: processed logprobs for raw ones)",
        inject=_temperature,
    ),
    _text(
        id="sampling.label-shift",
        description="Logprobs of forced tokens are those of the position before.",
        reference="AI-Hypercomputer/maxtext#2102",
        inject=lambda host: _values(host, _rolled, "score_tokens"),
    ),
    _text(
        id="sampling.stops-ignored",
        description="Text does not end at the stop tokens of the request.",
        reference="vllm-project/vllm#9567 (the same class: ends of texts)",
        inject=_stops_ignored,
    ),
    _text(
        id="sampling.end-ignored",
        description="Text does not end at the model's end token.",
        reference="vllm-project/vllm#9567 (the same class: ends of texts)",
        inject=_end_ignored,
    ),
    _text(
        id="sampling.end-kept",
        description="Texts show their end tokens.",
        reference="vllm-project/vllm#9567 (the same class: ends of texts)",
        inject=_end_kept,
    ),
    _text(
        id="sampling.finish-reason",
        description="The finish reason is length whatever ended the text.",
        reference="vllm-project/vllm#9567 (the same class: ends of texts)",
        inject=_always_length,
    ),
)
