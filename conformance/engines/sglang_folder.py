"""A checkpoint's folder as SGLang is given it, where it needs a tensor more than the checkpoint has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

ZEROS = "zeros"
"""The value of the engine option `score_bias` for which a checkpoint gets the bias that its score has not."""


def with_score_bias(folder: Path, into: Path) -> Path:
    """`folder`, or where its score has a weight and no bias, links in `into` to its files beside a bias of zeros.

    The model computes the same. ValueError where the weights are spread over files, of which an index says all.
    """
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise ValueError(f"{folder}: {len(files)} files of weights, but a bias of zeros can be put beside one alone")
    with safe_open(files[0], "np") as weights:
        if "score.weight" not in weights.keys() or "score.bias" in weights.keys():  # noqa: SIM118 - no mapping
            return folder
        classes = weights.get_slice("score.weight").get_shape()[0]
    into.mkdir()
    for file in folder.iterdir():
        (into / file.name).symlink_to(file.resolve())
    save_file({"score.bias": np.zeros(classes, np.float32)}, into / "score-bias.safetensors", {"format": "pt"})
    return into
