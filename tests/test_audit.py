"""The audit of a profile: each kind of line has an input that shows it, and one that does not."""

from __future__ import annotations

import dataclasses
import io
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recorded
import world

from conformance.audit import audit
from conformance.catalogue import Catalogue
from conformance.disclaimed import with_disclaimed
from conformance.inventory import Test
from conformance.plan import Case, Plan
from conformance.profile import Profile
from conformance.results.console import Console
from conformance.results.document import final_exit_code
from conformance.results.junit import junit_xml
from conformance.results.record import CaseResult
from conformance.results.validation import document_faults
from conformance.runner import Effective, VisionEffective
from conformance.selection import Selection
from conformance.verdict import Verdict

HERE: dict[str, Any] = {"engines": ["transformers"], "versions": {"transformers": "5.24", "vllm": None}}
KERNELS = {"plain": "toy::softmax", "quick": "toy::quick_one"}


def effective(case: Case, **changes: Any) -> Effective:
    target = case.effective_target
    made = Effective(target.dtype, target.attention, {KERNELS[target.attention]: 4}, 2, 2)
    return dataclasses.replace(made, **changes)


def result(case: Case, verdict: Verdict = Verdict.PASS, **changes: Any) -> CaseResult:
    """What became of a case: what the plan knew of it already, else this verdict."""
    verdict = case.verdict or verdict
    ran = effective(case) if verdict.is_executed and case.suite != "disclaimed" else None
    made = CaseResult(
        case.id,
        case.suite,
        case.test,
        case.requirement_id,
        case.statement,
        case.role,
        case.model.name,
        case.target,
        verdict,
        reason=case.reason,
        effective=ran,
    )
    return dataclasses.replace(made, **changes)


def audited(
    of: Profile | None = None,
    change: Callable[[Case], dict[str, Any]] = lambda case: {},
    plan: Plan | None = None,
    **selection: Any,
) -> dict[str, Any]:
    profile = of or world.profile()
    plan = plan or world.plan(profile, facts=HERE, **selection)
    return audit(profile, plan, [result(case, **change(case)) for case in plan.cases], HERE, suites=world.SUITES)


def claim(found: dict[str, Any], name: str) -> dict[str, Any]:
    (entry,) = [each for each in found["claims"] if f"{each['engine']}/{each['attention']}/{each['dtype']}" == name]
    return entry  # type: ignore[no-any-return]


def test_every_claim_has_a_line_and_those_with_an_executed_pass_are_shown() -> None:
    found = audited()
    assert {f"{each['attention']}/{each['dtype']}": each["status"] for each in found["claims"]} == {
        "plain/float32": "shown",
        "plain/bfloat16": "shown",
        "plain/float16": "not executed",
        "quick/bfloat16": "shown",
        "TOY_ATTN/bfloat16": "environment",
    }
    plain = claim(found, "transformers/plain/float32")
    assert (plain["executed"], plain["passed"]) == (3, 3)
    assert plain["effective"] == [
        {"attention": "plain", "dtype": "float32", "vision": "", "evidence": "counted", "cases": 3}
    ]
    assert found["exit_code"] == 6


def test_a_claim_that_was_not_planned_says_how_to_ask_for_it() -> None:
    reason = claim(audited(), "transformers/plain/float16")["reason"]
    assert reason == "no case was planned; --engine transformers --attention plain --dtype float16 asks for some"


def test_an_engine_that_is_not_installed_is_named_with_the_extra_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("conformance.extras.own_requirements", lambda: {"vllm": ("vllm",)})
    reason = claim(audited(), "vllm/TOY_ATTN/bfloat16")["reason"]
    assert "'vllm'" in reason
    assert "pip install 'conformance[vllm]'" in reason


def only_plain(dtypes: str = '{ float32 = "ieee", bfloat16 = "eager" }') -> Profile:
    """A profile all of whose claims a run shows."""
    text = world.TOP_LINES.replace('{ float32 = "ieee", bfloat16 = "eager", float16 = "eager" }', dtypes)
    before, _, rest = text.partition("[engines.vllm]")
    return world.profile(before + "[[disclaimed]]" + rest.partition("[[disclaimed]]")[2])


