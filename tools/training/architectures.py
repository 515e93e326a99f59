"""The models' configurations; small, with the head sizes and grouped heads of the real ones.

Decoders have four query and two key/value heads, so that a wrong head map changes the answer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForSequenceClassification,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3Model,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

from suites.inputs import classification
from suites.inputs.windowed import WINDOW

INITIAL_STD = 0.05
ROPE_THETA = 10000.0
MROPE_SECTION = [8, 12, 12]
"""Pairs of a head's dimensions that turn with time, row and column: 32 for a head of 64."""


def _decoder(
    vocabulary: int, hidden: int, inner: int, layers: int, positions: int, pad: int | None, end: int
) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "initializer_range": INITIAL_STD,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "pad_token_id": pad,
        "eos_token_id": end,
        "bos_token_id": None,
        "use_cache": True,
    }


def _encoder(vocabulary: int, **extra: Any) -> XLMRobertaConfig:
    """Position numbers start behind the padding's id 1, so 1,280 tokens take 1,282 rows."""
    return XLMRobertaConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=1282,
        type_vocab_size=1,
        initializer_range=INITIAL_STD,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        **extra,
    )


def _qwen2vl(tokenizer: Tokenizer, text: dict[str, Any]) -> Qwen2VLForConditionalGeneration:
    """Two vision heads of 80, as the real ones have."""
    text["rope_parameters"]["mrope_section"] = MROPE_SECTION
    vision = {
        "depth": 3,
        "embed_dim": 160,
        "hidden_size": text["hidden_size"],
        "mlp_ratio": 2,
        "num_heads": 2,
        "initializer_range": INITIAL_STD,
    }
    tokens = {
        f"{kind}_token_id": tokenizer.token_to_id(token)
        for kind, token in (
            ("vision_start", "<|vision_start|>"),
            ("vision_end", "<|vision_end|>"),
            ("image", "<|image_pad|>"),
            ("video", "<|video_pad|>"),
        )
    }
    text["tie_word_embeddings"] = True
    config = Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **tokens)
    for key in ("eos_token_id", "pad_token_id"):
        setattr(config, key, text[key])
    config.initializer_range = INITIAL_STD
    return Qwen2VLForConditionalGeneration(config)


def _gemma2(shape: dict[str, Any]) -> Gemma2ForCausalLM:
    """Windows in the first and last of three layers, as all engines place them, so that the last can decide answers.

    The caps are low enough that a trained model's scores and logits go beyond them.
    """
    config = Gemma2Config(
        head_dim=128,
        query_pre_attn_scalar=32,
        sliding_window=WINDOW,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=6.0,
        tie_word_embeddings=True,
        attn_implementation="eager",
        **shape,
    )
    return Gemma2ForCausalLM(config)


@torch.no_grad()
def _start_positions_as_waves(model: PreTrainedModel) -> None:
    """Sine waves as the positions' first values: "the token before" is one rotation, learnt for all places alike."""
    table = model.base_model.embeddings.position_embeddings.weight
    rows, width = table.shape
    frequencies = 2.0 * 400.0 ** (-torch.arange(width // 2) / (width // 2))
    angles = torch.arange(rows)[:, None] * frequencies
    table.copy_(INITIAL_STD * math.sqrt(2) * torch.cat((angles.sin(), angles.cos()), dim=1))
    table[1] = 0.0


def build(name: str, tokenizer: Tokenizer, pad: int, end: int) -> PreTrainedModel:
    """A fresh model for the checkpoint `name`."""
    vocabulary = tokenizer.get_vocab_size()
    if name == "multimodal-qwen2vl":
        return _qwen2vl(tokenizer, _decoder(vocabulary, 256, 384, 4, 1536, pad, end))
    if name == "embedding-qwen3":
        # No padding id: it is the end marker, whose row would then be zero and stay so, and with it every empty text.
        shape = _decoder(vocabulary, 256, 512, 3, 1280, None, end)
        return Qwen3Model(Qwen3Config(head_dim=64, tie_word_embeddings=False, **shape))
    if name == "rerank-qwen3":
        shape = _decoder(vocabulary, 128, 384, 4, 1536, pad, end)
        return Qwen3ForCausalLM(Qwen3Config(head_dim=128, tie_word_embeddings=True, **shape))
    if name == "generation-qwen3":
        shape = _decoder(vocabulary, 128, 384, 4, 1536, pad, end)
        return Qwen3ForCausalLM(Qwen3Config(head_dim=64, tie_word_embeddings=True, **shape))
    if name == "generation-mistral":
        shape = _decoder(vocabulary, 128, 384, 2, 1536, pad, end)
        return MistralForCausalLM(MistralConfig(head_dim=64, sliding_window=WINDOW, tie_word_embeddings=True, **shape))
    if name == "generation-gemma2":
        return _gemma2(_decoder(vocabulary, 128, 256, 3, 1536, pad, end))
    if name == "reward-qwen3":
        shape = _decoder(vocabulary, 128, 384, 4, 1536, pad, end)
        config = Qwen3Config(head_dim=64, tie_word_embeddings=False, num_labels=1, **shape)
        return Qwen3ForSequenceClassification(config)
    if name == "classification-qwen2":
        shape = _decoder(vocabulary, 256, 384, 3, 1536, pad, end)
        names = dict(enumerate(classification.LABELS))
        labels = {"id2label": names, "label2id": {label: number for number, label in names.items()}}
        return Qwen2ForSequenceClassification(Qwen2Config(tie_word_embeddings=False, **labels, **shape))
    model: PreTrainedModel
    if name == "embedding-xlmr":
        model = XLMRobertaModel(_encoder(vocabulary))
    elif name == "rerank-xlmr":
        model = XLMRobertaForSequenceClassification(_encoder(vocabulary, num_labels=1))
    else:
        raise ValueError(f"no checkpoint is named {name!r}")
    _start_positions_as_waves(model)
    return model
