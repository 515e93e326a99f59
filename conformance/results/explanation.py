"""The full text of one case, for people: what was compared, how far off, against which limit, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.judgement import Figure
from conformance.results.margin import margin
from conformance.results.record import figure_from_json


def explain(case: Mapping[str, Any]) -> str:
    """Lines on one case of results.json (`CaseResult.to_json`); not yet made safe for a terminal or for XML."""
    lines = [f"{case['requirement_id']}: {case['statement']}"]
    # The reason is the headline wherever this text is shown; it is repeated only where there is nothing else.
    lines += [text for text in (case["message"] or case["reason"],) if text]
    for judgement in case["judgements"]:
        said = any(judgement["message"] in line for line in lines)
        name = f"{judgement['criterion']}{on_which(judgement)}"
        lines.append(f"{judgement['verdict']} {name}" + ("" if said else f": {judgement['message']}"))
        lines += [f"  {line}" for line in _figure_lines(judgement)]
    lines += [f"{name}: {value}" for name, value in circumstances(case).items()]
    if case["rows_file"]:
        lines.append(f"rows: {case['rows_file']}")
    if case["reproduce"]:
        lines.append(f"reproduce: {case['reproduce']}")
    if case["log_tail"]:
        lines += ["last output of the worker:", case["log_tail"].rstrip("\n")]
    return "\n".join(lines)


def circumstances(case: Mapping[str, Any]) -> dict[str, str]:
    """What really ran, as short texts: `effective`, `kernels`, `quirks`; those that a case lacks are left out."""
    texts = {}
    effective = case["effective"]
    if effective is not None:
        vision = effective["vision"]
        tower = f", vision tower {vision['attention']}" if vision else ""
        texts["effective"] = f"{effective['attention']} in {effective['dtype']}{tower}"
        kernels = ", ".join(f"{name} x {count}" for name, count in effective["kernels"].items())
        calls = effective["layers"] * effective["forwards"]
        calls += vision["layers"] * vision["sequences"] if vision else 0
        evidence = effective.get("evidence", "counted")
        if evidence == "resolved":
            texts["kernels"] = f"{kernels}; as the engine resolved them, no call was counted"
        elif evidence == "undisclosed":
            texts["kernels"] = "not known: the engine does not tell what ran"
        else:
            texts["kernels"] = f"{kernels or 'none seen'}; {calls} attention calls made"
        if "cached_tokens" in effective:
            texts["kernels"] += f"; {effective['cached_tokens']} prompt tokens came from a cache"
    if case["quirks"]:
        texts["quirks"] = ", ".join(case["quirks"])
    return texts


def on_which(judgement: Mapping[str, Any]) -> str:
    """Which prompts a judgement was made on, where there were fresh ones."""
    return {"grey": " (grey zone)", "fresh": " (fresh prompts)"}.get(judgement.get("stage", ""), "")


def describe(figure: Figure) -> str:
    """`value <= limit`, or with `>` where it does not hold, and how much of a maximum that is."""
    if figure.limit is None:
        return f"{figure.value:.6g}"
    right, wrong = ("<=", ">") if figure.bound == "max" else (">=", "<")
    sign = right if figure.holds else ("is not " + right if figure.value != figure.value else wrong)
    share = margin(figure)
    text = f"{figure.value:.6g} {sign} {figure.limit:.6g}"
    # At 0 or infinity the ratio says no more than the sign does; of a minimum, a share would read the wrong way round.
    return (
        text
        if figure.bound == "min" or share is None or share in (0.0, float("inf"))
        else f"{text} ({share:.3g} of the limit)"
    )


def source_of(figure: Figure, gap: str) -> str:
    """Behind a gap, in brackets, where the figure's limit comes from, and whether it is only provisional."""
    standing = "provisional on this device: " if figure.standing == "provisional" else ""
    return f"{gap}[{standing}{figure.provenance}]" if figure.provenance else ""


def _figure_lines(judgement: Mapping[str, Any]) -> list[str]:
    lines = []
    for item in judgement["figures"]:
        figure = figure_from_json(item, f"judgement {judgement['criterion']!r}, a figure")
        lines.append(f"{figure.name} = {describe(figure)}{source_of(figure, '  ')}")
    return lines