def test_a_profile_all_of_which_was_shown_is_complete() -> None:
    found = audited(only_plain())
    assert {each["status"] for each in found["claims"]} == {"shown"}
    assert (found["exit_code"], found["mismatches"], found["under_claimed"]) == (0, [], [])


def test_cases_that_all_fail_show_nothing_and_say_why() -> None:
    def fails(case: Case) -> dict[str, Any]:
        broken = case.target.attention == "quick"
        return {"verdict": Verdict.FAIL, "reason": "wrong"} if broken else {}

    quick = claim(audited(only_plain(), fails), "transformers/quick/bfloat16")
    assert quick["status"] == "failed"
    assert quick["passed"] == 0
    assert quick["reason"] == f"{quick['executed']} executed, none PASS: FAIL: wrong"


def test_what_was_planned_and_could_not_run_says_why() -> None:
    def unready(case: Case) -> dict[str, Any]:
        gone = {"verdict": Verdict.NOT_RUN, "reason": "the target was given up", "effective": None}
        return gone if case.target.attention == "quick" else {}

    quick = claim(audited(only_plain(), unready), "transformers/quick/bfloat16")
    assert (quick["status"], quick["executed"]) == ("not executed", 0)
    assert quick["reason"].startswith("NOT_RUN: the target was given up")


def test_a_run_that_ended_early_leaves_claims_that_nothing_showed() -> None:
    profile = only_plain()
    found = audit(profile, world.plan(profile, facts=HERE), [], HERE, suites=world.SUITES)
    assert {each["reason"] for each in found["claims"]} == {"the run ended before it"}


@pytest.mark.parametrize(
    ("changed", "what", "requested"),
    [
        ({"dtype": "float32"}, "dtype", "bfloat16"),
        ({"attention": "plain"}, "attention backend", "quick"),
    ],
)
def test_what_ran_though_something_else_was_requested_is_a_mismatch_with_both_names(
    changed: dict[str, str], what: str, requested: str
) -> None:
    def other(case: Case) -> dict[str, Any]:
        quick = case.effective_target.attention == "quick"
        return {"verdict": Verdict.FAIL, "effective": effective(case, **changed)} if quick else {}

    found = audited(only_plain(), other)
    (mismatch,) = found["mismatches"]
    assert (mismatch["what"], mismatch["requested"], mismatch["effective"]) == (what, requested, *changed.values())
    quick = claim(found, "transformers/quick/bfloat16")
    both = f"{what} {next(iter(changed.values()))} ran, but {requested} was requested"
    assert (quick["status"], quick["reason"]) == ("mismatch", both)
    assert found["exit_code"] == 1


def test_an_engine_that_tells_nobody_what_ran_is_no_mismatch() -> None:
    def silent(case: Case) -> dict[str, Any]:
        return {"effective": effective(case, dtype="unknown", kernels={}, evidence="undisclosed")}

    found = audited(only_plain(), silent)
    assert (found["mismatches"], found["under_claimed"], found["exit_code"]) == ([], [], 0)


def towers(case: Case, ran: str) -> Effective:
    return effective(case, vision=VisionEffective(ran, 1, 1))


def test_a_vision_tower_counts_for_its_own_claim_and_may_mismatch() -> None:
    model = dataclasses.replace(world.CATALOGUE.models[0], parameters={"head_size": 64, "vision": True})
    plan = world.plan(
        only_plain(), facts=HERE, catalogue=Catalogue((model,)), attentions=("plain",), visions=("quick",)
    )
    assert {case.vision.attention for case in plan.cases if case.vision} == {"quick"}
    found = audited(only_plain(), lambda case: {"effective": towers(case, "quick")}, plan)
    assert claim(found, "transformers/quick/bfloat16")["status"] == "shown"
    found = audited(only_plain(), lambda case: {"effective": towers(case, "plain")}, plan)
    assert {each["what"] for each in found["mismatches"]} == {"vision attention backend"}
    assert claim(found, "transformers/quick/bfloat16")["status"] == "mismatch"
    assert claim(found, "transformers/plain/bfloat16")["status"] == "shown"


