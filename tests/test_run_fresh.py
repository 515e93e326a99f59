"""A figure in the grey zone is decided on fresh prompts: once, by their verdict, and the record has both figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zenith_site
from zenith import colours
from zenith_site import PLAIN, Ran, misdeeds, profile, run_plain

from conformance.execution.fresh import FACTOR, NoFreshInputs, seed_of, with_fresh_inputs
from conformance.judgement import Judgement, accusing, decisive
from conformance.results.validation import document_faults
from conformance.suite import ConformanceSuite
from conformance.verdict import Verdict

HUES = "test_hues_agree"

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


COMMAND = """
import sys
from conformance.__main__ import main
from conformance.reference import compute
compute.RUNNER = "zenith.engine:ZenithRunner"  # here its arithmetic is the reference's as well
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of Zenith's suite, on a machine that can compute the reference of fresh prompts; each run is made once."""

    @cache
    def ran(text: str, *, code: int, time: int = 1) -> Ran:
        folder = tmp_path_factory.mktemp("run")
        (folder / "profile.toml").write_text(text)
        selection = ["--profile", str(folder / "profile.toml"), "--suite", "colours", *PLAIN]
        command = [sys.executable, "-c", COMMAND, "run", *selection, "--output", str(folder / "out")]
        done = Ran(zenith_site.executed(site, command), folder / "out")
        assert done.code == code, done.said
        return done

    return ran


def _case(done: Ran) -> dict[str, Any]:
    return done.cases[HUES]


def _computed(done: Ran) -> int:
    return int(done.document["run"]["counters"]["references_computed"])


def _stages(case: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["verdict"], one.get("stage", "")) for one in case["judgements"] if one["criterion"] == "score.agrees"]


def _ratios(case: dict[str, Any]) -> list[float]:
    figures = [figure for one in case["judgements"] for figure in one["figures"]]
    return [figure["value"] for figure in figures if figure["name"] == "pooled ratio"]


def test_nothing_grey_computes_nothing(run: Run) -> None:
    done = run(profile(), code=0)
    assert _computed(done) == 0 and _stages(_case(done)) == [("PASS", "")]


def test_fresh_prompts_clear_a_grey_figure(run: Run) -> None:
    done = run(misdeeds(score_pairs="grey_at_first"), code=0)
    case = _case(done)
    assert case["verdict"] == "PASS" and _stages(case) == [("FAIL", "grey"), ("PASS", "fresh")]
    at_first, then = _ratios(case)
    assert 1.47 < at_first < 1.2 * 1.47 and then <= 1.1
    assert "grey zone" in case["message"] and "640 scores" in case["message"] and case["rows_file"] is None
    assert _computed(done) in (0, 2)  # 0 where another test's run has stored them
    assert f"PASS {case['id']}: 160 scores" in done.process.stdout
    assert any(case["id"] in sentence and "fresh" in sentence for sentence in done.document["not_covered"])
    assert done.document["summary"]["suites"][0]["worst"]["margin"] <= 1


def test_fresh_prompts_confirm_a_grey_figure(run: Run) -> None:
    done = run(misdeeds(score_pairs="grey"), code=1)
    case = _case(done)
    assert case["verdict"] == "FAIL" and _stages(case) == [("FAIL", "grey"), ("FAIL", "fresh")]
    assert case["reason"].startswith("confirmed on fresh prompts: 640 scores") and case["rows_file"]
    assert "(fresh prompts)" in done.process.stdout


def test_the_same_case_asks_the_same_fresh_prompts_again(run: Run) -> None:
    first = _case(run(misdeeds(score_pairs="grey"), code=1))
    again = run(misdeeds(score_pairs="grey"), code=1, time=2)
    assert first["judgements"] == _case(again)["judgements"]
    assert _computed(again) == 0  # an earlier run has stored them


def test_a_crash_on_fresh_prompts_is_a_crash(run: Run) -> None:
    case = _case(run(misdeeds(score_pairs="grey_then_segfault"), code=1))
    assert case["verdict"] == "CRASH" and "fresh prompts" in case["reason"]


@pytest.mark.parametrize("then", ["raise", "refuse", "nan"])
def test_what_fresh_prompts_do_not_clear_stays_a_failure(run: Run, then: str) -> None:
    case = _case(run(misdeeds(score_pairs=f"grey_then_{then}"), code=1))
    assert case["verdict"] == "FAIL" and "resh prompts" in case["message"]


