"""Limits that rest on measurements: none is looser than those, or so tight that it accuses what was measured."""

from __future__ import annotations

import datetime
import importlib.resources
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria.limit import Limit, Measured
from conformance.criteria.limits import LimitsError, every, limits, named, parse
from conformance.criteria.standing import stamped
from conformance.judgement import Figure, Judgement
from conformance.results.record import figure_from_json, figure_to_json
from conformance.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
ENTRY = "vector.pooled_16bit"
MEASURED = """
[vector.pooled_16bit.measured.zenith]
p999 = {p999}
worst = {worst}
samples = {samples}
on = {on}
when = {when}
command = "python -m conformance calibrate --backend zenith"
"""


def shipped() -> str:
    return importlib.resources.files("conformance.criteria").joinpath("limits.toml").read_text(encoding="utf-8")


def with_value(value: float) -> str:
    text = shipped()
    start = text.index(f"[{ENTRY}]")
    return text[:start] + text[start:].replace("value = 1.25", f"value = {value}", 1)


def measured(
    p999: object = 1.02, worst: object = 1.1, samples: object = 12, on: str = '["plain"]', when: str = "2026-11-30"
) -> str:
    return MEASURED.format(p999=p999, worst=worst, samples=samples, on=on, when=when)


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(LimitsError) as caught:
        parse(text)
    return caught.value.faults


def test_every_limit_of_a_ratio_rests_on_measurements() -> None:
    calibrated = {name for name, limit in every(limits()).items() if limit.floor is not None}
    expected = {
        *(f"vector.{name}" for name in ("pooled_16bit", "single", "bucket_16bit", "bucket_float32")),
        *(f"score.{name}" for name in ("pooled_16bit", "single_sigma", "bias_sigma", "bias_shared")),
        *(f"classes.{name}" for name in ("pooled_16bit", "divergence")),
        *(f"tokens.{name}" for name in ("pooled_16bit", "single", "bucket_16bit", "bucket_float32", "divergence")),
        *(f"tokens.{name}" for name in ("margin", "gap_sigma")),
        *(f"attention.{name}" for name in ("pooled_16bit", "pooled_float32", "tile_16bit", "tile_float32")),
        *(f"attention.{name}" for name in ("row_16bit", "row_float32", "pooled_tf32", "local_tf32")),
        *(f"metamorphic.{name}" for name in ("pooled_16bit", "single", "single_sigma")),
        "ratio.pooled_float32",
    }
    assert expected <= calibrated


def test_a_value_looser_than_its_floor_and_the_measurements_is_refused() -> None:
    (fault,) = faults_of(with_value(1.4) + measured(p999=1.2, worst=1.3))
    assert "vector.pooled_16bit.value=1.4 is looser than measured: at most 1.32" in fault
    assert "1.1 times its p99.9, 1.2 on zenith" in fault


def test_a_value_up_to_a_tenth_above_what_was_measured_is_taken() -> None:
    given = parse(with_value(1.32) + measured(p999=1.2, worst=1.3))
    assert given.vector.pooled_16bit.value == 1.32


def test_a_value_that_correct_variations_break_is_refused() -> None:
    (fault,) = faults_of(shipped() + measured(p999=1.26, worst=1.3))
    assert "would accuse correct variations: their p99.9 on zenith is 1.26" in fault


def test_every_fault_of_a_measurement_is_named_with_what_would_be_right() -> None:
    text = measured(p999='"much"', worst=0.5, samples=0, on='"plain"', when='"today"').replace("command =", "comand =")
    faults = faults_of(shipped() + text)
    assert faults == (
        "unknown key of vector.pooled_16bit.measured.zenith: 'comand'; did you mean 'command'?",
        "missing key of vector.pooled_16bit.measured.zenith: 'command'",
    )
    faults = faults_of(shipped() + measured(p999='"much"', worst="nan", samples=0, on='"plain"', when='"today"'))
    assert [fault.partition("=")[0].rpartition(".")[2] for fault in faults] == [
        "p999",
        "worst",
        "samples",
        "on",
        "when",
    ]
    assert faults[-1].endswith("must be a date, as in 2026-11-30")


@pytest.mark.parametrize(
    ("add", "says"),
    [
        ("\n[vector.prompts.measured.zenith]\n", "missing key of vector.prompts.measured.zenith: 'p999'"),
        ("\n[tokens.surprise]\nvalue = 1\n", "unknown limit in [tokens]: 'surprise'"),
        ("\n[vektor.single]\nvalue = 1\n", "unknown group: 'vektor'; did you mean 'vector'?"),
    ],
)
def test_what_no_criterion_reads_is_refused(add: str, says: str) -> None:
    assert any(says in fault for fault in faults_of(shipped() + add))


