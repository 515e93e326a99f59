"""The error ratio R against a model's depth and width: do limits that were found on small models hold for larger ones?

    python tools/ratio_by_size.py [--device cuda] [--output FILE.json] [--markdown FILE.md]

Qwen3 decoders with random weights of sensible scales (seeded; the same for every device), prompts of 32 to 128 tokens
in batches of equal length. For each size, attention implementation and dtype: R of the unit vectors at the last token
and of the log-probs at every token, pooled and for the worst prompt, beside the limit that a suite would hold it
against. The reference is fp64 throughout (`Widened`, eager attention); it is computed on the device under test, where
fp64 takes seconds instead of minutes, which only its speed depends on: 1e-15 is far below any error here. Yardsticks
are computed on the CPU as the suite has them (`--yardstick-device` for another), of float32 the worst of three.
Exit code 1 where a ratio is beyond its limit, or nothing could be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import numpy as np
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.criteria.arrays import Triple
from conformance.criteria.limits import limits
from conformance.criteria.ratio import errors, pick, pooled, worst
from conformance.engines.device import set_precision_switches
from conformance.reference.precision import Widened
from conformance.reference.runner import IDEAL_FUSED, move_frequencies

LENGTHS = (32, 65, 97, 128)
PROMPTS_EACH = 4
VOCABULARY = 1024
HEAD = 64
KERNELS = {
    "sdpa:flash": SDPBackend.FLASH_ATTENTION,
    "sdpa:cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa:math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Size:
    """Of a model: decoder layers, and the width of its residual stream."""

    layers: int
    width: int


Answers = dict[str, np.ndarray[Any, np.dtype[np.float64]]]
"""By kind of output: "vector" [n, width] and "logprobs" [n, longest, vocabulary], zero behind a prompt's end."""


def main() -> int:
    """Measure every size, and print the table."""
    options = _options()
    set_precision_switches()
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    with torch.no_grad():
        for layers in options.layers:
            for width in options.widths:
                rows += _measure(Size(layers, width), options)
                print(f"{layers} layers, {width} wide: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
                _write(rows, options)  # after each, so that a run that is cut short has shown something
    print(_markdown(rows, options))
    beyond = [row for row in rows if "refused" not in row and not row["holds"]]
    measured = [row for row in rows if "refused" not in row]
    print(f"{len(measured)} ratios, {len(beyond)} beyond their limits")
    return 1 if beyond or not measured else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--yardstick-device", default="cpu")
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 8, 16, 28])
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512, 1024, 1536])
    parser.add_argument("--dtypes", nargs="+", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--attention", nargs="+", help="eager, sdpa, or one of SDPA's kernels, as sdpa:flash")
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--output", metavar="FILE", type=Path)
    parser.add_argument("--markdown", metavar="FILE", type=Path)
    options = parser.parse_args()
    options.dtypes = options.dtypes or ["bfloat16", "float32"]
    options.attention = options.attention or ["eager", "sdpa", *(KERNELS if options.device != "cpu" else ())]
    if any(width % (2 * HEAD) for width in options.widths):
        parser.error(f"widths must be multiples of {2 * HEAD}: heads of {HEAD}, two of them to a key head")
    return options


def _measure(size: Size, options: argparse.Namespace) -> list[dict[str, Any]]:
    made, config = _weights(size, options.seed)
    weights = {
        device: {name: weight.to(device) for name, weight in made.items()}
        for device in {options.device, options.yardstick_device}
    }
    prompts = _prompts(options.seed)
    reference = _answer(config, weights, prompts, options.device, "eager", "float64")
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes:
        yardsticks: dict[str, Answers] = {}
        for attention in options.attention:
            claim = "ieee" if dtype == "float32" else "eager" if attention == "eager" else "fused"
            if claim not in yardsticks:
                yardsticks[claim] = _yardstick(
                    config, weights, prompts, options.yardstick_device, dtype, claim, reference
                )
            row = {"layers": size.layers, "width": size.width, "attention": attention, "dtype": dtype, "claim": claim}
            try:
                found = _answer(config, weights, prompts, options.device, attention, dtype)
            except RuntimeError as error:  # a kernel that refuses a dtype or grouped heads
                rows.append({**row, "refused": str(error).strip().splitlines()[0]})
                continue
            rows += [{**row, **_ratio(kind, found, reference, yardsticks[claim], dtype)} for kind in reference]
    return rows


def _ratio(kind: str, x: Answers, r: Answers, e: Answers, dtype: str) -> dict[str, Any]:
    known = limits()
    group = known.vector if kind == "vector" else known.tokens
    found = errors(Triple(x[kind], r[kind], e[kind]), dtype)
    ratio = pooled(found, pick(dtype, group.pooled_16bit, known.ratio.pooled_float32).value)
    prompt, single = worst(found, group.single.value)
    return {
        "kind": kind,
        "R": float(f"{ratio.value:.4g}"),
        "limit": float(f"{ratio.limit:.4g}"),
        "relative_error": float(f"{ratio.relative_error:.3g}"),
        "worst_prompt_R": float(f"{single.value:.4g}"),
        "worst_prompt": prompt,
        "worst_prompt_limit": float(f"{single.limit:.4g}"),
        "holds": ratio.value <= ratio.limit and single.value <= single.limit,
    }


def _yardstick(
    config: Any,
    weights: dict[str, dict[str, torch.Tensor]],
    prompts: Sequence[torch.Tensor],
    device: str,
    dtype: str,
    claim: str,
    reference: Answers,
) -> Answers:
    """Honest rounding of the claimed class; of float32, for each output, the variant furthest from the reference."""
    if claim != "ieee":
        attention = "eager" if claim == "eager" else IDEAL_FUSED
        return _answer(config, weights, prompts, device, attention, dtype)
    legal = [_answer(config, weights, prompts, device, "eager", dtype, ulps=ulps) for ulps in (0, 1, -1)]
    return {
        kind: max((each[kind] for each in legal), key=lambda values: float(np.square(values - reference[kind]).sum()))
        for kind in reference
    }


def _answer(
    config: Any,
    weights: dict[str, dict[str, torch.Tensor]],
    prompts: Sequence[torch.Tensor],
    device: str,
    attention: str,
    dtype: str,
    *,
    ulps: int = 0,
) -> Answers:
    """What the model answers with this attention and dtype; "float64" is the reference."""
    implementation = attention.partition(":")[0]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    rotary = type(model.model.rotary_emb)(config)  # its buffers are no weights, so they have to be made anew
    # float32 frequencies whatever the dtype, as every engine serves them.
    model = model.to(getattr(torch, dtype)).to_empty(device=device)
    model.load_state_dict(weights[device])
    model.model.rotary_emb = rotary.to(device)
    move_frequencies(model, ulps)
    model = model.eval()
    vectors, logprobs = [], []
    with _forced(attention), Widened() if dtype == "float64" else contextlib.nullcontext():
        for ids in prompts:
            output = model(input_ids=ids.to(device), use_cache=False, output_hidden_states=True)
            last = output.hidden_states[-1][:, -1].double()
            vectors.append(torch.nn.functional.normalize(last, dim=-1).cpu())
            found = torch.log_softmax(output.logits.double(), dim=-1).cpu()
            logprobs.append(torch.nn.functional.pad(found, (0, 0, 0, max(LENGTHS) - found.shape[1])))
    del model
    if device != "cpu":
        torch.get_device_module(device).empty_cache()
    return {"vector": torch.cat(vectors).numpy(), "logprobs": torch.cat(logprobs).numpy()}


@contextlib.contextmanager
def _forced(attention: str) -> Iterator[None]:
    """One of SDPA's kernels and no other, where one is named."""
    with sdpa_kernel(KERNELS[attention]) if attention in KERNELS else contextlib.nullcontext():
        yield


def _weights(size: Size, seed: int) -> tuple[dict[str, torch.Tensor], Any]:
    """Weights in bfloat16, so that every dtype serves the same numbers.

    Inner products keep the size of their inputs (variance 1 / inputs), what is added to the residual stream is divided
    by sqrt(2 layers); q's norm is 2 and logits spread by 4, so that attention is as peaky and log-probs reach as far as
    a trained model's.
    """
    heads = size.width // HEAD
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=3 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=HEAD,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, weight in empty.state_dict().items():
        if weight.dim() == 1:
            made = torch.full(weight.shape, 2.0 if "q_norm" in name else 1.0)
        else:
            spread = 1.0 if "embed_tokens" in name else weight.shape[1] ** -0.5
            if name.startswith("lm_head"):
                spread *= 4
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                spread /= (2 * size.layers) ** 0.5
            made = torch.empty(weight.shape).normal_(0.0, spread, generator=generator)
        weights[name] = made.bfloat16()
    return weights, config


def _prompts(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (PROMPTS_EACH, length), generator=generator) for length in LENGTHS]


