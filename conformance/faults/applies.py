"""To which models a fault applies: conditions on config.json and role, each saying why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conformance.engines.shape import ENCODERS

Config = Mapping[str, Any]
Condition = Callable[[Config, str], "str | None"]

KERNEL_ROLE = "attention"
"""The role of a suite that calls one attention kernel, without what else a model does."""


def where(*conditions: Condition) -> Condition:
    """All of `conditions`: the first reason why not, None where there is none."""

    def applies(config: Config, role: str) -> str | None:
        return next((reason for condition in conditions if (reason := condition(config, role))), None)

    return applies


def model(config: Config, role: str) -> str | None:
    """A whole model runs."""
    return "one kernel is called, not a model" if role == KERNEL_ROLE else None


def decoder(config: Config, role: str) -> str | None:
    """Attention is causal."""
    return "the model is an encoder: its attention is not causal" if config.get("model_type") in ENCODERS else None


def encoder(config: Config, role: str) -> str | None:
    """Attention goes both ways."""
    return None if config.get("model_type") in ENCODERS else "the model is a decoder"


def generates(config: Config, role: str) -> str | None:
    """Tokens are decoded with a cache of keys and values, or a kernel is called as if they were."""
    return (
        None
        if role.split(".")[0] in ("generation", "multimodal", KERNEL_ROLE)
        else f"a model with the role {role} decodes no tokens"
    )


def sees(config: Config, role: str) -> str | None:
    """Pictures go with the prompts."""
    return where(roles("multimodal"))(config, role) or (None if "vision_config" in config else "it has no vision tower")


def roles(*names: str) -> Condition:
    """The model is loaded for one of these roles, or for one whose task, before the dot, is among them."""

    def applies(config: Config, role: str) -> str | None:
        known = role in names or role.split(".")[0] in names
        return None if known else f"it is loaded as {role}, not as {' or '.join(names)}"

    return applies


def windowed(config: Config, role: str) -> str | None:
    """Some layer attends within a sliding window."""
    text = _text(config)
    has = text.get("sliding_window") and text.get("use_sliding_window", True)
    return None if has else "the model has no sliding window"


def partly_windowed(config: Config, role: str) -> str | None:
    """Some layers attend within a sliding window, and some do not."""
    kinds = {str(kind) for kind in _text(config).get("layer_types") or ()}
    both = {"sliding_attention", "full_attention"} <= kinds or config.get("model_type") == "gemma2"
    return windowed(config, role) or (None if both else "all layers of the model have the same window")


def capped(config: Config, role: str) -> str | None:
    """Attention scores are capped."""
    return None if _text(config).get("attn_logit_softcapping") else "the model's attention has no softcap"


def finally_capped(config: Config, role: str) -> str | None:
    """Final logits are capped."""
    return None if _text(config).get("final_logit_softcapping") else "the model's logits have no softcap"


def grouped(config: Config, role: str) -> str | None:
    """Several query heads share a key head, and there are several of these."""
    text = _text(config)
    heads = int(text.get("num_attention_heads") or 0)
    kv_heads = int(text.get("num_key_value_heads") or heads)
    if kv_heads == heads:
        return "every query head has a key head of its own"
    return "the model has one key head" if kv_heads < 2 else None


def several_kv_heads(config: Config, role: str) -> str | None:
    """There is more than one key head."""
    text = _text(config)
    found = int(text.get("num_key_value_heads") or text.get("num_attention_heads") or 0)
    return None if found > 1 else "the model has one key head"


def rotary(config: Config, role: str) -> str | None:
    """Positions are rotary."""
    return model(config, role) or ("positions are learned, not rotary" if encoder(config, role) is None else None)


def learned_positions(config: Config, role: str) -> str | None:
    """Positions are looked up in a learned table."""
    return model(config, role) or ("positions are rotary, not learned" if encoder(config, role) else None)


def rms_norms(config: Config, role: str) -> str | None:
    """Norms divide by the root mean square."""
    return model(config, role) or ("the model has layer norms" if encoder(config, role) is None else None)


def _text(config: Config) -> Config:
    return {**config, **(config.get("text_config") or {})}
