"""Model folders in the real shapes: the catalogue's configuration, random weights, and a tokenizer that is borrowed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from conformance.catalogue import Catalogue, Model
from conformance.engines.loaded_model import auto_class

SHARD = 1 << 30
PICTURE_TOKENS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
PREPROCESSOR = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
"""As Qwen2-VL publishes them; mean and deviation are the defaults of its processor."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def write_model(model: Model, role: str, folder: Path, device: str) -> int:
    """A model folder with the catalogue's configuration and seeded random weights; how many parameters it has.

    Norms are one, biases zero and all else normal with the configuration's `initializer_range`. The shards hold at
    most 1 GiB, so that little memory is needed.
    """
    folder.mkdir(parents=True)
    assert model.configuration is not None
    shutil.copy(model.configuration, folder / "config.json")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        empty = auto_class(role).from_config(config)
    tied = set(getattr(empty, "all_tied_weights_keys", None) or getattr(empty, "_tied_weights_keys", None) or ())
    tied &= {"lm_head.weight"} if getattr(config, "tie_word_embeddings", True) else set()
    spread = float(getattr(config, "initializer_range", 0.02))
    generator = torch.Generator(device).manual_seed(20261130)
    shard: dict[str, torch.Tensor] = {}
    places: dict[str, str] = {}
    held = written = 0

    def flush() -> None:
        nonlocal held
        name = f"model-{len(set(places.values())) + 1:05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(shard, name))
        shard.clear()
        held = 0

    for name, weight in empty.state_dict().items():
        if name in tied or not weight.is_floating_point():
            continue
        made = torch.empty(weight.shape, dtype=torch.bfloat16, device=device)
        if "norm" in name.lower() or ".ln_q" in name:
            made.fill_(0.0 if name.endswith("bias") else 1.0)
        elif name.endswith("bias"):
            made.zero_()
        else:
            made.normal_(0.0, spread, generator=generator)
        shard[name] = made.cpu()
        held += made.nbytes
        written += made.nbytes
        if held >= SHARD:
            flush()
    if shard:
        flush()
    index = {"metadata": {"total_size": written}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return sum(weight.numel() for weight in empty.parameters())


def borrow_tokenizer(role: str, catalogue: Catalogue, folder: Path) -> None:
    """That of the embedded model with this role, or, where none has it, of the generation model."""
    for wanted in (role, "generation"):
        for model in catalogue.models:
            if model.tier == "embedded" and wanted in model.roles:
                for name in TOKENIZER:
                    if (model.folder / name).is_file():
                        shutil.copy(model.folder / name, folder)
                if role == "multimodal":
                    _teach_pictures(folder)
                return


def _teach_pictures(folder: Path) -> None:
    """Placeholders of pictures in the borrowed tokenizer, its ids in the configuration, and how pictures are cut."""
    from tokenizers import Tokenizer as Backend

    tokenizer = Backend.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([*PICTURE_TOKENS.values(), "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.update({key: tokenizer.token_to_id(token) for key, token in PICTURE_TOKENS.items()})
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {**PREPROCESSOR, "image_mean": [0.48145466, 0.4578275, 0.40821073]}
    shapes["image_std"] = [0.26862954, 0.26130258, 0.27577711]
    (folder / "preprocessor_config.json").write_text(json.dumps(shapes))
