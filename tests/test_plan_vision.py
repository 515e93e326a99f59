"""The vision tower's attention backend: an axis of the target where it is not the text's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import world
from recorded import result

from conformance.catalogue import Catalogue, Model
from conformance.execution.coverage import not_covered
from conformance.names import UsageError
from conformance.profile import ProfileError
from conformance.profile_checks import installed_faults
from conformance.verdict import Verdict

SEEING = Catalogue((Model("seeing", ("words",), "embedded", Path("/m/seeing"), "ToyVL", False, {"vision": True}),))
PAGED = world.TOP_LINES.replace('"toy::quick*"] }\nencoder = false', '"toy::quick*"] }\nvision = false')


def cases(of: Any = None, **selection: Any) -> list[Any]:
    return list(world.plan(of, catalogue=SEEING, dtypes=("bfloat16",), **selection).cases)


def test_without_a_choice_the_tower_takes_the_texts_backend_and_the_id_does_not_name_it() -> None:
    found = {case.id: case.vision.attention for case in cases()}
    assert found == {
        "words.test_tokens_agree[transformers/plain/bfloat16][seeing]": "plain",
        "words.test_tokens_agree[transformers/quick/bfloat16][seeing]": "quick",
    }


def test_another_backend_for_the_tower_is_an_axis_of_the_target() -> None:
    found = {case.id: (case.precision, case.vision.attention) for case in cases(visions=("plain",))}
    assert found == {
        "words.test_tokens_agree[transformers/plain/bfloat16][seeing]": ("eager", "plain"),
        "words.test_tokens_agree[transformers/quick/bfloat16/vision=plain][seeing]": ("fused", "plain"),
    }


def test_a_model_without_a_tower_has_no_such_axis() -> None:
    plan = world.plan(dtypes=("bfloat16",), visions=("plain",), suites=("words",))
    assert {case.target.axes for case in plan.cases} == {()}
    assert {case.vision for case in plan.cases} == {None}


def test_a_backend_that_claims_no_towers_does_not_support_them() -> None:
    profile = world.profile(PAGED)
    verdicts = {case.target.attention: case.verdict for case in cases(profile)}
    assert verdicts == {"plain": None, "quick": Verdict.NOT_SUPPORTED}
    beside = {case.target.id: case.verdict for case in cases(profile, visions=("plain",))}
    assert beside["transformers/quick/bfloat16/vision=plain"] is None


def test_a_towers_backend_is_held_to_its_own_condition() -> None:
    profile = world.profile(
        world.TOP_LINES.replace('kernels = ["toy::softmax"]', 'kernels = ["toy::softmax"]\nwhen = { device = "Toy 2" }')
    )

    def quick(name: str | None) -> Any:
        facts = {"device": {"type": "toy", "name": name}} if name else {}
        (case,) = cases(profile, facts=facts, attentions=("quick",), visions=("plain",))
        return case

    assert quick("Toy 1").verdict is Verdict.NOT_SUPPORTED
    assert "claims transformers/plain only where" in quick("Toy 1").reason
    assert quick("Toy 2").verdict is None
    assert (quick(None).verdict, quick(None).undecided) == (None, ("claim transformers/plain",))


def test_a_towers_backend_is_held_to_the_towers_head_size(tmp_path: Path) -> None:
    tower = {"embed_dim": 160, "hidden_size": 256, "num_heads": 2}
    config = {"hidden_size": 256, "num_attention_heads": 4, "vision_config": tower}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = replace(SEEING.models[0], folder=tmp_path)
    verdicts = {}
    for sizes in ("[64]", "[64, 80]"):
        quick = f'{{ bfloat16 = ["toy::quick*"] }}\nhead_sizes = {sizes}'
        profile = world.profile(world.TOP_LINES.replace('{ bfloat16 = ["toy::quick*"] }', quick))
        (case,) = world.plan(profile, catalogue=Catalogue((model,)), dtypes=("bfloat16",), attentions=("quick",)).cases
        verdicts[sizes] = case.verdict
        if case.verdict is not None:
            assert "and seeing's vision tower has 80" in case.reason
    assert verdicts == {"[64]": Verdict.NOT_SUPPORTED, "[64, 80]": None}


def test_a_tower_backend_that_nobody_claims_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="did you mean 'plain'"):
        cases(visions=("plane",))
    with pytest.raises(UsageError, match="vision attention 'quick' is not claimed"):
        cases(world.profile(PAGED), visions=("quick",))


def test_a_quirk_is_held_against_the_towers_backend_whether_or_not_the_target_names_it() -> None:
    profile = world.profile(add=world.quirk('vision = "plain"', "max_tokens = 8"))
    assert installed_faults(profile, world.SUITES, SEEING, {"transformers": None, "vllm": None}) == []
    settings = {case.target.id: case.settings for case in cases(profile, visions=("plain", "quick"))}
    assert settings == {
        "transformers/plain/bfloat16": {"max_tokens": 8},
        "transformers/plain/bfloat16/vision=quick": {},
        "transformers/quick/bfloat16/vision=plain": {"max_tokens": 8},
        "transformers/quick/bfloat16": {},
    }


def test_a_tower_that_is_the_yardsticks_own_is_said_not_to_be_covered() -> None:
    def said(device: str, **selection: Any) -> list[str]:
        profile = world.profile(world.TOP_LINES.replace('device = "toy"', f'device = "{device}"'))
        plan = world.plan(profile, catalogue=SEEING, dtypes=("bfloat16",), attentions=("quick",), **selection)
        results = [result(id=case.id) for case in plan.cases]
        return [
            each for each in not_covered(plan, profile, results) if "the vision tower is the yardstick's own" in each
        ]

    (sentence,) = said("cpu", visions=("plain",))
    assert sentence.startswith("transformers/quick/bfloat16/vision=plain: ")
    assert said("cpu") == [] and said("toy", visions=("plain",)) == []


def test_a_quirk_moves_the_tower_to_another_backend() -> None:
    profile = world.profile(add=world.quirk('vision = "quick"', 'vision = "plain"'))
    (case,) = cases(profile, attentions=("quick",))
    assert (case.target.id, case.effective_target.id) == (
        "transformers/quick/bfloat16",
        "transformers/quick/bfloat16/vision=plain",
    )
    assert (case.vision.attention, case.precision) == ("plain", "fused")


def test_a_quirk_that_moves_the_tower_to_what_is_not_claimed_is_a_fault() -> None:
    profile = world.profile(add=world.quirk('vision = "quick"', 'vision = "plane"'))
    faults = installed_faults(profile, world.SUITES, SEEING, {"transformers": None, "vllm": None})
    assert any("effect.vision: transformers claims no 'plane' for vision towers" in fault for fault in faults), faults
    with pytest.raises(UsageError, match="vision tower on plane"):
        cases(profile, attentions=("quick",))


TOWERS = """
[engines.vllm]
installed_by = "vllm"

