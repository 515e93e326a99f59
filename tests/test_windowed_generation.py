"""Texts that follow from the last 64 tokens: they are determined, and a wrong window, cap or scale shows in them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import embedded, recorded

from conformance import criteria
from conformance.execution.group import parameters
from conformance.judgement import Judgement
from conformance.runner import LoadRequest
from conformance.suite import Answers, Ask
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict
from suites import anchoring
from suites.inputs import windowed

MISTRAL, GEMMA = "generation-mistral", "generation-gemma2"


def follower(tokens: list[str], reach: int = windowed.WINDOW) -> str | None:
    """The token that always followed the last one where its followers are among the last `reach`; None without one."""
    first = max(1, len(tokens) - reach)
    found = {tokens[at] for at in range(first, len(tokens)) if tokens[at - 1] == tokens[-1]}
    assert len(found) <= 1, f"the last {reach} tokens are at odds on what comes after {tokens[-1]!r}"
    return found.pop() if found else None


def spelt(text: str) -> list[str]:
    for mark in (windowed.START, windowed.END):
        text = text.replace(mark, f" {mark} ")
    return text.split()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_every_known_text_follows_from_the_tokens_within_reach(seed: int) -> None:
    inputs = windowed.inputs(seed)
    for prompt, continuation in zip(inputs.prompts, inputs.continuations, strict=True):
        tokens = spelt(prompt)
        for word in [] if continuation is None else spelt(continuation):
            assert follower(tokens) == word
            tokens.append(word)
    for stop in inputs.stops:
        tokens = spelt(stop.prompt)
        for word in spelt(stop.text):
            assert follower(tokens) == word
            tokens.append(word)
        assert follower(tokens) == (stop.stop_word or (windowed.END if stop.text else None))


def test_a_window_of_another_size_leads_to_other_texts() -> None:
    inputs = windowed.inputs()
    known = [(spelt(prompt), text) for prompt, text in zip(inputs.prompts, inputs.continuations, strict=True) if text]
    shorter = [prompt for prompt, text in known if follower(prompt, windowed.WINDOW - 1) is None]
    longer = [stop for stop in inputs.stops if not stop.text and follower(spelt(stop.prompt), windowed.WINDOW + 1)]
    led_astray = [prompt for prompt, _ in known if len({*_followers(prompt)}) > 1]
    assert len(shorter) >= 6 and len(longer) >= 3 and len(led_astray) >= 10
    assert max(len(prompt) for prompt, _ in known) == 1150


def _followers(tokens: list[str]) -> list[str]:
    return [after for before, after in pairwise(tokens) if before == tokens[-1]]


def _altered(tmp_path: Path, name: str, dtype: str, change: dict[str, Any]) -> LoadRequest:
    """The checkpoint with another configuration: what an engine would compute that reads it wrongly."""
    model, suite = embedded()[name]
    folder = tmp_path / name
    shutil.copytree(model.folder, folder, ignore=shutil.ignore_patterns("references"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config.keys() >= change.keys()
    (folder / "config.json").write_text(json.dumps({**config, **change}), "utf-8")
    return LoadRequest(name, str(folder), suite.role, "cpu", "eager", dtype, parameters(model), {"batch_size": 8})


def _asked(request: LoadRequest, observation: str) -> Any:
    from conformance.engines.transformers import TransformersRunner

    model, suite = embedded()[request.model]
    known = Answers(recorded(request.model, "float32", "ieee")[0].__getitem__)
    with TransformersRunner(request) as runner:
        ask = Ask(runner, suite.inputs(), parameters(model), {}, Tokenizer(model.folder), known, known)
        return getattr(suite, observation)(ask)


def _logprobs(request: LoadRequest) -> Judgement:
    precision = "ieee" if request.dtype == "float32" else "eager"
    reference, yardstick = recorded(request.model, request.dtype, precision)
    greedy: Any = reference["greedy"]
    return criteria.tokens.logprobs_agree(
        x=_asked(request, "prefilled").values,
        r=reference["prefilled"].values,  # type: ignore[attr-defined]
        e=yardstick["prefilled"].values,  # type: ignore[attr-defined]
        dtype=request.dtype,
        precision=precision,
        prompt_lengths=[len(ids) for ids in greedy.prompt_token_ids],
        forced=anchoring.mask(greedy),
    )


def _ratio(judgement: Judgement) -> float:
    return next(figure.value for figure in judgement.figures if figure.name == "pooled ratio")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "dtype", "change", "at_least"),
    [
        (MISTRAL, "bfloat16", {"sliding_window": None}, 10),
        (MISTRAL, "bfloat16", {"sliding_window": 65}, 1.5),
        (MISTRAL, "bfloat16", {"sliding_window": 63}, 1.5),
        (GEMMA, "bfloat16", {"sliding_window": 2048}, 10),
        (GEMMA, "bfloat16", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, 10),
        (GEMMA, "bfloat16", {"layer_types": ["sliding_attention"] * 3}, 1.5),
        (GEMMA, "float32", {"sliding_window": 65}, 5),
        (GEMMA, "float32", {"sliding_window": 63}, 5),
        (GEMMA, "bfloat16", {"attn_logit_softcapping": None}, 3),
        (GEMMA, "bfloat16", {"final_logit_softcapping": None}, 50),
        (GEMMA, "bfloat16", {"query_pre_attn_scalar": 128}, 5),
    ],
)
def test_a_wrong_window_cap_or_scale_changes_logprobs_beyond_the_limit(
    tmp_path: Path, name: str, dtype: str, change: dict[str, Any], at_least: float
) -> None:
    judgement = _logprobs(_altered(tmp_path, name, dtype, change))
    assert judgement.verdict is Verdict.FAIL
    assert _ratio(judgement) > at_least, f"{_ratio(judgement):.2f}"


@pytest.mark.torch
@pytest.mark.parametrize("name", [MISTRAL, GEMMA])
def test_the_model_as_it_is_passes(tmp_path: Path, name: str) -> None:
    assert _logprobs(_altered(tmp_path, name, "bfloat16", {})).verdict is Verdict.PASS


@pytest.mark.torch
@pytest.mark.parametrize(("name", "ignored"), [(MISTRAL, None), (GEMMA, 2048)])
def test_who_ignores_the_window_gives_other_answers(tmp_path: Path, name: str, ignored: int | None) -> None:
    found = _asked(_altered(tmp_path, name, "float32", {"sliding_window": ignored}), "greedy")
    judgement = criteria.tokens.texts_are_known(texts=found.texts, known=windowed.inputs().continuations)
    assert judgement.verdict is Verdict.FAIL


@pytest.mark.torch
def test_the_ideal_fused_attention_caps_scores() -> None:
    """Otherwise the yardstick of fused kernels would be off by the cap, and no error within it would be found."""
    reference, eager = recorded(GEMMA, "bfloat16", "eager")
    _, fused = recorded(GEMMA, "bfloat16", "fused")
    r, e, f = (each["prefilled"].values for each in (reference, eager, fused))  # type: ignore[attr-defined]
    forced = anchoring.mask(reference["greedy"])  # type: ignore[arg-type]
    assert ((f - r)[forced] ** 2).mean() < 1.5 * ((e - r)[forced] ** 2).mean()


def test_both_models_are_found_to_need_what_they_need() -> None:
    mistral, gemma = (embedded()[name][0] for name in (MISTRAL, GEMMA))
    assert (mistral.window, mistral.softcap) == (64, None)
    assert (gemma.window, gemma.softcap) == (64, 5.0)
    assert replace(gemma, folder=Path("nowhere")).softcap is None
