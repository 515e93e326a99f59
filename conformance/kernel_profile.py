"""The profile of a single kernel, written from what its signature takes and from what the command line claims."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.catalogue import NO_MODEL, Catalogue, Model
from conformance.names import UsageError, did_you_mean, unknown
from conformance.profile import BATCH_FORMS, Profile, ProfileError, parse_profile

COMMAND_LINE = Path("the command line")
"""Where the profile comes from, as messages have it."""

ENGINE = "kernel"
ROLE = "attention"
RUNNER = "conformance.engines.kernel:KernelRunner"

PRECISION = {"float32": "ieee", "bfloat16": "fused", "float16": "fused"}
"""What is claimed of each dtype unless the command line says otherwise."""

_KEYS = (
    *("precision", "head_sizes", "batch", "encoder", "scale", "softcap", "window"),
    *("deterministic", "masked_rows", "denormals"),
)
"""What can be claimed of a kernel: the rest of a profile's keys is about models."""

_LISTS = ("head_sizes", "batch")
_NOT_TAKEN: dict[str, dict[str, Any]] = {
    "causal": {"encoder": False},
    "scale": {"scale": False},
    "window": {"window": False},
    "softcap": {"softcap": False},
    "lengths": {"batch": [form for form in BATCH_FORMS if form != "padded"]},
}
"""By argument, what is claimed of a kernel that does not take it."""


def catalogue(shapes: str) -> Catalogue:
    """The catalogue of a kernel: it has no model. `shapes` is passed on to the suite's inputs."""
    parameters = {"inputs": {"shapes": shapes}}
    return Catalogue((Model(NO_MODEL, (ROLE,), NO_MODEL, Path(NO_MODEL), answers=True, parameters=parameters),))


def kernel_profile(
    kernel: str, dtypes: Sequence[str], device: str, start: str, takes: Collection[str], claims: Sequence[str]
) -> Profile:
    """The profile of the callable `kernel` ("module:function"), which takes `takes` of `ARGUMENTS`.

    `claims` are texts `KEY=VALUE`, with the keys of a profile's attention backend. UsageError with every fault.
    """
    claim: dict[str, Any] = {"precision": {dtype: PRECISION[dtype] for dtype in dtypes}, "kernels": [kernel]}
    claim |= {"softcap": True, "window": True}
    for name, without in _NOT_TAKEN.items():
        if name not in takes:
            claim |= without
    claimed = _parsed(claims, claim)
    contradictions = [
        f"--claims: {key} = {_toml(claimed[key])}, but the function takes no {name!r}, so it can only be {_toml(value)}"
        for name, rest in _NOT_TAKEN.items()
        for key, value in rest.items()
        if name not in takes and key in claimed and _is_more(claimed[key], value)
    ]
    if contradictions:
        raise UsageError(*contradictions)
    claim |= claimed
    lines = [
        "[backend]",
        *_pairs(name=ENGINE, description=f"the kernel {kernel} alone", device=device, default_engines=[ENGINE]),
        "[dtypes]",
        *_pairs(default=list(dtypes), supported=list(dtypes)),
        f"[engines.{ENGINE}]",
        *_pairs(start=start, options={"kernel": kernel, "takes": sorted(takes)}),
        f"[engines.{ENGINE}.attention.{json.dumps(kernel)}]",
        *_pairs(**claim),
    ]
    try:
        return parse_profile("\n".join(lines) + "\n", COMMAND_LINE)
    except ProfileError as error:
        inside = f"{COMMAND_LINE}: engines.{ENGINE}.attention.{kernel}"
        faults = [each.replace(f"{inside}.", "--claims: ").replace(inside, "--claims") for each in error.faults]
        raise UsageError(*faults) from error


def _is_more(claimed: Any, possible: Any) -> bool:
    """Whether a claim goes beyond what a function can do: of a list, a part may be claimed."""
    if isinstance(claimed, list) and isinstance(possible, list):
        return not set(claimed) <= set(possible)
    return bool(claimed != possible)


def _parsed(claims: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The claims as a profile's values; `precision=NAME` is said of every dtype, `precision.DTYPE=NAME` of one."""
    found: dict[str, Any] = {}
    faults = []
    for text in claims:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value and text.isprintable()):
            faults.append(f"--claims: {text!r} should look like KEY=VALUE, e.g. deterministic=true")
        elif key.partition(".")[0] not in _KEYS:
            faults.append(f"--claims: {unknown('key', key, _KEYS)}")
        elif key.partition(".")[0] == "precision":
            _, dot, dtype = key.partition(".")
            if dot and dtype not in known["precision"]:
                faults.append(
                    f"--claims: {key}: {dtype!r} is not in --dtype; {did_you_mean(dtype, known['precision'])}"
                )
            said = dict.fromkeys([dtype] if dot else known["precision"], value)
            found["precision"] = {**found.get("precision", known["precision"]), **said}
        else:
            values = [_plain(part.strip()) for part in value.split(",")]
            found[key] = values if key in _LISTS else _plain(value)
    if faults:
        raise UsageError(*faults)
    return found


def _plain(text: str) -> bool | int | str:
    """true, false and whole numbers as what they are; all else is text."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


def _pairs(**values: Any) -> list[str]:
    """Lines of TOML, in which a table, a list, text, a number and a truth value are written much as in JSON."""
    return [f"{json.dumps(key, ensure_ascii=False)} = {_toml(value)}" for key, value in values.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(**value)) + " }"
    return json.dumps(value, ensure_ascii=False)
