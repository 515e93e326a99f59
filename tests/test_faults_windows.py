"""Faults of sliding windows, softcaps and Gemma's norms, on small random models that have them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from injected import differ, request
from replay import embedded

from conformance.faults import library
from conformance.faults.fault import parse_injection

pytestmark = pytest.mark.torch

WINDOW = 8
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1248,
    "sliding_window": WINDOW,
    "initializer_range": 0.3,
    "pad_token_id": 1245,
    "eos_token_id": 1247,
    "bos_token_id": None,
}
PROMPTS = [list(range(100, 125)), list(range(300, 317)), list(range(40, 45))]


def _random(kind: str, folder: Path) -> Path:
    """A model of random weights, with the tokenizer of the embedded text model."""
    import torch
    import transformers

    extra = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0} if kind == "Gemma2" else {}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **extra)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for name, weight in model.named_parameters():  # norms that differ from doing nothing
        if "norm" in name:
            torch.nn.init.uniform_(weight.data, 0.5, 1.5)
    model.save_pretrained(folder, safe_serialization=True)
    for file in embedded()["generation-qwen3"][0].folder.glob("*token*.json"):
        shutil.copy(file, folder)
    return folder


def _answers(runner: Any) -> dict[str, Any]:
    import numpy as np

    candidates = np.arange(5, 25)[None, None, :].repeat(3, 0).repeat(6, 1)
    forced = [tuple(range(50, 56))] * 3
    return {via: runner.score_tokens(PROMPTS, forced, candidates, via=via) for via in ("prefill", "decode")}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from conformance.engines.transformers import TransformersRunner

    found: dict[tuple[str, str], Any] = {}

    def of(kind: str, attention: str) -> Any:
        if (kind, attention) not in found:
            folder = _random(kind, tmp_path_factory.mktemp(kind))
            runner = TransformersRunner(request("generation-qwen3", folder=folder, attention=attention)).__enter__()
            found[kind, attention] = runner, _answers(runner)
        return found[kind, attention]

    yield of
    for runner, _ in found.values():
        runner.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("kind", "attention", "fault"),
    [
        *(
            ("Mistral", attention, fault)
            for attention in ("eager", "sdpa")
            for fault in ("window.plus-one", "window.minus-one", "window.ignored", "window.minus-one@middle")
        ),
        *(
            ("Gemma2", "eager", fault)
            for fault in (
                *("window.everywhere", "window.plus-one", "norm.one-dropped", "softcap.dropped", "softcap.wrong-cap"),
                *("softcap.after-mask", "softcap.final-dropped", "norm.cast-first", "softcap.dropped@middle"),
            )
        ),
    ],
)
def test_a_fault_of_windows_or_caps_changes_the_answers(kind: str, attention: str, fault: str, loaded: Any) -> None:
    from conformance.faults.host import Host

    runner, clean = loaded(kind, attention)
    injection = parse_injection(fault)
    found = library.fault(injection.fault)
    assert found.applies(runner.model.config.to_dict(), "generation") is None
    host = Host(runner, injection)
    found.inject(host)
    faulty = _answers(runner)
    host.close()
    assert differ(faulty, clean)
    assert not differ(_answers(runner), clean)


@pytest.mark.parametrize("fault", ["window.plus-one", "window.minus-one", "window.ignored"])
@pytest.mark.parametrize("lengths", [[3, 8, 20], [9], [20, 1]])
def test_windows_change_by_exactly_what_is_said(fault: str, lengths: list[int]) -> None:
    """Against masks that are written out key by key, padding on the left included."""
    from types import SimpleNamespace

    import torch

    from conformance.faults.kernel import KernelCall

    longest = max(lengths)

    def mask(window: int) -> Any:
        seen = torch.zeros(len(lengths), 1, longest, longest, dtype=torch.bool)
        for row, length in enumerate(lengths):
            for query in range(longest - length, longest):
                for key in range(longest - length, query + 1):
                    seen[row, 0, query, key] = query - key < window
        return seen

    asked: list[Any] = []

    def kernel(module: Any, query: Any, key: Any, value: Any, given: Any, **options: Any) -> Any:
        asked.append(given)
        return query.transpose(1, 2), None

    changes: list[Any] = []
    host = SimpleNamespace(attention=changes.append)
    library.fault(fault).inject(host)  # type: ignore[arg-type]
    states = torch.zeros(len(lengths), 1, longest, 4)
    changes[0](KernelCall(SimpleNamespace(), states, states, states, mask(WINDOW), {}, kernel, "sdpa"))
    expected = {"window.plus-one": WINDOW + 1, "window.minus-one": WINDOW - 1, "window.ignored": longest}[fault]
    real = mask(longest).any(-1)  # queries that are padding see nothing that anyone reads
    assert torch.equal(asked[0] & real[..., None], mask(expected))
