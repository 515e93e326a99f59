"""Forced tokens on vLLM: by prefill, and one at a time by decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm import SamplingParams

from conformance.engines.vllm_answers import chosen_logprobs, forced_logprobs
from conformance.runner import NotSupported

if TYPE_CHECKING:
    from conformance.runner import Floats, Integers

ROW = "conformance_row"
REPORTED = 20
"""So many of the best logprobs are asked of vLLM at every position, beside the candidates' that are read there."""


def ask_by_prefill(
    llm: Any, prompts: list[Any], rows: Sequence[Sequence[int]], forced: Sequence[Sequence[int]], candidates: Integers
) -> tuple[Sequence[Any], Floats]:
    """vLLM's outputs and the candidates' logprobs; `prompts` have the forced tokens at their end."""
    if getattr(llm.llm_engine.vllm_config, "use_v2_model_runner", False):
        return _ask_for_ids(llm, prompts, rows, forced, candidates)
    _force(llm, rows, forced, candidates, prefill=True)
    params = [
        SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=REPORTED, detokenize=False, extra_args={ROW: row})
        for row in range(len(rows))
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    reported = [
        (output.prompt_logprobs or [])[len(row) : len(row) + len(tokens)]
        for output, row, tokens in zip(outputs, rows, forced, strict=True)
    ]
    read = llm.collective_rpc("conformance_forced")[0]
    return outputs, forced_logprobs(candidates, forced, reported, read)


def ask_by_decode(
    llm: Any, prompts: list[Any], rows: Sequence[Sequence[int]], forced: Sequence[Sequence[int]], candidates: Integers
) -> tuple[Sequence[Any], Floats]:
    """vLLM's outputs and the candidates' logprobs; the forced tokens are generated one after the other.

    ValueError where another token came than the one that was forced.
    """
    _force(llm, rows, forced, candidates, prefill=False)
    params = [
        SamplingParams(
            temperature=0.0,
            max_tokens=len(tokens),
            ignore_eos=True,
            logprobs=REPORTED,
            detokenize=False,
            extra_args={ROW: row},
        )
        for row, tokens in enumerate(forced)
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for row, (output, tokens) in enumerate(zip(outputs, forced, strict=True)):
        came = [int(token) for token in output.outputs[0].token_ids]
        if came != list(tokens):
            at = next((i for i, (one, other) in enumerate(zip(came, tokens)) if one != other), len(came))  # noqa: B905
            raise ValueError(
                f"prompt {row}: token {at} was forced to be {tokens[at : at + 1]}, but {came[at : at + 1]} came"
            )
    reported = [output.outputs[0].logprobs or [] for output in outputs]
    read = llm.collective_rpc("conformance_forced")[0]
    return outputs, forced_logprobs(candidates, forced, reported, read)


def _ask_for_ids(
    llm: Any, prompts: list[Any], rows: Sequence[Sequence[int]], forced: Sequence[Sequence[int]], candidates: Integers
) -> tuple[Sequence[Any], Floats]:
    """The same on vLLM's second runner of models, which reports chosen ids itself."""
    if "prompt_logprob_start" not in SamplingParams.__struct_fields__:
        raise NotSupported(
            "this vLLM reports no chosen ids by position on its second runner of models; VLLM_USE_V2_MODEL_RUNNER=0 in "
            "the environment takes the first"
        )
    params = [
        SamplingParams(
            temperature=0.0,
            max_tokens=1,
            prompt_logprob_token_ids=candidates[row, : len(tokens)].tolist(),
            prompt_logprob_start=len(rows[row]) - 1,
            detokenize=False,
        )
        for row, tokens in enumerate(forced)
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return outputs, chosen_logprobs(candidates, forced, [output.prompt_token_id_logprobs for output in outputs])


def _force(
    llm: Any, rows: Sequence[Sequence[int]], forced: Sequence[Sequence[int]], candidates: Integers, *, prefill: bool
) -> None:
    wanted = [candidates[row, : len(tokens)].tolist() for row, tokens in enumerate(forced)]
    llm.collective_rpc(
        "conformance_force", args=([len(row) for row in rows], [list(t) for t in forced], wanted, prefill)
    )
