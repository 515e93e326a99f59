"""Writes a checkpoint's files so that transformers 4.56 and 5 read the same model and tokenizer from them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, PreTrainedModel

from .architectures import MROPE_SECTION, ROPE_THETA
from .drawing import SETTINGS
from .vocabulary import END_OF_TEXT


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_weights(folder: Path, model: PreTrainedModel) -> None:
    rounded = copy.deepcopy(model).to("cpu", torch.bfloat16)
    if rounded.can_generate():
        text = rounded.config.get_text_config()
        end, pad = text.eos_token_id, text.pad_token_id
        rounded.generation_config = GenerationConfig(do_sample=False, eos_token_id=end, pad_token_id=pad)
    rounded.save_pretrained(folder)


def _complete_config(folder: Path) -> None:
    """Adds the spellings of version 4 to those of version 5."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    config["dtype"] = config["torch_dtype"] = "bfloat16"
    if config["model_type"] == "xlm-roberta":
        config["position_embedding_type"] = "absolute"
    elif config["model_type"] == "qwen2_vl":
        _complete_qwen2vl(config)
    else:
        config["rope_theta"] = ROPE_THETA
        config["rope_scaling"] = None
        if not config.get("sliding_window"):
            config["use_sliding_window"] = False
            config["sliding_window"] = None
    _write_json(path, config)
    path = folder / "generation_config.json"
    if path.exists():
        generation = json.loads(path.read_text(encoding="utf-8"))
        generation.pop("transformers_version", None)
        _write_json(path, generation)


def _complete_qwen2vl(config: dict[str, Any]) -> None:
    """The published form: text keys at the top level too, and `in_chans`, which SGLang reads."""
    text, vision = config["text_config"], config["vision_config"]
    scaling = {"type": "mrope", "mrope_section": MROPE_SECTION}
    text |= {"rope_theta": ROPE_THETA, "rope_scaling": scaling, "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    vision |= {"in_chans": vision["in_channels"], "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    for key, value in text.items():
        if key not in ("model_type", "rope_parameters"):
            config.setdefault(key, value)


def _write_preprocessor(folder: Path) -> None:
    """What Qwen2-VL's own says."""
    _write_json(
        folder / "preprocessor_config.json",
        {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": list(SETTINGS.mean),
            "image_processor_type": "Qwen2VLImageProcessor",
            "image_std": list(SETTINGS.std),
            "max_pixels": SETTINGS.max_pixels,
            "merge_size": SETTINGS.merge_size,
            "min_pixels": SETTINGS.min_pixels,
            "patch_size": SETTINGS.patch_size,
            "processor_class": "Qwen2VLProcessor",
            "resample": 3,
            "rescale_factor": 1 / 255,
            "size": {"longest_edge": SETTINGS.max_pixels, "shortest_edge": SETTINGS.min_pixels},
            "temporal_patch_size": SETTINGS.temporal_patch_size,
        },
    )


def _write_tokenizer(
    folder: Path, tokenizer: Tokenizer, encoder: bool, positions: int, end: str, chat: str | None
) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"eos_token": end, "pad_token": "<pad>" if encoder else END_OF_TEXT}
    if encoder:
        roles |= {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>"}
    added = {
        str(number): {
            "content": token.content,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    config: dict[str, Any] = {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": positions,
        "padding_side": "right" if encoder else "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
        **roles,
    }
    if chat:
        config["chat_template"] = chat
        (folder / "chat_template.jinja").write_text(chat, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", roles)


def write(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, end: str, chat: str | None) -> None:
    """The checkpoint's weights in bfloat16, its configuration and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_weights(folder, model)
    _complete_config(folder)
    encoder = model.config.model_type == "xlm-roberta"
    positions = 1280 if encoder else model.config.get_text_config().max_position_embeddings
    _write_tokenizer(folder, tokenizer, encoder, positions, end, chat)
    if model.config.model_type == "qwen2_vl":
        _write_preprocessor(folder)