def test_measurements_of_a_rule_need_a_floor() -> None:
    text = shipped() + measured().replace("pooled_16bit", "prompts")
    assert any("vector.prompts is measured, so it needs a floor" in fault for fault in faults_of(text))


def test_a_missing_entry_and_a_missing_group_are_one_fault_each() -> None:
    start = shipped().index("[vector.single]")
    text = shipped()[:start] + shipped()[shipped().index("[vector.bucket_prompts]") :]
    assert faults_of(text) == ("missing limit in [vector]: 'single'",)
    assert "missing group: 'classes'" in faults_of(
        "\n".join(block for block in shipped().split("\n\n") if "[classes." not in block)
    )


def test_text_that_is_no_toml_is_refused() -> None:
    assert faults_of("[vector")[0].startswith("not TOML")


@settings(max_examples=30, deadline=None)
@given(value=st.floats(0.5, 10), floor=st.floats(0.5, 10), each=st.lists(st.floats(0.01, 10), min_size=1, max_size=3))
def test_a_limit_lies_between_what_was_measured_and_its_widest(value: float, floor: float, each: list[float]) -> None:
    day = datetime.date(2026, 11, 30)
    made = tuple(Measured(f"d{i}", p999, p999, 1, ("a",), day, "c") for i, p999 in enumerate(each))
    limit = Limit("x.y", value, "p", "0", floor, made)
    assert limit.widest == max(floor, 1.1 * max(each))


def test_a_limit_is_provisional_where_nobody_has_measured() -> None:
    limit = parse(shipped() + measured()).vector.pooled_16bit
    assert limit.standing("zenith") == "measured"
    assert limit.standing("xpu") == "provisional"
    assert named("vector.prompts").standing("xpu") == ""


def test_judgements_say_what_their_limits_are_worth_on_the_device() -> None:
    figures = (
        Figure("pooled ratio", 1.0, 1.25, "max", "measured", ENTRY),
        Figure("prompts", 16.0, 16.0, "min", "rule", "vector.prompts"),
        Figure("colour", 1.0, 2.0, "max", "a vendor's own", "zenith.colour"),
        Figure("cosine", 1.0),
    )
    judgement = stamped(Judgement("vector.agrees", Verdict.PASS, "fine", figures), "nobody-has-one")
    assert [figure.standing for figure in judgement.figures] == ["provisional", "", "", ""]


def test_a_figure_comes_back_from_json_with_its_limits_name_and_standing() -> None:
    figure = Figure("pooled ratio", 1.0, 1.25, "max", "measured", ENTRY, "provisional")
    assert figure_from_json(figure_to_json(figure), "here") == figure
    assert set(figure_to_json(Figure("cosine", 1.0))) == {"name", "value", "limit", "bound", "provenance"}
    with pytest.raises(ValueError, match="standing is 'guessed'"):
        figure_from_json({**figure_to_json(figure), "standing": "guessed"}, "here")


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance", "validate", "--limits", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_validate_says_every_fault_of_a_limits_file(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(with_value(4) + "\n[tokens.surprise]\nvalue = 1\n")
    process = validate(path)
    assert process.returncode == 1
    assert "looser than measured" in process.stdout and "'surprise'" in process.stdout
    assert process.stdout.count(str(path)) == 2
    path.write_text(shipped())
    assert validate(path).returncode == 0
    assert validate(tmp_path / "none.toml").returncode == 4


@pytest.mark.parametrize("edited", ["value = 12.5\nfloor = 12.5\n", "value = 12.5\n"])
def test_validate_takes_no_floor_above_the_shipped_one_and_no_rule_in_its_place(tmp_path: Path, edited: str) -> None:
    before, _, after = shipped().partition("[vector.pooled_16bit]\n")
    _, _, after = after.partition("[vector.single]\n")
    entry = f'[vector.pooled_16bit]\n{edited}provenance = "I say so"\nsince = "0.1.0"\n\n[vector.single]\n'
    path = tmp_path / "limits.toml"
    path.write_text(before + entry + after)
    process = validate(path)
    assert process.returncode == 1
    assert "vector.pooled_16bit" in process.stdout and "of the shipped limit" in process.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a = 1" + "0" * 5000, "not TOML"),
    ],
)
def test_text_that_python_itself_refuses_is_no_limits_file(text: str, says: str) -> None:
    (fault,) = faults_of(text)
    assert says in fault


def test_a_whole_number_without_end_is_refused_in_a_short_sentence() -> None:
    (fault,) = faults_of(shipped().replace("value = 1.25", "value = 1" + "0" * 400, 1))
    assert "must be a finite number" in fault and len(fault) < 200
