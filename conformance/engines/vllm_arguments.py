"""With what vLLM is started: a pure function of the request and of what the installed version knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.engines.pooled import is_pooled
from conformance.names import unknown
from conformance.runner import LoadRequest, Unavailable

SUPPORTED = ("0.31", "0.32", "0.33")
"""The minor releases that the adapter was written against."""

WORKER = "conformance.engines.vllm_worker.Witness"
PROCESSOR = "conformance.engines.vllm_rows:Forced"

_OF_THE_ADAPTER = ("batch", "batch_size", "empty_documents", "resize")
"""Options that vLLM is not told: it forms its own batches, and the others say what it is given."""

_POOLING_TYPES = {"last": "LAST", "cls": "CLS", "mean": "MEAN"}


def require_version(version: str) -> None:
    """Raise `Unavailable`, naming the supported releases, unless `version` ("0.32.0+cpu") is of one of them."""
    minor = ".".join(version.split("+")[0].split(".")[:2])
    if minor not in SUPPORTED:
        releases = ", ".join(f"{each}.*" for each in SUPPORTED)
        raise Unavailable(
            f"vLLM {version} is not supported; supported are {releases}: pip install 'vllm=={SUPPORTED[1]}.*'"
        )


def engine_arguments(
    request: LoadRequest, *, options: Iterable[str], backends: Iterable[str], pooler: Iterable[str]
) -> dict[str, Any]:
    """The arguments of `vllm.LLM` for a request.

    `options` are those that the installed vLLM takes, `backends` the members of its enumeration of attention backends,
    `pooler` the fields of its PoolerConfig; what differs between releases is chosen by them. Options of the profile
    are passed as they are and come last. Raises ValueError for one that this vLLM does not take, `Unavailable` for an
    attention backend that it does not know.
    """
    known, backends, pooler = set(options), set(backends), set(pooler)
    found: dict[str, Any] = {
        "model": request.folder,
        "dtype": request.dtype,
        "worker_extension_cls": WORKER,
        "trust_remote_code": bool(request.parameters.get("trust_remote_code", False)),
        "runner": "pooling" if is_pooled(request.role) else "generate",
        **_attention(request, known, backends),
    }
    if is_pooled(request.role):
        found |= _pooling(request, pooler)
    else:
        # A step's tokens are known before the next is prepared: what is forced depends on how many there are.
        found |= {"max_logprobs": -1, "logits_processors": [PROCESSOR], "async_scheduling": False}
    if request.role == "multimodal":
        found["mm_processor_cache_gb"] = 0  # with it, a picture seen before arrives without its grid
    found = {name: value for name, value in found.items() if name in known or name in ("model", "dtype")}
    if "batch_size" in request.options:
        found["max_num_seqs"] = int(request.options["batch_size"])
    for name, value in request.options.items():
        if name in _OF_THE_ADAPTER:
            continue
        if name not in known:
            raise ValueError(f"options of vllm: {unknown('option', name, known)}")
        merges = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = {**found[name], **value} if merges else value
    return found


def _attention(request: LoadRequest, known: set[str], backends: set[str]) -> dict[str, Any]:
    """How text and vision tower are told their attention backends."""
    found: dict[str, Any] = {}
    for what, name, option in (
        ("attention backend", request.attention, "attention_backend"),
        ("attention backend of a vision tower", request.vision_attention, "mm_encoder_attn_backend"),
    ):
        if name in ("", "none"):
            continue
        if name not in backends:
            raise Unavailable(f"this vLLM has no such thing: {unknown(what, name, backends)}")
        if option in known:
            found[option] = name
        elif option == "attention_backend" and "attention_config" in known:
            found["attention_config"] = {"backend": name}
        else:
            raise Unavailable(f"this vLLM has no option {option!r}, so the {what} {name!r} cannot be chosen")
    return found


def _pooling(request: LoadRequest, pooler: set[str]) -> dict[str, Any]:
    """How one vector is made of a prompt's hidden states; other roles than embedding leave that to the model."""
    if not request.role.startswith("embedding"):
        return {}
    name = str(request.parameters.get("pooling", "last"))
    if name not in _POOLING_TYPES:
        raise ValueError(unknown("pooling", name, _POOLING_TYPES))
    field = "seq_pooling_type" if "seq_pooling_type" in pooler else "pooling_type"
    found: dict[str, Any] = {"pooler_config": {field: _POOLING_TYPES[name]}}
    if request.parameters.get("dimensions"):
        found["hf_overrides"] = {"is_matryoshka": True}  # vLLM shortens no vector of a model that does not say so
    return found