def test_a_kernel_that_no_claim_names_is_under_claimed() -> None:
    def stray(case: Case) -> dict[str, Any]:
        return {"effective": effective(case, kernels={"toy::stray": 4})} if case.target.dtype == "float32" else {}

    (entry,) = audited(only_plain(), stray)["under_claimed"]
    assert entry["what"] == "kernel toy::stray ran, which no claim names"
    assert entry["target"] == "transformers/plain/float32"


def test_a_kernel_of_another_claim_says_whose_it_is() -> None:
    def swapped(case: Case) -> dict[str, Any]:
        quick = case.target.attention == "quick"
        return {"effective": effective(case, kernels={"toy::softmax": 4})} if quick else {}

    (entry,) = audited(only_plain(), swapped)["under_claimed"]
    assert entry["what"] == "kernel toy::softmax ran, which is claimed of transformers/plain"


def test_an_attention_backend_that_no_claim_names_is_under_claimed() -> None:
    def novel(case: Case) -> dict[str, Any]:
        return {"effective": effective(case, attention="novel")} if case.target.attention == "quick" else {}

    (entry,) = audited(only_plain(), novel)["under_claimed"]
    assert entry["what"] == "attention backend novel ran in bfloat16, which no claim names"


@pytest.mark.parametrize(
    ("verdict", "probe", "lines"),
    [(Verdict.PASS, "refused", 0), (Verdict.XPASS, "answered", 1), (Verdict.XFAIL, "lost", 0)],
)
def test_what_is_disclaimed_says_what_became_of_calling_it(verdict: Verdict, probe: str, lines: int) -> None:
    profile = only_plain()
    model = dataclasses.replace(world.CATALOGUE.models[0], roles=("words", "attention"))
    catalogue = Catalogue((model,))
    plan = world.plan(profile, facts=HERE, catalogue=catalogue)
    plan = with_disclaimed(plan, profile, catalogue, HERE, Selection())

    def probed(case: Case) -> dict[str, Any]:
        return {"verdict": verdict, "reason": "strange answered"} if case.suite == "disclaimed" else {}

    found = audited(profile, probed, plan)
    assert found["disclaimed"] == [
        {
            "name": "transformers/strange",
            "what": "strange attention",
            "reason": "it is strange",
            "probe": probe,
        }
    ]
    assert [entry["what"] for entry in found["under_claimed"]] == ["strange answered"] * lines


def test_what_is_disclaimed_and_was_not_called_says_so() -> None:
    assert [each["probe"] for each in audited()["disclaimed"]] == ["not called"]


def test_claimed_features_that_no_executed_case_used_are_named() -> None:
    text = world.TOP_LINES.replace(
        'kernels = ["toy::softmax"]',
        'kernels = ["toy::softmax"]\nhead_sizes = [64, 128]\npage_sizes = [32, 64]\nsoftcap = true\n'
        'masked_rows = "zero"\nbatch = ["padded", "decode"]',
    )
    variants = "\n[engines.transformers.variants.chunked]\n[engines.transformers.axes.graph.compiled]\n"
    profile = world.profile(text, add=variants)
    (plain, _) = audited(profile)["never_exercised"]
    assert plain["claim"] == "transformers/plain"
    for feature in ("head size 128", "page size 32", "softcap", "masked rows zero", "batch padded", "variant chunked"):
        assert feature in plain["features"]
    assert "graph=compiled" in plain["features"]
    for used in ("head size 64", "page size 64", "batch decode", "encoder"):  # the last by the pairs' suite
        assert used not in plain["features"]


def test_a_feature_that_a_test_singles_out_is_exercised() -> None:
    suite = dataclasses.replace(
        world.SUITES[0],
        tests=(Test("test_tokens_agree", "W", "MUST.", parameters={"batch": "padded", "deterministic": True}),),
    )
    profile = world.profile(
        world.TOP_LINES.replace('kernels = ["toy::softmax"]', 'kernels = ["toy::softmax"]\ndeterministic = true')
    )
    plan = world.plan(profile, facts=HERE, attentions=("plain",))
    found = audit(profile, plan, [result(case) for case in plan.cases], HERE, suites=(suite, world.SUITES[1]))
    (plain,) = found["never_exercised"]
    assert "batch padded" not in plain["features"]
    assert "deterministic" not in plain["features"]
    assert "batch unpadded" in plain["features"]


