"""A model's shape, read from its config.json: enough to count parameters and activations without the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conformance import checkpoint

DECODERS = {"qwen2": "Qwen2", "qwen3": "Qwen3", "qwen2_vl": "Qwen2VL"}
ENCODERS = {"bert": "Bert", "xlm-roberta": "XLMRoberta"}

WITH_LANGUAGE_HEAD = ("rerank.decoder", "generation", "generation.window", "multimodal")
"""Roles that read logprobs of the vocabulary."""

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class VisionShape:
    """A vision tower of the Qwen2-VL family: `channels` x `patch` x `patch` pixels of `frames` frames make a patch."""

    layers: int
    hidden: int
    heads: int
    ratio: int
    patch: int
    frames: int
    channels: int
    merge: int


@dataclass(frozen=True)
class Shape:
    """What decides parameters and activations. `family` is config.json's model_type."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    tied: bool
    labels: int
    stored: str  # the dtype of the published weights
    vision: VisionShape | None = None

    @property
    def is_encoder(self) -> bool:
        """Whether attention is bidirectional and there is no cache."""
        return self.family in ENCODERS


@cache
def read_shape(config: Path) -> Shape | None:
    """The shape that a config.json describes; None for a family that is not known here, or a file without it."""
    try:
        return shape_of(checkpoint.config(config.parent, config.name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """The shape of a parsed config.json. Raises KeyError or TypeError where a size is missing."""
    family = config.get("model_type")
    text = {**config, **config.get("text_config", {})}
    if family not in (*DECODERS, *ENCODERS):
        return None
    heads = int(text["num_attention_heads"])
    hidden = int(text["hidden_size"])
    labels = config.get("num_labels") or len(config.get("id2label") or ()) or 2
    return Shape(
        family=str(family),
        layers=int(text["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_size=int(text.get("head_dim") or hidden // heads),
        intermediate=int(text["intermediate_size"]),
        vocabulary=int(text["vocab_size"]),
        positions=int(text["max_position_embeddings"]),
        token_types=int(text.get("type_vocab_size") or 0),
        tied=bool(config.get("tie_word_embeddings", family in ENCODERS)),
        labels=int(labels),
        stored=str(config.get("dtype") or config.get("torch_dtype") or "float32"),
        vision=_vision(config["vision_config"]) if "vision_config" in config else None,
    )


def _vision(config: Mapping[str, Any]) -> VisionShape:
    return VisionShape(
        layers=int(config["depth"]),
        hidden=int(config["embed_dim"]),
        heads=int(config["num_heads"]),
        ratio=int(config["mlp_ratio"]),
        patch=int(config["patch_size"]),
        frames=int(config["temporal_patch_size"]),
        channels=int(config.get("in_channels") or config.get("in_chans") or 3),
        merge=int(config["spatial_merge_size"]),
    )


def parameters(shape: Shape, role: str) -> int:
    """How many parameters the class holds that a model is loaded as in `role`; tied ones count once."""
    return _trunk(shape) + _head(shape, role)


def largest_product(shape: Shape, role: str) -> int:
    """Elements of the largest weight that is multiplied by: the language head's, where `role` has one."""
    rows = shape.vocabulary if role in WITH_LANGUAGE_HEAD else shape.intermediate
    return rows * shape.hidden


def _trunk(shape: Shape) -> int:
    h, i = shape.hidden, shape.intermediate
    if shape.is_encoder:
        embeddings = (shape.vocabulary + shape.positions + shape.token_types) * h + 2 * h
        layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 4 * h
        return embeddings + shape.layers * layer
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    layer = h * query + 2 * h * key + query * h + 3 * h * i + 2 * h
    if shape.family == "qwen3":
        layer += 2 * shape.head_size  # norms of query and key
    else:
        layer += query + 2 * key  # biases
    return shape.vocabulary * h + shape.layers * layer + h + (_vision_tower(shape) if shape.vision else 0)


def _vision_tower(shape: Shape) -> int:
    v = shape.vision
    assert v is not None
    e, inner, merged = v.hidden, v.hidden * v.ratio, v.hidden * v.merge**2
    block = 4 * e + (3 * e * e + 3 * e) + (e * e + e) + (e * inner + inner) + (inner * e + e)
    merger = 2 * e + (merged * merged + merged) + (merged * shape.hidden + shape.hidden)
    return v.channels * v.frames * v.patch**2 * e + v.layers * block + merger


def _head(shape: Shape, role: str) -> int:
    h = shape.hidden
    task = role.split(".")[0]
    if shape.is_encoder:
        if task == "embedding" or shape.family == "bert":
            pooler = h * h + h
            return pooler if task == "embedding" else pooler + shape.labels * (h + 1)
        return h * h + h + shape.labels * (h + 1)  # a dense layer in the place of the pooler
    if task == "embedding":
        return 0
    if role in WITH_LANGUAGE_HEAD:
        return 0 if shape.tied else shape.vocabulary * h
    return shape.labels * h
