"""The tools' vision tower, which takes many pictures at once, computes what transformers' own does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from replay import embedded

pytestmark = pytest.mark.torch
TOOLS = Path(__file__).resolve().parent.parent / "tools"


def test_many_pictures_at_once_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    from training import tower

    folder = embedded()["multimodal-qwen2vl"][0].folder
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    generator = torch.Generator().manual_seed(0)
    groups = [
        (torch.rand(count, rows * columns, 1176, generator=generator), (rows, columns))
        for count, rows, columns in ((3, 4, 6), (2, 2, 8))
    ]
    with torch.no_grad():
        together = tower.merged(model.model.visual, groups)
        for (patches, grid), found in zip(groups, together, strict=True):
            for picture, mine in zip(patches, found, strict=True):
                theirs = model.model.get_image_features(picture, torch.tensor([[1, *grid]]))
                (alone,) = getattr(theirs, "pooler_output", theirs)
                torch.testing.assert_close(mine, alone, rtol=1e-4, atol=1e-4)