def test_a_claim_whose_cases_a_quirk_runs_elsewhere_says_so() -> None:
    quirk = world.quirk('attention = "quick"', 'attention = "plain"')
    profile = world.profile(only_plain().text, add=quirk)
    quick = claim(audited(profile), "transformers/quick/bfloat16")
    assert quick["status"] == "not executed"
    assert quick["reason"] == "quirk late-drift runs its cases as transformers/plain/bfloat16"


def with_audit(block: dict[str, Any], results: list[CaseResult]) -> dict[str, Any]:
    return {**recorded.document(results), "audit": block}


def of_cases(profile: Profile, **change: Any) -> dict[str, Any]:
    plan = world.plan(profile, facts=HERE)
    results = [result(case, **change) for case in plan.cases]
    return with_audit(audit(profile, plan, results, HERE, suites=world.SUITES), results)


def test_a_record_with_an_audit_is_valid_and_one_whose_exit_code_does_not_follow_is_not() -> None:
    document = of_cases(world.profile())
    assert document_faults(document) == []
    assert document_faults({**document, "audit": {**document["audit"], "exit_code": 0}}) == [
        "$.audit.exit_code: is 0; claims and mismatches make it 6"
    ]
    claims = [{**each, "status": "shown"} for each in document["audit"]["claims"]]
    faults = document_faults({**document, "audit": {**document["audit"], "claims": claims}})
    assert any("shown with 0 PASS of 0" in fault for fault in faults)


@pytest.mark.parametrize(
    ("verdicts", "audited", "code"),
    [(0, 0, 0), (0, 6, 6), (0, 1, 1), (6, 1, 1), (1, 6, 1), (2, 6, 2), (5, 6, 5), (6, 0, 6)],
)
def test_an_audit_makes_the_exit_code_worse_and_never_better(verdicts: int, audited: int, code: int) -> None:
    assert final_exit_code({"run": {"exit_code": verdicts}, "audit": {"exit_code": audited}}) == code


def test_junit_has_a_case_for_each_claim() -> None:
    document = of_cases(world.profile())
    root = xml.etree.ElementTree.fromstring(junit_xml(document))
    cases = {case.get("name"): case for case in root.iter("testcase") if case.get("classname") == "cpu.audit"}
    assert len(cases) == 5
    assert root.get("tests") == str(len(document["cases"]) + 5)
    missing = cases["test_claim_is_shown[transformers/plain/float16][none]"].find("error")
    assert missing is not None and "NOT_RUN: no case was planned" in missing.get("message", "")
    absent = cases["test_claim_is_shown[vllm/TOY_ATTN/bfloat16][none]"].find("skipped")
    assert absent is not None and "ENVIRONMENT: " in absent.get("message", "")


def told(document: dict[str, Any]) -> str:
    stream = io.StringIO()
    with Console(stream, terminal=False, width=200) as console:
        console.retell(document)
    return stream.getvalue()


def test_the_report_shows_the_table_and_why_the_exit_code_is_what_it_is() -> None:
    said = told(of_cases(world.profile()))
    assert "audit of the profile" in said
    assert "transformers/plain/float16" in said
    assert "claimed, never exercised: transformers/plain: batch padded" in said
    assert "disclaimed, not called: transformers/strange: strange attention: it is strange" in said
    assert "audit: 3 of 5 claims have an executed PASS" in said
    assert "exit code 6: incomplete: nothing failed, but the audit names claims" in said


def test_names_in_an_audit_are_shown_as_text(tmp_path: Path) -> None:
    document = of_cases(world.profile())
    document["audit"]["under_claimed"] = [{"target": "[bold]x", "what": "kernel \x1b[2Jevil ran", "cases": ["c"]}]
    said = told(document)
    assert "under-claimed: [bold]x: kernel evil ran in c" in said
    assert "\x1b" not in said