def test_a_fault_beyond_the_grey_zone_asks_for_no_fresh_prompts(run: Run) -> None:
    assert _stages(_case(run(misdeeds(score_pairs="off_by_a_third"), code=1))) == [("FAIL", "")]


def test_cases_after_a_grey_one_are_still_judged_on_the_suites_own_prompts(run: Run) -> None:
    done = run(misdeeds(score_pairs="grey"), code=1)
    assert len(done.verdicts) == 5 and [test for test, each in done.verdicts.items() if each != "PASS"] == [HUES]


def test_a_fresh_reference_that_cannot_be_computed_leaves_the_failure(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    other = zenith_site.install(tmp_path_factory.mktemp("elsewhere") / "site")  # nothing is stored beside it
    done = run_plain(other, tmp_path, text=misdeeds(score_pairs="grey_at_first"))  # and its torch is a stand-in
    case = done.cases[HUES]
    assert (done.code, case["verdict"]) == (1, "FAIL") and _stages(case) == [("FAIL", "grey")]
    assert "Fresh prompts could not decide it: " in case["message"] and case["rows_file"]


def test_junit_names_both_figures(run: Run) -> None:
    done = run(misdeeds(score_pairs="grey_at_first"), code=0)
    text = (done.output / "junit.xml").read_text()
    assert "score.agrees (grey zone): pooled ratio" in text and "score.agrees (fresh prompts): pooled ratio" in text
    assert 'name="decided"' in text


def test_a_pass_without_fresh_prompts_behind_a_grey_failure_is_no_record(run: Run) -> None:
    done = run(misdeeds(score_pairs="grey_at_first"), code=0)
    document = done.document
    case = next(case for case in document["cases"] if case["test"] == HUES)
    case["judgements"] = [one for one in case["judgements"] if one.get("stage") != "fresh"]
    assert any("score.agrees" in fault and "did not pass" in fault for fault in document_faults(document))


def test_a_suite_without_fresh_inputs_says_so() -> None:
    class Bare(ConformanceSuite):
        role = "bare"

    with pytest.raises(NoFreshInputs, match="Bare has no `fresh"):
        with_fresh_inputs(Bare, "a case")


def test_a_suite_with_other_inputs_than_its_base_does_not_take_that_ones_fresh_inputs() -> None:
    class Other(colours.Colours):
        inputs = staticmethod(lambda: "other colours")

    with pytest.raises(NoFreshInputs):
        with_fresh_inputs(Other, "a case")


def test_fresh_inputs_are_as_many_times_more_and_follow_from_the_case() -> None:
    one, again, other = (with_fresh_inputs(colours.Colours, case) for case in ("a", "a", "b"))
    assert len(one.inputs().pairs) == FACTOR * len(colours.inputs().pairs)
    assert one.inputs() == again.inputs() != other.inputs()
    assert not set(one.inputs().pairs) & set(colours.inputs().pairs)
    assert one.observations() == colours.Colours.observations() and seed_of("a") >= 2**32


def test_a_grey_judgement_counts_only_where_no_fresh_one_follows() -> None:
    plain, grey = Judgement("a", Verdict.PASS, ""), Judgement("b", Verdict.FAIL, "", stage="grey")
    fresh = Judgement("b", Verdict.PASS, "", stage="fresh")
    assert decisive([plain, grey]) == (plain, grey)
    assert decisive([plain, grey, fresh]) == (plain, fresh)


@pytest.mark.parametrize(
    ("fresh", "stand"),
    [
        ((), True),
        ((Verdict.PASS,), False),
        ((Verdict.PASS, Verdict.UNDERPOWERED), True),
        ((Verdict.UNDERPOWERED,), True),
    ],
)
def test_a_grey_failure_is_withdrawn_only_where_fresh_prompts_pass(fresh: tuple[Verdict, ...], stand: bool) -> None:
    grey = Judgement("b", Verdict.FAIL, "", stage="grey")
    again = [Judgement("b", verdict, "", stage="fresh") for verdict in fresh]
    assert accusing([Judgement("a", Verdict.PASS, ""), grey, *again]) == ((grey,) if stand else ())


def test_what_fails_on_fresh_prompts_too_accuses_twice() -> None:
    both = [Judgement("b", Verdict.FAIL, "", stage="grey"), Judgement("b", Verdict.FAIL, "", stage="fresh")]
    assert accusing(both) == tuple(both)
