from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.names import UsageError, did_you_mean, printable, unknown


def test_the_nearest_name_is_suggested_whatever_its_case() -> None:
    assert did_you_mean("flash_atn", ["FLASH_ATTN", "TRITON_ATTN"]) == "did you mean 'FLASH_ATTN'?"


def test_where_nothing_is_near_all_names_are_shown() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "known are a, b"
    assert did_you_mean("zzz", []) == "none is known"


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_what_is_printed_cannot_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(character) < 32 and character not in "\n\t" for character in shown)
    assert not any(character in shown for character in "\x7f\x9b\u202e\u2066")
    assert printable(shown) == shown


def test_plain_text_is_printed_as_it_is() -> None:
    assert printable("Größe 5 µm\n\tß") == "Größe 5 µm\n\tß"


def test_a_name_from_outside_is_cleaned() -> None:
    assert "\x1b" not in unknown("backend", "\x1b[31mcpu", ["cpu"])


def test_a_usage_error_holds_every_fault() -> None:
    error = UsageError("one", "two")
    assert error.faults == ("one", "two")
    assert str(error) == "one\ntwo"
