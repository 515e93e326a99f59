"""With what SGLang is started: a pure function of the request and of what the installed version knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.engines.pooled import is_pooled
from conformance.names import unknown
from conformance.runner import LoadRequest, NotSupported, Unavailable

SUPPORTED = ("0.5",)
"""The lines of releases that the adapter takes; within them it goes by what a release can do."""

WATCH = "conformance.engines.sglang_watch:counter"
NEEDED = ("attention_backend", "disable_overlap_schedule", "enable_custom_logit_processor", "forward_hooks")
"""Server arguments without which a release cannot be asked, or not be seen."""

ROOM = 8
"""Tokens behind the longest text of a model that is pooled, where none is generated."""

_ENCODERS = ("embedding.encoder", "rerank.cross_encoder")
_OF_THE_ADAPTER = ("batch", "batch_size", "score_bias")


def require_version(version: str) -> None:
    """Raise `Unavailable`, naming the supported releases, unless `version` ("0.5.23") is of one of them."""
    if ".".join(version.split("+")[0].split(".")[:2]) not in SUPPORTED:
        releases = ", ".join(f"{each}.*" for each in SUPPORTED)
        raise Unavailable(
            f"SGLang {version} is not supported; supported are {releases}: pip install 'sglang=={SUPPORTED[0]}.*'"
        )


def engine_arguments(
    request: LoadRequest,
    *,
    options: Iterable[str],
    backends: Iterable[str],
    calls: str,
    at_fault: Callable[..., Any],
) -> dict[str, Any]:
    """The arguments of `sglang.Engine` for a request.

    `options` are the server arguments that the installed SGLang takes, `backends` its attention backends; `calls` is
    the file that the attention calls are written to, and `at_fault` is called where a process of the engine says that
    it fails while it starts. Options of the profile are passed as they are and come last. Raises ValueError for one
    that this SGLang does not take, `Unavailable` for an attention backend that it does not know or a release that
    cannot be asked, `NotSupported` for what no SGLang does.
    """
    known, backends = set(options), set(backends)
    if missing := [each for each in NEEDED if each not in known]:
        raise Unavailable(f"this SGLang has no server argument {', '.join(map(repr, missing))}; 0.5.23 has")
    if request.attention not in ("", "none") and request.attention not in backends:
        raise Unavailable(f"this SGLang has no such thing: {unknown('attention backend', request.attention, backends)}")
    found: dict[str, Any] = {
        "model_path": request.folder,
        "device": request.device,
        "dtype": request.dtype,
        "trust_remote_code": bool(request.parameters.get("trust_remote_code", False)),
        "is_embedding": is_pooled(request.role),
        "skip_server_warmup": True,
        # A step's tokens are known before the next is prepared: what is forced depends on how many there are, and no
        # step is computed whose tokens nobody asked for.
        "disable_overlap_schedule": True,
        "custom_sigquit_handler": at_fault,
        # What of a batch is in one step is SGLang's to choose; that its calls can be counted is not.
        "forward_hooks": [
            {
                "name": "conformance",
                "target_modules": ["*attn*", "*attention*", "*visual"],
                "hook_factory": WATCH,
                "config": {"calls": calls, "features": features(calls)},
            }
        ],
    }
    if request.attention not in ("", "none"):
        found["attention_backend"] = request.attention
    if request.vision_attention not in ("", "none"):
        found["mm_attention_backend"] = request.vision_attention
    if request.role in _ENCODERS:
        _require_first_token(request)
        # Cut into chunks, or read from a cache, a text would not see what stands behind it.
        found |= {"chunked_prefill_size": -1, "disable_radix_cache": True}
    if not found["is_embedding"]:
        found["enable_custom_logit_processor"] = True
    if found["is_embedding"] and request.parameters.get("max_tokens"):
        # It refuses a text as long as the model, for want of room for a token that nobody asked for. That it may be
        # told of more room than the model has is in the profile's environment.
        found["context_length"] = int(request.parameters["max_tokens"]) + ROOM
    if "batch_size" in request.options:
        found["max_running_requests"] = int(request.options["batch_size"])
    if request.parameters.get("dimensions"):
        found["json_model_override_args"] = '{"is_matryoshka": true}'  # it shortens no vector of another model
    for name, value in request.options.items():
        if name in _OF_THE_ADAPTER:
            continue
        if name not in known:
            raise ValueError(f"options of sglang: {unknown('option', name, known)}")
        found[name] = value
    return found


def features(calls: str) -> str:
    """The folder in which what a vision tower hands on is kept while it exists, beside the file of its calls."""
    return f"{calls}.features"


def resolved(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The attention backend and the dtype that SGLang resolved, from its server arguments as it reports them.

    Where prefill and decode have backends of their own both are named, joined by "+".
    """
    both = [arguments.get(f"{step}_attention_backend") or arguments.get("attention_backend") for step in _STEPS]
    return "+".join(dict.fromkeys(str(each) for each in both)), str(arguments.get("dtype"))


_STEPS = ("prefill", "decode")


def _require_first_token(request: LoadRequest) -> None:
    pooling = str(request.parameters.get("pooling", "cls"))
    if request.role == "embedding.encoder" and pooling != "cls":
        raise NotSupported(
            f"SGLang pools these encoders by their first token alone, but {request.model} is pooled by {pooling!r}"
        )
