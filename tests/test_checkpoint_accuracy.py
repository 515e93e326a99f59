"""The embedded checkpoints know their answers as well as their cards say, on texts that no training saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from replay import embedded

pytestmark = pytest.mark.torch
FLOORS = {"multimodal": 0.95}
"""An answer about pictures is 128 tokens of which each has to be right; most that are not are about long videos."""

TOOLS = Path(__file__).resolve().parent.parent / "tools"


@pytest.mark.parametrize("name", sorted(embedded()))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_accuracy_on_held_out_texts_is_what_the_card_says(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    from training import measuring

    folder = embedded()[name][0].folder
    card = json.loads((folder / "accuracy.json").read_text("utf-8"))
    kind = measuring.task(name)
    checkpoint = measuring.Checkpoint(folder, getattr(torch, dtype), measuring.attentions(folder)[-1])
    found = measuring.measure(checkpoint, measuring.TASKS[kind][0].held_out(card["held_out_seed"], card["count"]))
    assert found.accuracy >= FLOORS.get(kind, 0.98)
    # Kernels that round otherwise may turn a near-tie over.
    assert found.accuracy == pytest.approx(card[dtype], abs=0.01)


def test_the_checkpoints_are_small() -> None:
    weights = [model.folder / "model.safetensors" for model, _ in embedded().values()]
    assert sum(file.stat().st_size for file in weights) < 40e6


@pytest.mark.parametrize("name", sorted(embedded()))
def test_every_checkpoint_has_a_card(name: str) -> None:
    text = (embedded()[name][0].folder / "README.md").read_text("utf-8")
    for told in ("Architecture:", "Task:", "Right answers:", "Training:", "seed"):
        assert told in text
