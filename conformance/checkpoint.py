"""A model folder, looked at without torch: is everything there that a run needs, and nothing that it must not load?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HASHED = (
    "*.safetensors",
    "*.model",
    "config.json",
    "generation_config.json",
    "*tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*processor*.json",
    "chat_template*",
    "*.py",  # loaded only where the catalogue turns a model's own code on
)
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Where a model says how its pictures are read, the first that is there."""


class CheckpointError(Exception):
    """A model folder cannot be used; the message names the file, what is wrong with it and what would be right."""


def check(folder: Path, *, vision: bool = False) -> None:
    """Raise `CheckpointError`, with every fault of the folder, unless it can be loaded safely.

    With `vision` it must also have a vision tower, and say how pictures are read.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; a model is a folder with config.json and *.safetensors")
    faults = [*_config_faults(folder), *_weight_faults(folder), *_tokenizer_faults(folder), *_limit_faults(folder)]
    if vision:
        faults += _vision_faults(folder)
    if faults:
        raise CheckpointError("\n".join(faults))


def digest(folder: Path) -> str:
    """sha256 over names and contents of everything in the folder that changes what the model computes."""
    whole = hashlib.sha256()
    for file in sorted({file for pattern in HASHED for file in folder.glob(pattern) if file.is_file()}):
        whole.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                whole.update(chunk)
    return whole.hexdigest()


def layers(folder: Path) -> int | None:
    """The text model's attention layers, where config.json says; it may say so of a part of its own."""
    found = config(folder)
    count: int | None = found.get("num_hidden_layers") or found.get("text_config", {}).get("num_hidden_layers")
    return count


def window(found: Mapping[str, Any]) -> int | None:
    """How many tokens a sliding layer of the text model sees, by its config.json; None where no layer slides.

    Qwen2's names a window that it does not use; Gemma's and others' say which layers slide.
    """
    text = found.get("text_config", found)
    size: int | None = text.get("sliding_window")
    kinds = text.get("layer_types")
    unused = text.get("use_sliding_window") is False or (kinds is not None and "sliding_attention" not in kinds)
    return None if unused or not size else int(size)


def softcap(found: Mapping[str, Any]) -> float | None:
    """The cap of the text model's attention scores, by its config.json; None where they have none."""
    cap: float | None = found.get("text_config", found).get("attn_logit_softcapping")
    return float(cap) if cap else None


def vision_layers(folder: Path) -> int | None:
    """The vision tower's attention layers, where config.json says."""
    tower = config(folder).get("vision_config", {})
    count: int | None = tower.get("depth") or tower.get("num_hidden_layers")
    return count


def config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """The parsed config.json of a folder that was checked."""
    found: dict[str, Any] = read_json(folder / name)
    return found


def read_json(file: Path) -> Any:
    """What is in a JSON file that nobody vouches for. Raises OSError, and ValueError for all that is no JSON."""
    try:
        return json.loads(file.read_text("utf-8"))
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def token_limit(folder: Path) -> int | None:
    """How many tokens a prompt may have: the tokenizer's limit or the position table's, whichever is smaller."""
    limits = [config(folder).get("max_position_embeddings")]
    file = folder / "tokenizer_config.json"
    if file.is_file():
        limits.append(read_json(file).get("model_max_length"))
    known = [int(limit) for limit in limits if isinstance(limit, (int, float)) and 0 < limit < 1e9]
    return min(known, default=None)


def _config_faults(folder: Path) -> list[str]:
    try:
        if not isinstance(config(folder), dict):
            return [f"{folder / 'config.json'}: not a JSON object"]
    except FileNotFoundError:
        return [f"{folder / 'config.json'}: missing; the architecture cannot be known without it"]
    except OSError as error:
        return [_unreadable(folder / "config.json", error)]
    except ValueError as error:
        return [f"{folder / 'config.json'}: not JSON ({error})"]
    return []


def _weight_faults(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(file.name for pattern in PICKLED for file in folder.glob(pattern))
        if pickled:
            return [
                f"{folder}: only pickled weights ({', '.join(pickled)}), which are never loaded because they can run "
                "code; save the model with safe_serialization=True"
            ]
        return [f"{folder}: no weights; *.safetensors are needed"]
    return [*_shard_faults(folder), *(fault for file in files if (fault := _safetensors_fault(file)))]


def _shard_faults(folder: Path) -> list[str]:
    """The shards that the index names and the folder lacks; an interrupted download leaves such a folder."""
    faults = []
    for index in sorted(folder.glob("*.safetensors.index.json")):
        try:
            shards = set(read_json(index)["weight_map"].values())
            missing = sorted(str(shard) for shard in shards if not (folder / str(shard)).is_file())
        except OSError as error:
            faults.append(_unreadable(index, error))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            faults.append(f"{index}: not an index of weights ({type(error).__name__}: {error})")
        else:
            faults += [
                f"{folder / shard}: missing, though {index.name} names it; fetch the model again" for shard in missing
            ]
    return faults


def _unreadable(file: Path, error: OSError) -> str:
    return f"{file}: cannot be read ({error.strerror or error})"


def _safetensors_fault(file: Path) -> str | None:
    try:
        return _format_fault(file)
    except OSError as error:
        return _unreadable(file, error)


def _format_fault(file: Path) -> str | None:
    """A safetensors file is 8 bytes with the header's length, a JSON header, and exactly the bytes it lists."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            return f"{file}: truncated, or not a safetensors file (its header does not fit into {size} bytes)"
        try:
            header = json.loads(stream.read(length))
            ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
            return f"{file}: not a safetensors file (its header is not what the format prescribes)"
    if not ends:
        return f"{file}: holds no tensor"
    expected = 8 + length + max(ends)
    if size < expected:
        return f"{file}: truncated at {size} bytes; its header lists {expected}"
    return None


def _tokenizer_faults(folder: Path) -> list[str]:
    file = folder / "tokenizer.json"
    if not file.is_file():
        return [f"{file}: missing; the tokenizer must be a fast one saved as tokenizer.json"]
    try:
        tokenizer = read_json(file)
        vocabulary = tokenizer["model"]["vocab"]
        ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary)))
        ids += [token["id"] for token in tokenizer.get("added_tokens") or ()]
        largest = max(map(int, ids), default=-1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return [f"{file}: not a tokenizer that can be read ({type(error).__name__}: {error})"]
    limit = None if _config_faults(folder) else config(folder).get("vocab_size")
    if isinstance(limit, int) and largest >= limit:
        return [
            f"{file}: disagrees with the weights: it produces ids up to {largest}, "
            f"but config.json says vocab_size = {limit}"
        ]
    return []


def _vision_faults(folder: Path) -> list[str]:
    faults = []
    if not _config_faults(folder) and not isinstance(config(folder).get("vision_config"), dict):
        faults.append(f"{folder / 'config.json'}: no vision_config, so no vision tower; give a model that has one")
    if not any((folder / name).is_file() for name in PREPROCESSORS):
        faults.append(f"{folder}: neither {' nor '.join(PREPROCESSORS)}, which say how its pictures are read")
    return faults


def _limit_faults(folder: Path) -> list[str]:
    file = folder / "tokenizer_config.json"
    try:
        if not isinstance(read_json(file), dict):
            return [f"{file}: not a JSON object"]
    except FileNotFoundError:
        return [f"{file}: a link to a file that is not there"] if file.is_symlink() else []
    except OSError as error:
        return [_unreadable(file, error)]
    except ValueError as error:
        return [f"{file}: not JSON ({error})"]
    return []