[engines.vllm.attention.TOY_ATTN]
precision = { bfloat16 = "fused" }
kernels = ["toy::paged"]
vision = false
vision_attention = "TOY_TOWER"

[engines.vllm.attention.TOY_TOWER]
precision = { bfloat16 = "eager" }
kernels = ["toy::tower"]
text = false
"""
WITH_TOWER = world.TOP_LINES.replace(
    world.TOP_LINES[world.TOP_LINES.index("[engines.vllm]") : world.TOP_LINES.index("[[disclaimed]]")], TOWERS
)


def test_a_claim_may_name_another_backend_for_towers_and_that_one_run_nothing_else() -> None:
    profile = world.profile(WITH_TOWER)
    (case,) = cases(profile, engines=("vllm",))
    assert (case.target.id, case.vision.attention) == ("vllm/TOY_ATTN/bfloat16", "TOY_TOWER")
    assert (case.precision, case.vision.precision["bfloat16"]) == ("fused", "eager")
    (named,) = cases(profile, engines=("vllm",), visions=("TOY_TOWER",))
    assert named.id == case.id
    assert installed_faults(profile, world.SUITES, SEEING, {"transformers": None, "vllm": None}) == []


def test_a_backend_for_towers_alone_cannot_be_asked_for_text() -> None:
    with pytest.raises(UsageError, match="attention 'TOY_TOWER' is not claimed"):
        cases(world.profile(WITH_TOWER), engines=("vllm",), attentions=("TOY_TOWER",))


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (
            '"TOY_TOWER"\n',
            '"TOY_TWER"\n',
            "'TOY_TWER' is no .* with vision = true; did you mean 'TOY_TOWER'",
        ),
        ("text = false", "vision = false", "'TOY_TOWER' is no attention backend of vllm with vision = true"),
        ("text = false", "text = false\nvision = false", "it runs nothing; drop the claim"),
        ('{ bfloat16 = "eager" }', '{ float16 = "eager" }', "TOY_TOWER claims no bfloat16"),
    ],
)
def test_what_a_claim_says_of_towers_must_hold_together(wrong: str, right: str, message: str) -> None:
    assert wrong in WITH_TOWER
    at = WITH_TOWER.index("[engines.vllm]")
    with pytest.raises(ProfileError, match=message):
        world.profile(WITH_TOWER[:at] + WITH_TOWER[at:].replace(wrong, right, 1))
