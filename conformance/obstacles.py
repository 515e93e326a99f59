"""Why a planned case is not run: engine or device are missing, the claim does not reach it, the model is of no use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from conformance.candidates import Candidate
from conformance.catalogue import Model
from conformance.environments import versions_for
from conformance.models.fit import Fit
from conformance.names import did_you_mean
from conformance.predicate import Subject, evaluate
from conformance.profile import Claim, EngineClaims, Profile
from conformance.selection import Selection

CERTIFICATION = "certification"
"""The named run that takes no model whose commit is not known."""


def missing_engine(engine: EngineClaims, facts: Mapping[str, Any]) -> str:
    """Why the engine cannot be used on the machine of these facts, or an empty text."""
    if "engines" in facts and engine.name not in facts["engines"]:
        return f"no installed package offers an adapter (entry point conformance.engines) for {engine.name!r}"
    own = facts.get("environments", {}).get(engine.name)
    if own is not None and own.get("fault"):
        return f"engine {engine.name!r}: no worker can run in its interpreter: {own['fault']}"
    versions, installers = versions_for(facts, engine.name), engine.installed_by
    lacks = installers and all(name in versions and versions[name] is None for name in installers)
    if own is not None and lacks:
        which, python = " or ".join(installers), own["python"]
        return f"engine {engine.name!r}: {python} has no {which}; `{python} -m pip install {installers[0]}`"
    if own is None and any(version is None for version in versions.values()):
        from conformance.extras import NAME, not_installed, own_requirements

        # Where several distributions offer the engine, the extra of the first that has one is for this backend.
        extra = next((name for name in installers if len(installers) > 1 and name in own_requirements()), engine.name)
        present = {name for name in installers if versions.get(name) is not None}
        lacking = [name for name in not_installed(extra, versions) if not (present and name in installers)]
        if lacking:
            return f"engine {engine.name!r}: not installed: {', '.join(lacking)}; pip install '{NAME}[{extra}]'"
    if lacks:
        which = " or ".join(map(repr, installers))
        return f"engine {engine.name!r} is not installed; install the distribution {which}"
    return ""


def missing_server(engine: EngineClaims, selection: Selection) -> str:
    """Why an engine that is a server cannot be reached, or an empty text."""
    if selection.url or engine.options["url"]:
        return ""
    return f"the engine {engine.name!r} is a running server; --url says where, as in --url http://127.0.0.1:8000/v1"


def missing_device(device: str, facts: Mapping[str, Any]) -> str:
    """Why a device of that type cannot be used on the machine of these facts, or an empty text."""
    about = facts.get("device", {})
    kind = about.get("type")
    if kind is not None and kind != device:  # facts of a file: those of a run are about the profile's device
        return f"the facts are of a machine with a device of the type {kind!r}, and the profile is for {device!r}"
    if about.get("available") is False:
        return about.get("reason") or f"no {device} device is available on this machine"
    return ""


def not_supported(
    candidate: Candidate, claim: Claim, vision: Claim | None, holds: Mapping[str, bool | None], profile: Profile
) -> str:
    """Why the claims for text and vision tower do not reach this case, or an empty text."""
    parameters, model = candidate.parameters, candidate.model

    def source(each: Claim) -> str:
        return f"{'/'.join(profile.path.parts[-2:])} claims {each.name}"

    for each in (claim, vision):
        if each is not None and holds[each.name] is False:
            return f"{source(each)} only where {json.dumps(each.when)}, which does not hold here"
    if not candidate.suite.causal and not claim.encoder:
        return f"{source(claim)} with encoder = false, and {candidate.suite.role} is a bidirectional encoder"
    if vision is not None and not vision.vision:
        return f"{source(vision)} with vision = false, and {model.name} has a vision tower"
    if not claim.window and model.window is not None:
        return f"{source(claim)} without window = true, and {model.name} has layers that see {model.window} tokens"
    if not claim.softcap and model.softcap is not None:
        return f"{source(claim)} without softcap = true, and {model.name} caps attention scores at {model.softcap:g}"
    size = parameters.get("head_size") or (model.head_size if claim.head_sizes else None)
    if claim.head_sizes is not None and size is not None and size not in claim.head_sizes:
        return f"{source(claim)} for head sizes {list(claim.head_sizes)}, and {model.name} has {size}"
    size = model.vision_head_size if vision is not None and vision.head_sizes else None
    if vision is not None and vision.head_sizes is not None and size is not None and size not in vision.head_sizes:
        return f"{source(vision)} for head sizes {list(vision.head_sizes)}, and {model.name}'s vision tower has {size}"
    if "batch" in parameters and parameters["batch"] not in claim.batch:
        return f"{source(claim)} for batch = {list(claim.batch)}, and the test needs {parameters['batch']!r}"
    if parameters.get("deterministic") is True and not claim.deterministic:
        return f"{source(claim)} without deterministic = true, and the test asks for bit-equal repeats"
    for feature in ("scale", "softcap", "window", "denormals"):
        if parameters.get(feature) is True and not getattr(claim, feature):
            return f"{source(claim)} without {feature} = true, and the test asks for it"
    variants, wanted = profile.engines[claim.engine].variants, parameters.get("variant")
    if wanted is not None and wanted not in variants:
        return f"the profile claims no variant {wanted!r} of {claim.engine}; {did_you_mean(str(wanted), variants)}"
    if parameters.get("paged") is True and claim.page_sizes is None:
        return f"{source(claim)} without page_sizes, and the test asks for keys in pages of each of them"
    if "masked_rows" in parameters and parameters["masked_rows"] != claim.masked_rows:
        return f'{source(claim)} without masked_rows = "{parameters["masked_rows"]}", and the test asks for it'
    return ""


def offered(candidate: Candidate, engine: EngineClaims, subject: Subject) -> dict[str, bool | None]:
    """Whether the engine offers what the target's axes and the test's variant need, under the facts of `subject`.

    The keys are sentences about each; None waits for facts.
    """
    needed = {f"{axis}={value}": engine.axes.get(axis, {}).get(value) for axis, value in candidate.target.axes}
    variant = candidate.parameters.get("variant")
    if variant is not None:
        needed[f"the variant {variant!r}"] = engine.variants.get(variant)
    return {
        f"{engine.name} offers {what} only where {json.dumps(variation.when)}": evaluate(variation.when, subject)
        for what, variation in needed.items()
        if variation is not None
    }


def unusable_model(model: Model, fit: Fit | None, selection: Selection) -> str:
    """Why the model cannot be used on this machine or in this run, or an empty text."""
    if model.absent:
        return model.absent
    if selection.run == CERTIFICATION and model.tier == "local":
        return f"the model {model.name} is a folder of yours, at no commit, so nobody else could certify the same"
    if selection.run == CERTIFICATION and model.tier == "full" and not model.revision:
        return (
            f"the model {model.name} is not pinned to a commit, so nobody else could certify the same; `python -m "
            f"conformance models fetch {model.name}` records the commit, and --write-pins writes it into the catalogue"
        )
    if selection.run == CERTIFICATION and model.tier == "full" and not model.digest:
        return (
            f"the model {model.name} is pinned, but nothing was recorded when it came here, so nobody knows that it is "
            f"that commit's; `python -m conformance models fetch {model.name}` hashes and records what is there"
        )
    return fit.refusal if fit is not None else ""
