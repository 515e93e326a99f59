"""A small world to plan in: two suites, a catalogue and a profile, none of which names anything real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.catalogue import Catalogue, Model
from conformance.inventory import Suite, Test
from conformance.plan import Plan, make_plan
from conformance.profile import Profile, parse_profile
from conformance.selection import Selection

TOP_LINES = """
[backend]
name = "toy"
description = "A toy"
device = "toy"
default_engines = ["transformers"]

[dtypes]
default = ["float32", "bfloat16"]
supported = ["float32", "bfloat16", "float16"]

[dtypes.suites]
"pairs.encoder" = ["float32"]

[engines.transformers]
installed_by = "transformers"
options = { page_size = 64 }
environment = { TOY = "1" }

[engines.transformers.attention.plain]
precision = { float32 = "ieee", bfloat16 = "eager", float16 = "eager" }
kernels = ["toy::softmax"]

[engines.transformers.attention.quick]
precision = { bfloat16 = "fused" }
kernels = { bfloat16 = ["toy::quick*"] }
encoder = false

[engines.vllm]
installed_by = "vllm"

[engines.vllm.attention.TOY_ATTN]
precision = { bfloat16 = "fused" }
kernels = ["toy::paged"]

[[disclaimed]]
engine = "transformers"
attention = "strange"
what = "strange attention"
reason = "it is strange"

[runs.presubmit]
suites = ["words"]
tier = "embedded"
budget_minutes = 5
"""

QUIRK = """
[[quirks]]
id = "late-drift"
kind = "accuracy"
when = {{ {when} }}
effect = {{ {effect} }}
reason = "it drifts"
evidence = [{{ tried = {{ dtype = "float32" }}, outcome = "PASS" }}]
uncovered = "what is after it"
link = "issue 1"
owner = "someone"
added = 2026-08-28
expires = 2027-02-28
"""

SUITES = (
    Suite(
        "words",
        "toys.words:Words",
        "words",
        True,
        ("generate",),
        (
            Test("test_tokens_agree", "WRD-010", "The engine MUST read the same tokens."),
            Test("test_answers_are_right", "WRD-020", "The engine MUST be right.", needs_answers=True),
        ),
    ),
    Suite(
        "pairs",
        "toys.pairs:Pairs",
        "pairs.encoder",
        False,
        ("score_pairs",),
        (Test("test_scores_agree", "PRS-010", "Scores MUST agree."),),
    ),
)

CATALOGUE = Catalogue(
    (
        Model("small-words", ("words",), "embedded", Path("/m/small-words"), "ToyLM", True, {"head_size": 64}),
        Model("small-pairs", ("pairs.encoder",), "embedded", Path("/m/small-pairs"), "ToyEncoder", False, {}),
        Model("big-words", ("words",), "full", Path("/m/big-words"), "ToyLM", False, {"head_size": 128}),
    )
)


def quirk(when: str, effect: str) -> str:
    """A complete quirk with this condition and effect."""
    return QUIRK.format(when=when, effect=effect)


def profile(text: str = TOP_LINES, *, add: str = "") -> Profile:
    """The toy profile, or another, with lines added."""
    return parse_profile(text + add, Path("toy/profile.toml"))


def plan(
    of: Profile | None = None, facts: dict[str, Any] | None = None, catalogue: Catalogue = CATALOGUE, **selection: Any
) -> Plan:
    """The plan of the toy world."""
    return make_plan(SUITES, of or profile(), catalogue, facts or {}, Selection(**selection))
