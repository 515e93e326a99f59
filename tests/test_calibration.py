"""Calibration: what is counted, what follows from it, and the command on a vendor's engine that needs no torch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zenith_site
from background import ended, eventually
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.calibration.document import read
from conformance.calibration.proposal import proposed_text
from conformance.calibration.report import sentences
from conformance.calibration.sample import Question, Sample, Taken, on_scale
from conformance.calibration.summary import Run, measurements, p999, summarise, thinner
from conformance.criteria.limits import every, limits, parse
from conformance.judgement import Figure, Judgement
from conformance.names import UsageError
from conformance.verdict import Verdict

LIMITS = every(limits())
ENTRY = "vector.pooled_16bit"


def question(attention: str = "plain", device: str = "zenith", precision: str = "fused") -> Question:
    return Question(device, attention, "bfloat16", precision, "embedding", "test_vectors_agree", "tiny")


def judgement(x: list[float], value: float = 1.0, *, limit: float = 1.25, verdict: Verdict = Verdict.PASS) -> Judgement:
    figure = Figure("pooled ratio", value, limit, "max", "measured", ENTRY)
    return Judgement("vector.agrees", verdict, "so it is", (figure,), {"x": np.array(x)})


def samples(values: dict[str, list[float]]) -> list[Sample]:
    """By attention backend, with its class of device before it."""
    return [
        Sample(ENTRY, "pooled ratio", question(backend.split()[1], backend.split()[0]), "as-is", value)
        for backend, each in values.items()
        for value in each
    ]


def test_results_that_are_equal_to_the_last_bit_are_judged_once() -> None:
    taken = Taken()
    taken.take(question(), "as-is", "case", [judgement([1.0, 2.0])], LIMITS)
    taken.take(question(), "batch.8", "case", [judgement([1.0, 2.0])], LIMITS)
    taken.take(question("quick"), "as-is", "case", [judgement([1.0, 2.0])], LIMITS)
    taken.take(question(), "batch.1", "case", [judgement([1.0, np.nextafter(2.0, 3.0)])], LIMITS)
    assert (taken.judgements, taken.identical, len(taken.samples)) == (2, 2, 2)


def test_equal_results_under_another_claim_or_for_other_prompts_are_judged_again() -> None:
    taken = Taken()
    taken.take(question(), "as-is", "case", [judgement([1.0])], LIMITS)
    taken.take(question(precision="eager"), "as-is", "case", [judgement([1.0])], LIMITS)
    taken.take(question(), "seed.1", "case", [judgement([1.0])], LIMITS, seed=1)
    assert (taken.judgements, taken.identical) == (3, 0)


def test_a_failed_judgement_is_a_false_alarm_even_without_rows() -> None:
    taken = Taken()
    evidence = Judgement("observed.ran_as_requested", Verdict.FAIL, "another kernel ran")
    taken.take(question(), "as-is", "case", [evidence, judgement([1.0], 2.0, verdict=Verdict.FAIL)], LIMITS)
    assert [alarm.message for alarm in taken.alarms] == ["another kernel ran", "so it is"]
    assert taken.judgements == 1


def test_a_grey_figure_that_fresh_prompts_cleared_is_a_sample_and_no_false_alarm() -> None:
    grey = replace(judgement([1.0], 1.3, verdict=Verdict.FAIL), stage="grey")
    cleared, confirmed = Taken(), Taken()
    cleared.take(question(), "as-is", "case", [grey, replace(judgement([2.0]), stage="fresh")], LIMITS)
    again = replace(judgement([2.0], 1.3, verdict=Verdict.FAIL), stage="fresh")
    confirmed.take(question(), "as-is", "case", [grey, again], LIMITS)
    assert (len(cleared.alarms), len(cleared.samples)) == (0, 2)
    assert (len(confirmed.alarms), len(confirmed.samples)) == (2, 2)


def test_a_figure_is_put_on_the_scale_of_its_limit() -> None:
    assert on_scale(Figure("r", 1.1, 1.25, "max", "", ENTRY), LIMITS) == pytest.approx(1.1)
    raised = Figure("r", 6.0, 12.0, "max", "", "ratio.pooled_float32")
    assert on_scale(raised, LIMITS) == pytest.approx(0.5 * LIMITS["ratio.pooled_float32"].value)


@pytest.mark.parametrize(
    "figure",
    [
        Figure("r", 1.1, 1.25, "max", ""),
        Figure("r", 1.1, None, "max", "", ENTRY),
        Figure("r", 1.1, 0.0, "max", "", ENTRY),
        Figure("r", 16.0, 16.0, "min", "", ENTRY),
        Figure("r", float("inf"), 1.25, "max", "", ENTRY),
        Figure("prompts", 16.0, 16.0, "max", "", "vector.prompts"),
        Figure("r", 1.1, 1.25, "max", "", "zenith.own"),
    ],
)
def test_a_figure_without_a_measured_limit_is_no_sample(figure: Figure) -> None:
    assert on_scale(figure, LIMITS) is None


def test_of_fewer_than_a_thousand_samples_the_greatest_counts() -> None:
    assert p999([1.0, 3.0, 2.0]) == 3.0
    assert p999([float(i) for i in range(2001)]) == 1998.0


def test_the_limit_that_follows_is_a_tenth_above_what_was_measured_or_the_floor() -> None:
    (entry,) = summarise(samples({"zenith plain": [1.0, 1.3]}), LIMITS)
    assert (entry.samples, entry.p999, entry.worst, entry.proposed) == (2, 1.3, 1.3, 1.43)
    assert entry.margin == pytest.approx(1.3 / 1.25)
    (entry,) = summarise(samples({"zenith plain": [0.9, 1.0]}), LIMITS)
    assert entry.proposed == LIMITS[ENTRY].floor


def test_each_attention_backend_is_held_against_what_the_others_propose() -> None:
    (entry,) = summarise(samples({"cpu plain": [1.0, 1.2], "cpu quick": [1.0, 1.6], "zenith quick": [1.1]}), LIMITS)
    left_out = {each.backend: (each.samples, each.proposed, each.worst, each.holds) for each in entry.left_out}
    assert left_out == {
        "cpu plain": (2, 1.76, 1.2, True),
        "cpu quick": (2, 1.32, 1.6, False),
        "zenith quick": (1, 1.76, 1.1, True),
    }
    assert set(entry.devices) == {"cpu", "zenith"}
    assert entry.devices["cpu"][3] == ("plain", "quick")


def test_one_attention_backend_alone_cannot_be_left_out() -> None:
    (entry,) = summarise(samples({"cpu plain": [1.0]}), LIMITS)
    assert entry.left_out == ()


def proposal_of(found: list[Sample], command: str = "calibrate --backend 'z \"1\"'") -> str:
    import importlib.resources

    entries = summarise(found, LIMITS)
    devices = sorted({sample.question.device for sample in found})
    runs = [Run(device, "2026-11-30", command, frozenset({ENTRY})) for device in devices]
    text = importlib.resources.files("conformance.criteria").joinpath("limits.toml").read_text("utf-8")
    values = {entry.limit.name: entry.proposed for entry in entries}
    return proposed_text(text, values, {e.limit.name: measurements(e, runs) for e in entries})


def test_the_proposed_file_is_one_that_is_taken_and_keeps_everything_else() -> None:
    import importlib.resources

    shipped = importlib.resources.files("conformance.criteria").joinpath("limits.toml").read_text("utf-8")
    text = proposal_of(samples({"zenith plain": [1.0, 1.3], "moon plain": [1.1]}))
    given = parse(text)
    assert given.vector.pooled_16bit.value == 1.43
    made = {each.device: each for each in given.vector.pooled_16bit.measured}
    assert made["zenith"].samples == 2 and made["zenith"].on == ("plain",)
    assert made["zenith"].command == "calibrate --backend 'z \"1\"'"
    others = {name: limit for name, limit in every(given).items() if name != ENTRY}
    assert others == {name: limit for name, limit in LIMITS.items() if name != ENTRY}
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in shipped.splitlines() if line.startswith("#")
    ]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=40))
def test_whatever_is_measured_the_proposed_file_is_taken(values: list[float]) -> None:
    parse(proposal_of(samples({"zenith plain": values})))


def test_whatever_a_command_holds_the_proposed_file_is_taken_and_has_an_encoding() -> None:
    text = proposal_of(samples({"zenith plain": [1.0]}), "calibrate --output /\udcff\x7f\x1b[31m\U0001f600")
    assert parse(text.encode().decode()).vector.pooled_16bit.standing("zenith") == "measured"


def test_measurements_take_the_place_of_older_ones_on_the_same_class_of_device() -> None:
    entries = summarise(samples({"zenith plain": [1.0]}), LIMITS)
    once = proposal_of(samples({"zenith plain": [1.0, 1.1], "moon plain": [1.1]}))
    made = measurements(entries[0], [Run("zenith", "2027-01-01", "again", frozenset({ENTRY}))])
    twice = proposed_text(once, {ENTRY: 1.25}, {ENTRY: made})
    found = {each.device: each.samples for each in parse(twice).vector.pooled_16bit.measured if each.device != "cpu"}
    assert {"zenith": 1, "moon": 1}.items() <= found.items()
    assert proposed_text(twice, {ENTRY: 1.25}, {ENTRY: made}) == twice


def test_a_proposal_says_where_it_rests_on_fewer_samples_than_before() -> None:
    before = parse(proposal_of(samples({"zenith plain": [1.0, 1.1], "moon plain": [1.1]})))
    entries = summarise(samples({"zenith plain": [1.0], "moon plain": [1.1]}), LIMITS)
    runs = [Run(device, "2027-01-01", "again", frozenset({ENTRY})) for device in ("zenith", "moon")]
    assert thinner({ENTRY: measurements(entries[0], runs)}, every(before)) == [f"{ENTRY} on zenith, 2 to 1"]


def test_a_limit_names_the_commands_that_measured_it_and_no_others() -> None:
    (entry,) = summarise(samples({"zenith plain": [1.0]}), LIMITS)
    runs = [
        Run("zenith", "2027-01-01", "one", frozenset({ENTRY})),
        Run("zenith", "2027-01-03", "other", frozenset({ENTRY})),
        Run("zenith", "2027-01-04", "of tokens", frozenset({"tokens.single"})),
        Run("moon", "2027-01-05", "on the moon", frozenset({ENTRY})),
    ]
    (made,) = measurements(entry, runs)
    assert (made.command, made.when.isoformat()) == ("one; other", "2027-01-03")


def test_a_value_that_stays_is_written_as_it_was() -> None:
    text = "[vector.single]\nvalue = 2.0\n"
    assert proposed_text(text, {"vector.single": 2.0}, {}) == text
    assert proposed_text(text, {"vector.single": 2.5}, {}) == "[vector.single]\nvalue = 2.5\n"


def test_an_entry_that_the_file_does_not_have_is_no_proposal() -> None:
    with pytest.raises(KeyError, match=r"vector\.none"):
        proposed_text("[vector.single]\nvalue = 1\n", {"vector.none": 2.0}, {})


def test_a_figure_beyond_every_limit_is_no_sample_and_a_negative_one_is_zero() -> None:
    taken = Taken()
    values = (1e300, -1e300, float("inf"), float("nan"), -1.0)
    taken.take(question(), "as-is", "case", [judgement([value], value) for value in values], LIMITS)
    assert taken.judgements == 5 and [sample.value for sample in taken.samples] == [0.0]


# The command, on Zenith.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def calibrate(
    site: Path, folder: Path, *arguments: str, text: str | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    backend = ["--backend", "zenith"]
    if text is not None:
        (folder / "profile.toml").write_text(text)
        backend = ["--profile", str(folder / "profile.toml")]
    arguments = ("calibrate", *backend, "--suite", "colours", "--output", str(folder / "out"), *arguments)
    process = zenith_site.conformance(site, *arguments)
    file = folder / "out" / "calibration.json"
    return process, read(file) if file.exists() else {}


def test_an_engine_that_cannot_be_varied_is_measured_as_it_is(site: Path, tmp_path: Path) -> None:
    process, found = calibrate(site, tmp_path)
    assert process.returncode == 0, process.stderr
    assert found["device"] == "cpu" and found["backend"] == "zenith" and not found["interrupted"]
    assert {null for row in found["samples"] for null in row["values"]} == {"as-is"}
    assert {row["attention"] for row in found["samples"]} <= {"plain", "quick"}
    assert "zenith cannot be varied: it is measured as it is" in found["not_varied"]
    assert any("take no seed" in why for why in found["not_varied"])
    assert found["judgements"] == {"counted": 10, "identical": 0, "inconclusive": 0}  # two attention backends claim two
    assert found["facts"]["device"]["available"] and found["command"].startswith("python -m conformance calibrate")
    proposed = parse((tmp_path / "out" / "limits.toml").read_text())
    assert "score.pooled_16bit" in process.stdout
    assert proposed.score.pooled_16bit.standing("cpu") == "measured"


def test_an_accused_null_is_a_failure_that_names_its_case(site: Path, tmp_path: Path) -> None:
    text = zenith_site.misdeeds(score_pairs="off_by_a_third")
    process, found = calibrate(site, tmp_path, "--attention", "plain", text=text)
    assert process.returncode == 1
    assert found["alarms"][0]["case"].startswith("colours.test_hues_agree[zenith/plain/bfloat16]")
    assert "FALSE ALARM as-is in colours.test_hues_agree" in process.stdout


def test_a_crash_costs_its_case_and_the_rest_is_measured(site: Path, tmp_path: Path) -> None:
    process, found = calibrate(site, tmp_path, text=zenith_site.misdeeds(classify="segfault"))
    assert process.returncode == 6
    lost = {each["where"].partition("[")[0] for each in found["not_measured"]}
    assert lost == {"colours.test_kinds_are_complete"}
    assert found["samples"] and "not measured, 2 cases: as-is: " in process.stdout


def test_an_interrupt_keeps_what_was_measured(site: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text(zenith_site.misdeeds(generate="lose_device_and_hang"))
    marker = tmp_path / "asked"
    command = ["calibrate", "--profile", str(tmp_path / "profile.toml"), "--suite", "colours", "--attention", "plain"]
    process = subprocess.Popen(
        [sys.executable, "-m", "conformance", *command, "--output", str(tmp_path / "out")],
        cwd=zenith_site.ROOT,
        env=zenith_site.environment(site, ZENITH_GONE=str(marker)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert eventually(marker.exists)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 2, said
    found = read(tmp_path / "out" / "calibration.json")
    assert found["interrupted"] and found["samples"]
    assert all(ended(member) for member in family)


def test_other_calibrations_count_in_what_is_proposed(site: Path, tmp_path: Path) -> None:
    _, found = calibrate(site, tmp_path)
    other = tmp_path / "other.json"
    for row in found["samples"]:
        row["values"] = {null: 2 * value for null, value in row["values"].items()}
    other.write_text(json.dumps({**found, "device": "moon", "command": "on the moon"}))
    process, pooled = calibrate(site, tmp_path, "--pool", str(other))
    assert process.returncode == 0, process.stderr
    assert pooled["pooled"] == ["on the moon"]
    left_out = pooled["entries"]["score.pooled_16bit"]["left_out"]
    assert [each["backend"] for each in left_out] == ["cpu plain", "cpu quick", "moon plain", "moon quick"]
    proposed = parse((tmp_path / "out" / "limits.toml").read_text()).score.pooled_16bit
    assert {each.device: each.command for each in proposed.measured}["moon"] == "on the moon"


def test_limits_follow_from_other_calibrations_alone(site: Path, tmp_path: Path) -> None:
    _, found = calibrate(site, tmp_path)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(found))
    process, pooled = calibrate(site, tmp_path, "--only-pool", "--pool", str(other))
    assert process.returncode == 0, process.stderr
    proposed, before = ({k: e["proposed"] for k, e in each["entries"].items()} for each in (pooled, found))
    assert not pooled["samples"] and proposed == before
    assert "with the pooled ones: 10 judgements, 0 cases accused" in process.stdout
    process, _ = calibrate(site, tmp_path, "--only-pool")
    assert process.returncode == 4 and "--only-pool needs files: --pool FILE" in process.stderr


def test_a_file_that_is_no_calibration_is_refused_before_anything_is_measured(site: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"format": 1, "surprise": NaN}')
    process, found = calibrate(site, tmp_path, "--pool", str(tmp_path / "other.json"))
    assert process.returncode == 4 and "NaN is no JSON" in process.stderr and not found
    with pytest.raises(UsageError, match="is no calibration that can be read"):
        read(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"format": 1}')
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "other.json")
    assert len(caught.value.faults) == 6 and "more faults" in caught.value.faults[-1]


def test_a_file_whose_numbers_no_limit_follows_from_is_refused(site: Path, tmp_path: Path) -> None:
    _, found = calibrate(site, tmp_path)
    other = tmp_path / "other.json"
    row = found["samples"][0]
    for changed, said in (
        ({"started": "2026-99-99T00:00"}, "$.started: 2026-99-99 is no date"),
        ({"samples": [{**row, "values": {"as-is": 1e308}}]}, "greater than the maximum"),
        ({"samples": [{**row, "values": {"as-is": -1.0}}]}, "less than the minimum"),
        ({"samples": [{**row, "attention": ""}]}, "$.samples[0].attention"),
    ):
        other.write_text(json.dumps({**found, **changed}))
        with pytest.raises(UsageError) as caught:
            read(other)
        assert said in caught.value.faults[0]
    other.write_text(json.dumps(found))
    process, _ = calibrate(site, tmp_path, "--only-pool", "--pool", str(other), "--pool", str(other))
    assert process.returncode == 4 and "it holds the same calibration as a file before it" in process.stderr


def test_a_null_that_does_not_exist_is_a_usage_error(site: Path, tmp_path: Path) -> None:
    process, _ = calibrate(site, tmp_path, "--null", "kernel.tile-17")
    assert process.returncode == 4
    assert "unknown null 'kernel.tile-17'; did you mean 'kernel.tile-1" in process.stderr


def test_the_report_says_how_many_judgements_bound_the_rate_of_false_alarms() -> None:
    from conformance.calibration.measuring import Calibration, NotMeasured

    found = Calibration(not_measured=[NotMeasured("batch.1", "case", "it \x1b[31mcrashed")])
    for number in range(30):
        found.taken.take(question(), "as-is", "case", [judgement([float(number)])], LIMITS)
    said = sentences(found)
    assert said[0].startswith("30 judgements of different results") and "at most 0.095 (95%)" in said[0]
    assert said[1].startswith("not measured, 1 cases: batch.1")