def _write(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.output:
        document = {
            "command": " ".join(["python", "tools/ratio_by_size.py", *sys.argv[1:]]),
            "device": _device_name(options.device),
            "yardsticks_on": _device_name(options.yardstick_device),
            "reference": f"fp64, computed on {options.device}",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "prompts": {"lengths": LENGTHS, "each": PROMPTS_EACH},
            "rows": rows,
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(_markdown(rows, options) + "\n")


def _markdown(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    """One table a dtype and kind: sizes down, attention implementations across; `R (worst prompt)`."""
    said = [f"R on {_device_name(options.device)}, `pooled (worst prompt)`; in bold what is beyond its limit."]
    for dtype in options.dtypes:
        for kind in ("vector", "logprobs"):
            said += ["", f"**{dtype}, {kind}**", "", f"| layers x width | {' | '.join(options.attention)} |"]
            said.append("|---" * (1 + len(options.attention)) + "|")
            for size in dict.fromkeys((row["layers"], row["width"]) for row in rows):
                cells = [_cell(rows, size, dtype, kind, attention) for attention in options.attention]
                said.append(f"| {size[0]} x {size[1]} | {' | '.join(cells)} |")
    return "\n".join(said)


def _cell(rows: Sequence[dict[str, Any]], size: tuple[int, int], dtype: str, kind: str, attention: str) -> str:
    for row in rows:
        same = (row["layers"], row["width"]) == size and row["dtype"] == dtype and row["attention"] == attention
        if same and "refused" in row:
            return "refused"
        if same and row["kind"] == kind:
            text = f"{row['R']:.3g} ({row['worst_prompt_R']:.3g})"
            return text if row["holds"] else f"**{text}**"
    return ""


def _device_name(device: str) -> str:
    if device == "cpu":
        return f"cpu ({torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads)"
    return str(torch.get_device_module(device).get_device_properties(0).name)


if __name__ == "__main__":
    sys.exit(main())
