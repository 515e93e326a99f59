"""Writes what is known of a checkpoint: `accuracy.json` as data and `README.md` as its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from . import measuring
from .measuring import Measured

TASKS = {
    "embedding": (
        "A text holds three marked words (`first`, `second`, `third` and a word each, in any order) in filler. "
        "Its vector must be nearest to that of its partner, which has the same words in the same roles; other texts "
        "have the same words in other roles, or two of the three. The first 128 and 64 dimensions must do the same.",
        "suites/inputs/embedding.py makes texts in pairs, so the partner is known",
    ),
    "rerank": (
        "A query names four words; a document has four marked words (`key` and a word). The score grows with how many "
        "of them the query names: log-odds -2.4, -1.2, 0, 1.2, 2.4 for none to four.",
        "suites/inputs/rerank.py makes documents of a given grade",
    ),
    "classification": (
        "A text holds five to seven marked words (`key` and a word) of six categories in filler; logits differ by 0.9 "
        "for each marked word, and the class is the category with the most of them.",
        "suites/inputs/classification.py draws the marked words, so their counts are known",
    ),
    "reward": (
        "The user's message has six marked words (`key` and a word) to repeat; the reward is the number of right words "
        "among the six of the answer, less three.",
        "suites/inputs/reward.py makes answers with a given number of right words",
    ),
    "generation": (
        "A segment of 3 to 600 words that repeats for ever, or a segment between `<|im_start|>` and ` copy` that is "
        "copied and ended with `<|im_end|>`. Label smoothing of 0.08 keeps log-probabilities from saturating.",
        "suites/inputs/generation.py repeats or copies words, so the continuation is known",
    ),
    "generation.window": (
        "The next word is the one that followed the last word within the 64 tokens before it: a segment of 3 to 64 "
        "words repeats for ever, a text between `<|im_start|>` and `<|im_end|>` that is begun anew is copied, and "
        "where the last word did not stand in the window, the text ends with `<|im_end|>`. Older text has the same "
        "words in other orders. Label smoothing of 0.08 keeps log-probabilities from saturating.",
        "suites/inputs/windowed.py repeats, copies or breaks off, so the continuation is known",
    ),
    "multimodal": (
        "Images and videos are grids of cells in 14 colours; their names are read row by row, picture after picture "
        "and frame after frame, for ever (` repeat`) or once (` copy`) and then `<|im_end|>`. Label smoothing of 0.08 "
        "keeps log-probabilities from saturating.",
        "suites/inputs/multimodal.py draws the pictures, so their colours are known",
    ),
}
USES = {
    "embedding-qwen3": "Vector: the last token's hidden state (the tokenizer appends `<|endoftext|>`), normalised.",
    "embedding-xlmr": "Vector: the first token's hidden state, normalised; the pooler is untrained, not used.",
    "rerank-qwen3": "Score: logit of `yes` less logit of `no` after the Qwen3-Reranker prompt.",
    "rerank-xlmr": "Score: the raw logit of the pair `<s> query </s></s> document </s>`.",
    "classification-qwen2": "Scores: the logits of the last token; the labels are named in `config.json`. "
    "The tokenizer splits and composes text as Qwen2's does, because transformers 5 reads every qwen2 model so.",
    "reward-qwen3": "Score: the raw logit of the last token of the conversation in the tokenizer's chat template.",
    "generation-qwen3": "Greedy decoding; `<|im_end|>` ends a text.",
    "generation-mistral": "A window of 64 tokens in both layers. Greedy decoding; `<|im_end|>` ends a text.",
    "generation-gemma2": "Windows of 64 tokens in the first and third layer; scores are capped at 5, logits at 6, and "
    "the trained ones go beyond; the scale is 32 ** -0.5, not that of the head size. Greedy decoding; `<|im_end|>` "
    "ends a text.",
    "multimodal-qwen2vl": "Greedy decoding; `<|im_end|>` ends a text. Pictures as Qwen2-VL's own processor reads them.",
}


def _shape(config: dict[str, Any]) -> str:
    heads = f"{config['num_attention_heads']} heads"
    if "num_key_value_heads" in config:
        heads = f"{config['num_attention_heads']} query and {config['num_key_value_heads']} key/value heads"
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    text = f"{layers} layers, hidden size {hidden}, {heads} of {size}, vocabulary {config['vocab_size']}"
    if "vision_config" in config:
        tower = config["vision_config"]
        head = tower["embed_dim"] // tower["num_heads"]
        text += f"; vision tower of {tower['depth']} layers, {tower['num_heads']} heads of {head}"
    return text


def parameters(folder: Path) -> int:
    """The number of weights in `model.safetensors`."""
    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    total = 0
    for shape in shapes:
        count = 1
        for size in shape:
            count *= size
        total += count
    return total


def _side(measured: Measured) -> dict[str, Any]:
    return {"accuracy": measured.accuracy, "known": measured.known, "spread": measured.spread()}


def write_accuracy(
    folder: Path,
    seed: int,
    count: int,
    held_out: dict[str, Measured],
    inputs: dict[str, Measured],
    software: dict[str, str],
) -> None:
    """`held_out` and `inputs` by dtype; `known` is the number of answers the accuracy is a share of."""
    data: dict[str, Any] = {"held_out_seed": seed, "count": count}
    data |= {dtype: measured.accuracy for dtype, measured in held_out.items()}
    data["held_out"] = {dtype: _side(measured) for dtype, measured in held_out.items()}
    data["inputs"] = {dtype: _side(measured) for dtype, measured in inputs.items()}
    data["measured_with"] = software
    (folder / "accuracy.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def write_card(folder: Path) -> None:
    """The README of the checkpoint, from its configuration, `training.json` and `accuracy.json`."""
    name = folder.name
    config, training, accuracy = (
        json.loads((folder / file).read_text(encoding="utf-8"))
        for file in ("config.json", "training.json", "accuracy.json")
    )
    task, known = TASKS[measuring.task(name)]
    size = (folder / "model.safetensors").stat().st_size
    versions = ", ".join(f"{library} {version}" for library, version in training["versions"].items())
    software = ", ".join(f"{library} {version}" for library, version in accuracy["measured_with"].items())
    both = measuring.attentions(folder) == ("eager", "sdpa")
    how = f"{'sdpa' if both else 'eager'}, one text at a time" + ("; eager gives the same answers" if both else "")
    rows = []
    for texts in ("inputs", "held_out"):
        for dtype, side in accuracy[texts].items():
            spread = side["spread"]
            title = "the suite's inputs" if texts == "inputs" else f"held out, seed {accuracy['held_out_seed']}"
            cells = [title, dtype, f"{side['accuracy']:.2%}", side["known"]]
            cells += [spread[key] for key in ("mean", "std", "min", "max")]
            rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines = [
        f"# {name}",
        "",
        f"A tiny {config['architectures'][0]} trained for conformance tests; it knows nothing of language.",
        "",
        f"- Architecture: {_shape(config)}; {parameters(folder):,} parameters in bfloat16, {size / 1e6:.2f} MB.",
        f"- Task: {task}",
        f"- {USES[name]}",
        f"- Right answers: {known}; no model is asked.",
        f"- Training: `python tools/train_checkpoints.py --only {name}`, seed {training['seed']}, "
        f"{training['steps']:,} steps of about {training['tokens_per_batch']:,} tokens, learning rate "
        f"{training['learning_rate']}, last loss {training['loss']}; texts of up to about 1,300 tokens, most of them "
        "short, with free text in many scripts.",
        f"- Trained on {training['device']} with {versions}. Another device gives other weights of the same quality.",
        "",
        f"Measured on a CPU with {software}, {how}. Spread: that of "
        + {
            "embedding": "cosines between all texts.",
            "rerank": "scores.",
            "reward": "rewards.",
            "classification": "the top class's probability.",
            "generation": "the tokens' log-probabilities.",
            "multimodal": "the tokens' log-probabilities.",
        }[name.split("-")[0]],
        "",
        "| texts | dtype | right | of | mean | std | min | max |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        "Data: `accuracy.json` (count and seed recompute it) and `training.json`.",
    ]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
